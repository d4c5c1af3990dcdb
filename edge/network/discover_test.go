package network_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func TestAuthURLRequestsACode(t *testing.T) {
	s := newStandIn(t)
	n := s.network(t, func(set *netsettings.Settings, _ *network.Options) { set.Prompt = "select_account" })
	raw, err := n.AuthURL(t.Context(), s.attempt)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	challenge := sha256.Sum256([]byte(s.attempt.Verifier))
	want := url.Values{
		"tenant": {"1"}, "response_type": {"code"}, "client_id": {"client"}, "scope": {"openid"}, "prompt": {
			"select_account",
		},
		"redirect_uri": {"https://verify.example.com/signin/example/callback"}, "state": {s.attempt.State},
		"nonce":                 {s.attempt.Nonce},
		"code_challenge_method": {"S256"}, "code_challenge": {
			base64.RawURLEncoding.EncodeToString(challenge[:]),
		},
	}
	if got := u.Query(); got.Encode() != want.Encode() {
		t.Fatalf("query = %v, want %v", got, want)
	}
	if origin := n.AuthorizationOrigin(); origin != s.URL || raw[:len(origin)] != origin {
		t.Fatalf("origin = %s", origin)
	}
}

func TestAuthURLOfOAuth2NeedsNoDiscovery(t *testing.T) {
	s := newStandIn(t)
	n := s.network(t, asOAuth2(s))
	raw, err := n.AuthURL(t.Context(), s.attempt)
	u, perr := url.Parse(raw)
	if err != nil || perr != nil {
		t.Fatal(err, perr)
	}
	if q := u.Query(); q.Has("nonce") || q.Has("scope") || q.Get("code_challenge_method") != "S256" {
		t.Fatalf("query = %v", q)
	}
	if n.AuthorizationOrigin() != s.URL || s.discoveries.Load() != 0 {
		t.Fatal("an oauth2 network asked for metadata, or does not know its origin")
	}
}

func TestAuthURLRefusesAnAttemptThatIsNotWhole(t *testing.T) {
	s := newStandIn(t)
	for _, a := range []network.Attempt{{}, {State: s.attempt.State, Nonce: s.attempt.Nonce}} {
		if _, err := s.network(t).AuthURL(t.Context(), a); err == nil {
			t.Error("made an address without all three secrets")
		}
	}
}

// clock is a clock that tests advance.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load()))
}
func (c *clock) advance(d time.Duration)                         { c.ahead.Add(int64(d)) }
func (c *clock) set(_ *netsettings.Settings, o *network.Options) { o.Now = c.now }

func TestDiscoveryFailsBrieflyAndRecovers(t *testing.T) {
	s := newStandIn(t)
	up := s.discover
	s.discover = answerStatus(http.StatusServiceUnavailable)
	var c clock
	n := s.network(t, c.set)
	for range 3 { // the second and third are answered from memory
		var tr *network.Error
		if err := n.Discover(t.Context()); !errors.As(err, &tr) || tr.Stage != network.StageDiscovery ||
			tr.Class != network.ClassStatus {
			t.Fatalf("err = %v", err)
		}
	}
	if got := s.discoveries.Load(); got != 1 || n.AuthorizationOrigin() != "" {
		t.Fatalf("asked a provider that is down %d times at once; origin %q", got, n.AuthorizationOrigin())
	}
	s.discover = up
	c.advance(5 * time.Second) // no failure is remembered for more than a few seconds
	if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
		t.Fatal(err)
	}
	if err := n.Discover(t.Context()); err != nil || s.discoveries.Load() != 2 ||
		n.AuthorizationOrigin() != s.URL {
		t.Fatalf("after it came back: %v, asked %d times", err, s.discoveries.Load())
	}
}

func TestDiscoveryIsRequestedOnceForAll(t *testing.T) {
	s := newStandIn(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	up := s.discover
	s.discover = func(w http.ResponseWriter, r *http.Request) {
		close(asked) // a second request would panic here
		<-answer
		up(w, r)
	}
	n := s.network(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := n.AuthURL(t.Context(), s.attempt); err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	close(answer)
	all.Wait()
	if got := s.discoveries.Load(); got != 1 {
		t.Fatalf("asked %d times", got)
	}
}

func TestDiscoveryOfACallerThatGaveUpIsTakenOverByTheNext(t *testing.T) {
	s := newStandIn(t)
	up := s.discover
	ctx, cancel := context.WithCancel(t.Context())
	var first atomic.Bool
	s.discover = func(w http.ResponseWriter, r *http.Request) {
		if first.CompareAndSwap(false, true) {
			cancel()
			<-r.Context().Done()
			return
		}
		up(w, r)
	}
	n := s.network(t)
	var tr *network.Error
	if err := n.Discover(ctx); !errors.As(err, &tr) || tr.Class != network.ClassCanceled {
		t.Fatalf("err = %v, want canceled", err)
	}
	if err := n.Discover(t.Context()); err != nil { // not answered from memory
		t.Fatal(err)
	}
}

func TestDiscoveryReleasesACanceledCaller(t *testing.T) {
	s := newStandIn(t)
	asked := make(chan struct{})
	s.discover = func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}
	n := s.network(t)
	slow, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Discover(slow) }()
	<-asked
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := n.Discover(gone); err == nil {
		t.Error("a caller that had left got an answer")
	}
	select {
	case err := <-done:
		t.Errorf("a caller that had left waited for the one who asks, which ended with %v", err)
	default:
	}
	stop()
	if err := <-done; err == nil {
		t.Error("a discovery without an answer succeeded")
	}
}
