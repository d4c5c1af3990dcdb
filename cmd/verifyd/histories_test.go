package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/cmd/verifyd/history"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// What integrators learn of their sessions, quotas and keys while the service is killed and comes back is
// what one store without faults could have answered: a checker by others finds an order of all calls that
// explains every answer (package history).
func TestHistories(t *testing.T) {
	prove.Only(t, "kills", "it kills the process while clients call it")
	t.Parallel()
	c := newChild(t)
	c.start(t)
	key := c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")
	api{base: c.base(), key: key}.knownSoon(t)
	var there sync.Mutex // a command opens a store without a service
	w := &witness{
		base: c.base(), key: key, receiver: c.inbox.CallbackURL(), log: history.New(), quota: 12,
		within:   promised,
		sessions: 24, every: 10 * time.Millisecond,
	}
	w.meter(t, 3, func(args ...string) (string, error) {
		there.Lock()
		defer there.Unlock()
		return c.command(t, args...)
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.walk(t.Context()) })
	for _, n := range []int64{6, 12, 18} {
		natstest.Await(t, "sessions are under way", func() bool { return w.begun.Load() >= n })
		there.Lock()
		c.restart(t)
		there.Unlock()
	}
	wg.Wait()
	w.judge(t)
}

// The checker finds a read that is older than what was acknowledged before it, and a lost acknowledged write,
// of each kind.
func TestHistoriesFindPlantedFaults(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		plant func(p *liar)
		in    string // what is found to be wrong
	}{
		"nothing is planted": {func(*liar) {}, ""},
		"a stale read": {func(p *liar) {
			p.before = func(q *http.Request) []byte {
				if q.Method != http.MethodGet || !strings.HasPrefix(q.URL.Path, "/sessions/") {
					return nil
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.kept[q.URL.Path]
			}
		}, "session "},
		"a lost cancel": {func(p *liar) {
			p.before = func(q *http.Request) []byte {
				if !strings.HasSuffix(q.URL.Path, "/cancel") || !p.once.CompareAndSwap(false, true) {
					return nil
				}
				return []byte(`{"state":"canceled"}`)
			}
		}, "session "},
		"a lost start": {func(p *liar) {
			p.before = func(q *http.Request) []byte {
				if q.Header.Get("Idempotency-Key") == "" || !p.once.CompareAndSwap(false, true) {
					return nil
				}
				return []byte(`{"session":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",` +
					`"verify_url":"` + p.server.URL + `","expires_at":"2100-01-01T00:00:00Z"}`)
			}
		}, "session "},
		"a start that is not counted": {func(p *liar) {
			p.before = func(q *http.Request) []byte {
				if q.URL.Path == "/verify/init" && q.Header.Get("Authorization") == "Bearer "+p.w.quotaKey {
					q.Header.Set("Authorization", "Bearer "+p.w.key)
				}
				return nil
			}
		}, "quota of "},
		"a revoked key that lives": {func(p *liar) {
			p.before = func(q *http.Request) []byte {
				if key, _ := strings.CutPrefix(q.Header.Get("Authorization"),
					"Bearer "); key == p.w.revoked[0] &&
					p.acknowledged() > promised {
					q.Header.Set("Authorization", "Bearer "+p.w.key)
				}
				return nil
			}
		}, "key "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newLiar(t)
			row.plant(p)
			p.w.walk(t.Context())
			faults, of := p.w.log.Faults(t.TempDir())
			switch {
			case row.in == "" && len(faults) > 0:
				t.Errorf("%q", faults)
			case row.in != "" && len(faults) == 0:
				t.Errorf("nothing is found in %s", of)
			}
			for _, f := range faults {
				if !strings.HasPrefix(f, row.in) {
					t.Errorf("found: %s", f)
				}
			}
		})
	}
}

// liar is a service behind a proxy that falsifies answers.
type liar struct {
	w      *witness
	server *httptest.Server
	// before answers a request, or changes it
	before func(q *http.Request) []byte
	once   atomic.Bool

	mu      sync.Mutex
	kept    map[string][]byte // the first answer to each GET
	revoked time.Time
}

// acknowledged is for how long the revocation of a key has been acknowledged.
func (p *liar) acknowledged() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.revoked.IsZero() {
		return 0
	}
	return time.Since(p.revoked)
}

func newLiar(t *testing.T) *liar {
	t.Helper()
	r := boot(t)
	p := &liar{kept: map[string][]byte{}}
	there := must[*url.URL](t)(url.Parse(r.Base))
	hand := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite:   func(q *httputil.ProxyRequest) { q.SetURL(there); q.Out.Host = there.Host },
		ModifyResponse: func(a *http.Response) error {
			b, err := io.ReadAll(a.Body)
			a.Body = io.NopCloser(strings.NewReader(string(b)))
			p.mu.Lock()
			defer p.mu.Unlock()
			if path := a.Request.URL.Path; a.StatusCode == http.StatusOK && p.kept[path] == nil {
				p.kept[path] = b
			}
			return err
		},
	}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if answer := p.before(q); answer != nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
			return
		}
		hand.ServeHTTP(w, q)
	}))
	t.Cleanup(p.server.Close)
	p.before = func(*http.Request) []byte { return nil }
	accounts := r.Store.Accounts
	p.w = &witness{
		base: p.server.URL, key: r.apiKey, receiver: r.inbox.CallbackURL(), log: history.New(), quota: 4,
		within: promised, sessions: 8, every: 10 * time.Millisecond,
		revoke: func(key string) error {
			_, err := accounts.RevokeKey(context.Background(), operator(), "", key)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.revoked = time.Now()
			return err
		},
	}
	p.w.quotaKey, _ = r.enroll(t, "Metered Guild")
	metered, err := accounts.EnsureAccount(t.Context(), operator(), "Metered Guild")
	if err == nil {
		err = accounts.SetQuota(t.Context(), operator(), metered.ID, p.w.quota)
	}
	if err != nil {
		t.Fatal(err)
	}
	last, _ := r.enroll(t, "Revoked Guild")
	p.w.revoked = []string{last}
	known := api{base: r.Base, key: p.w.quotaKey}
	natstest.Await(t, "the quota is known", func() bool {
		_, _, answer := known.call(t, http.MethodGet, "/usage", "")
		return strings.Contains(string(answer), `"quota":4,`)
	})
	return p
}
