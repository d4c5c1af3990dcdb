package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/edge/limit"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

// benchHandler is the public handler on a real embedded store, without a network in front of it.
func benchHandler(b *testing.B, rate account.Rate) http.Handler {
	b.Helper()
	conn := natstest.Start(b)
	store := sessionstore.New(sessionstore.Config{
		Conn: conn, Key: secretbox.NewKey(),
		Pending:     natstest.Writer(b, conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(b, conn, topology.StreamCompletions),
		Idempotency: natstest.Writer(b, conn, topology.BucketStream(topology.BucketIdempotency)),
	})
	rates, err := limit.NewRates(rate)
	if err != nil {
		b.Fatal(err)
	}
	h, err := New(Config{
		BaseURL: "https://verify.example.com", Keys: newKeyring(), Sessions: store, Reservations: store,
		Signing: signing.New(secretbox.NewKey()),
		Lister:  store, Usages: store,
		Changes: sessionstore.NewWatch(conn), Rates: rates,
		Quota:     limit.NewQuota(natstest.Writer(b, conn, topology.StreamUsage), 1<<40),
		Callbacks: urlpolicy.NewPolicy(nil, nil), Listeners: devtunnel.New(nil), Log: zerolog.Nop(),
	})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// unread is a body that fails the benchmark when it is read.
type unread struct{ b *testing.B }

func (u unread) Read([]byte) (int, error) {
	u.b.Error("the body of a refused request was read")
	return 0, http.ErrBodyReadAfterClose
}

// BenchmarkInit and BenchmarkRateLimited compare the cost of a start with that of a refused one, which should
// be at most a tenth.
func BenchmarkInit(b *testing.B) {
	h := benchHandler(b, account.Rate{Count: 1_000_000, Per: time.Second, Burst: 1_000_000})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, pathInit, strings.NewReader(goodBody))
		r.Header.Set("Authorization", "Bearer "+acmeKey)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

func BenchmarkRateLimited(b *testing.B) {
	h := benchHandler(b, account.Rate{Count: 1, Per: time.Hour, Burst: 1})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest(http.MethodPost, pathInit, unread{b})
		if i == 0 {
			r = httptest.NewRequest(http.MethodPost, pathInit, strings.NewReader(goodBody))
		}
		r.Header.Set("Authorization", "Bearer "+acmeKey)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); i > 0 && w.Code != http.StatusTooManyRequests {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}
