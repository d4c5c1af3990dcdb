package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/web"
)

// endings is a Keys whose keys have ended, each in its own way.
type endings map[string]error

func (endings) Keys(string) []account.Key { return nil }

func (endings) SeenSince(time.Time) bool { return true }

func (e endings) Lookup(secret string) (account.Principal, error) {
	return account.Principal{}, e[secret]
}

// A 401 distinguishes an expired key from a revoked one, with the time.
func TestEndedKeysSayHow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 13, 22, 9, 105e6, time.UTC)
	s := newService(t, func(c *Config) {
		c.Keys = endings{
			"expired": &account.ExpiredKeyError{At: at},
			"rolled":  &account.ExpiredKeyError{At: at, Rolled: true}, "revoked": account.ErrRevokedKey,
		}
	})
	for key, want := range map[string]string{
		"expired": "This API key expired on 2026-11-21T13:22:09.105Z.",
		"rolled":  "This API key was replaced, and its grace period ended on 2026-11-21T13:22:09.105Z.",
		"revoked": "This API key was revoked.",
	} {
		a := s.do(t, http.MethodPost, pathInit, "{}", "Authorization", "Bearer "+key)
		wantProblem(t, a, problem.CodeKeyInvalid)
		var doc web.Document
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil || doc.Detail != want {
			t.Errorf("%s: %q, %v", key, doc.Detail, err)
		}
	}
}

// sightings is a Uses that remembers.
type sightings struct {
	mu   sync.Mutex
	seen []string
}

func (s *sightings) RecordUse(key string, _ time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, key)
}

// A key counts as used when it was accepted, whatever the result of the request; a key that was refused was
// not used.
func TestAcceptedKeysAreSeen(t *testing.T) {
	t.Parallel()
	var uses sightings
	s := newService(t, func(c *Config) { c.Uses = &uses })
	s.do(t, http.MethodPost, pathInit, "{}", "Authorization", "Bearer "+acmeKey)
	s.do(t, http.MethodGet, "/sessions/none", "", "Authorization", "Bearer "+otherKey)
	s.do(t, http.MethodGet, "/sessions/none", "", "Authorization", "Bearer "+revokedKey)
	uses.mu.Lock()
	defer uses.mu.Unlock()
	if got := strings.Join(uses.seen, " "); got != "key_acme key_other" {
		t.Errorf("seen: %s", got)
	}
}

// unseen is a Keys that knows no key and never sees a new one.
type unseen struct {
	endings

	asked atomic.Int32
}

func (u *unseen) SeenSince(time.Time) bool {
	u.asked.Add(1)
	return false
}

// A key that is not known waits for new ones, within a bound: beyond so many it is refused at once, and when
// its client leaves. One address that sends such keys leaves places to others.
func TestUnknownKeysWaitWithinABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := &unseen{endings: endings{"k": account.ErrUnknownKey}}
		g := &guard{Config: Config{Keys: keys}, unseen: limit.NewPlaces(maxUnseen)}
		began := time.Now()
		if _, err := g.lookupNew(t.Context(), "k"); !errors.Is(err, account.ErrUnknownKey) ||
			time.Since(began) != unseenFor {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := g.lookupNew(left, "k"); !errors.Is(err, account.ErrUnknownKey) {
			t.Errorf("its client has left: %v", err)
		}
		look, err := web.New(web.Config{
			Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(), Routes: []web.Route{{
				Method: http.MethodPost, Path: pathInit, Name: nameInit, Handler: http.HandlerFunc(
					func(_ http.ResponseWriter, r *http.Request) { _, _ = g.lookupNew(r.Context(), "k") }),
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		defer waiting.Wait()
		expectWait := func(address string, want bool) {
			t.Helper()
			keys.asked.Store(0)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, pathInit, nil)
			r.RemoteAddr = address
			waiting.Go(func() { look.ServeHTTP(httptest.NewRecorder(), r) })
			synctest.Wait()
			if waits := keys.asked.Load() > 0; waits != want {
				t.Fatalf("%s waits: %t", address, waits)
			}
		}
		const share = maxUnseen / 4
		for i := range maxUnseen {
			expectWait("192.0.2.1:443", i < share)
			expectWait(fmt.Sprintf("[2001:db8:1:%x::1]:443", i), i < share) // an IPv6 site
		}
		for i := range maxUnseen - 2*share {
			expectWait(fmt.Sprintf("198.51.100.%d:443", i), true)
		}
		expectWait("203.0.113.1:443", false)
	})
}
