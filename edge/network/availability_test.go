package network_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"verifyd/edge/network"
	"verifyd/natsconf/natstest"
)

func TestMetadataGrowsOld(t *testing.T) {
	s := newStandIn(t)
	s.claims = func(c map[string]any) { c["exp"] = time.Now().Add(24 * time.Hour).Unix() }
	var c clock
	n := s.network(t, c.set)
	redeem := func() {
		t.Helper()
		if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
			t.Fatal(err)
		}
	}
	redeem()
	c.advance(59 * time.Minute)
	redeem()
	if d := s.discoveries.Load(); d != 1 {
		t.Fatalf("metadata fetched %d times within the hour", d)
	}
	s.metadata = func(m map[string]any) { m["authorization_endpoint"] = s.URL + "/moved" }
	c.advance(2 * time.Minute)
	raw, err := n.AuthURL(t.Context(), s.attempt)
	if err != nil || raw[:len(s.URL)+6] != s.URL+"/moved" {
		t.Errorf("sent to %s, %v; the metadata name another address", raw, err)
	}
	redeem()
	if k := s.keyFetches.Load(); k != 1 {
		t.Errorf("keys fetched %d times, though their address is the same", k)
	}
	s.discover = answerStatus(http.StatusServiceUnavailable)
	c.advance(61 * time.Minute)
	// with what is known
	if raw, err := n.AuthURL(t.Context(), s.attempt); err != nil || raw[:len(s.URL)+6] != s.URL+"/moved" {
		t.Errorf("sent to %s, %v", raw, err)
	}
	if n.Available() == nil {
		t.Error("a provider whose metadata cannot be had counts as available")
	}
	if redeem(); n.Available() != nil {
		t.Error("a provider at which a sign-in just went well counts as away")
	}
	if d := s.discoveries.Load(); d != 3 {
		t.Errorf("metadata fetched %d times", d)
	}
}

// Tokens with unknown keys cause one fetch, however many arrive; a new key is found after the pause.
func TestUnknownKeysDoNotFloodTheProvider(t *testing.T) {
	s := newStandIn(t)
	var c clock
	n := s.network(t, c.set)
	if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
		t.Fatal(err)
	}
	next := otherKey(t)
	s.sign = func(claims []byte) string { return signJWT(t, jose.ES256, next, "k2", claims) }
	c.advance(11 * time.Second)
	for range 50 {
		_, err := n.Redeem(t.Context(), s.attempt, s.good())
		wantFailure(t, err, "id_token", "signature")
	}
	if k := s.keyFetches.Load(); k != 4 {
		t.Fatalf("keys fetched %d times, want once at first and three times for the flood", k)
	}
	s.key = next
	s.jwks = func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, jose.JSONWebKeySet{
			Keys: []jose.JSONWebKey{{Key: next.Public(), KeyID: "k2", Algorithm: "ES256", Use: "sig"}},
		})
	}
	c.advance(11 * time.Second)
	redeemSoon(t, s, n)
	if k := s.keyFetches.Load(); k != 5 {
		t.Errorf("the new key is found after %d fetches", k-4)
	}
}

func TestFailingKeysAreRequestedOnce(t *testing.T) {
	s := newStandIn(t)
	var c clock
	n := s.network(t, c.set)
	up := s.jwks
	s.jwks = answerStatus(http.StatusServiceUnavailable)
	for range 20 {
		_, err := n.Redeem(t.Context(), s.attempt, s.good())
		wantFailure(t, err, "id_token", "status")
	}
	if k := s.keyFetches.Load(); k != 1 {
		t.Errorf("a key set that is down was asked %d times", k)
	}
	s.jwks = up
	c.advance(3 * time.Second)
	redeemSoon(t, s, n)
	if k := s.keyFetches.Load(); k != 2 {
		t.Errorf("a key set that is up again was asked %d times", k-1)
	}
}

// redeemSoon waits until a code is redeemed. The library returns its keys a moment before it releases the
// fetch that got them, and a request in between gets that fetch's answer.
func redeemSoon(t *testing.T, s *standIn, n *network.Network) {
	t.Helper()
	natstest.Await(t, "a sign-in succeeds with the keys that the provider has now", func() bool {
		_, err := n.Redeem(t.Context(), s.attempt, s.good())
		return err == nil
	})
}

func TestAvailable(t *testing.T) {
	for name, c := range map[string]struct {
		token http.HandlerFunc
		away  bool
	}{
		"500": {answerStatus(500), true},
		"cut": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true,
		},
		"a code made up":     {answerStatus(400), false},
		"the client unknown": {answerStatus(401), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			var now clock
			n := s.network(t, asOAuth2(s), now.set)
			if err := n.Available(); err != nil {
				t.Fatalf("before anything is known: %v", err)
			}
			up := s.token
			s.token = c.token
			if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err == nil {
				t.Fatal("no trouble")
			}
			if err := n.Available(); (err != nil) != c.away {
				t.Errorf("available: %v", err)
			}
			now.advance(3 * time.Minute)
			if err := n.Available(); err != nil {
				t.Errorf("after a while without news: %v", err)
			}
			_, _ = n.Redeem(t.Context(), s.attempt, s.good())
			s.token = up
			if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil || n.Available() != nil {
				t.Errorf("after it came back: %v, %v", err, n.Available())
			}
		})
	}
}

// keep runs a keeper until the test ends or stop is called.
func keep(t *testing.T, networks ...*network.Network) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- network.NewKeeper(networks, func(string, []string) {}).Serve(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	}
}

// A provider that is down at the start is reported, and found when it is back, although no user signs in.
func TestKeeperFindsAProviderThatComesBack(t *testing.T) {
	s := newStandIn(t)
	asked := make(chan struct{}, 100)
	var back atomic.Bool
	up := s.discover
	s.discover = func(w http.ResponseWriter, r *http.Request) {
		defer func() { asked <- struct{}{} }()
		if back.Load() {
			up(w, r)
			return
		}
		answerStatus(http.StatusBadGateway)(w, r)
	}
	n := s.network(t)
	stop := keep(t, n, s.network(t, asOAuth2(s)))
	defer stop()
	<-asked
	// waits for the keeper, and is answered from memory
	wantFailure(t, n.Discover(t.Context()), "discovery", "status")
	wantFailure(t, n.Available(), "discovery", "status")
	if d := s.discoveries.Load(); d != 1 {
		t.Fatalf("asked %d times", d)
	}
	back.Store(true)
	<-asked // a second later
	if err := n.Discover(t.Context()); err != nil || s.discoveries.Load() != 2 {
		t.Errorf("after it came back: %v, asked %d times; the keeper's question should do", err,
			s.discoveries.Load())
	}
	if err := n.Available(); err != nil || n.AuthorizationOrigin() != s.URL {
		t.Errorf("available: %v, origin %q", err, n.AuthorizationOrigin())
	}
}
