package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/places"
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
// its client leaves. One address that sends many keeps out no key of another's.
func TestUnknownKeysWaitWithinABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := &unseen{endings: endings{"k": account.ErrUnknownKey}}
		g := &guard{Config{Keys: keys}, places.New(places.Pools.NewKeys)}
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
		hold := func(from string) (release func()) {
			release, err := g.unseen.Acquire(places.Request{Of: from})
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		for _, c := range []struct {
			name, from string // the other ones' address
			n          int
			waits      bool
		}{
			{"of another address", "198.51.100.7", g.unseen.Each, true},
			{"of the same", limit.SiteOf(netip.Addr{}), g.unseen.Each, false},
			{"of all", "", g.unseen.Size, false},
		} {
			var held []func()
			for range c.n {
				held = append(held, hold(c.from))
			}
			for range 2 { // a refusal leaves as many places as before
				keys.asked.Store(0)
				if _, err := g.lookupNew(t.Context(), "k"); !errors.Is(err, account.ErrUnknownKey) ||
					(keys.asked.Load() > 0) != c.waits {
					t.Errorf("one more, with as many %s as may be: %v; it waited: %t", c.name, err,
						keys.asked.Load() > 0)
				}
			}
			for _, release := range held {
				release()
			}
		}
	})
}
