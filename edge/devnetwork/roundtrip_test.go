package devnetwork_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func TestSignInRoundTrip(t *testing.T) {
	p := start(t, devnetwork.Config{})
	n := join(t, p)
	for _, subject := range []string{
		"sailor_42", "118203948571029384", "⛵ шхуна \"x\" & <b>", "שלום", strings.Repeat("x", 1024),
	} {
		a := network.NewAttempt()
		r, err := network.ParseReturn(press(t, p, n, a, subject, "sign-in"))
		if err != nil || !a.StateIs(r.State) || r.Issuer != p.Issuer() {
			t.Fatalf("return: %v, issuer %q", err, r.Issuer)
		}
		got, err := n.Redeem(t.Context(), a, r)
		if err != nil || got.Subject != subject || !strings.HasPrefix(subject, got.DisplayName) {
			t.Fatalf("identity = %+v, %v; want %q", got, err, subject)
		}
		wantFailure(t, n, a, r, network.StageToken, network.ClassRefused) // the code worked once
	}
}

// An ID token says when its user signed in if the request had a max_age: just now, unless the provider is one
// that has nobody sign in again.
func TestMaxAge(t *testing.T) {
	for _, ago := range []time.Duration{0, time.Hour} {
		p := start(t, devnetwork.Config{SignedInAgo: ago})
		n := join(t, p)
		for maxAge, least := range map[time.Duration]time.Duration{0: 0, time.Minute: ago} {
			a := network.NewAttempt()
			a.MaxAge = maxAge
			r, err := network.ParseReturn(press(t, p, n, a, "u1", "sign-in"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := n.Redeem(t.Context(), a, r)
			if err != nil || got.SignedInAgo < least || maxAge == 0 && got.SignedInAgo != 0 {
				t.Errorf("max age %v, signed in %v ago: %v, %v", maxAge, ago, got.SignedInAgo, err)
			}
		}
	}
}

func TestSignInByBodyAndThroughUserInfo(t *testing.T) {
	p := start(t, devnetwork.Config{ClientSecret: "per%cent+plus:colon"})
	for _, style := range []string{netsettings.AuthHeader, netsettings.AuthParams} {
		s := p.Settings()
		s.AuthStyle, s.UserInfoEndpoint = style, p.Issuer()+"/userinfo"
		n, err := network.New(s, network.Options{BaseURL: "http://localhost:8080"})
		if err != nil {
			t.Fatal(err)
		}
		p.AllowRedirect(n.RedirectURI())
		a := network.NewAttempt()
		r, err := network.ParseReturn(press(t, p, n, a, "u1", "sign-in"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := n.Redeem(t.Context(), a, r); err != nil || got.Subject != "u1" {
			t.Fatalf("style %s: %+v, %v", style, got, err)
		}
	}
}

func TestOtherButtons(t *testing.T) {
	p := start(t, devnetwork.Config{})
	n := join(t, p)
	back := func(action string) (network.Attempt, network.Return) {
		a := network.NewAttempt()
		r, err := network.ParseReturn(press(t, p, n, a, "u1", action))
		if err != nil {
			t.Fatal(err)
		}
		return a, r
	}
	a, r := back("decline")
	if _, err := n.Redeem(t.Context(), a, r); !errors.Is(err, network.ErrDeclined) {
		t.Errorf("decline: err = %v", err)
	}
	a, r = back("error")
	wantFailure(t, n, a, r, network.StageAuthorization, network.ClassRefused)
	a, r = back("token-error")
	wantFailure(t, n, a, r, network.StageToken, network.ClassStatus)
}

func TestReturnOfAnotherAttempt(t *testing.T) {
	p := start(t, devnetwork.Config{})
	n := join(t, p)
	mine, theirs := network.NewAttempt(), network.NewAttempt()
	r, err := network.ParseReturn(press(t, p, n, theirs, "them", "sign-in"))
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, n, mine, r, network.StageAuthorization, network.ClassState)
	// A code injected into another attempt fails at the provider: its verifier is the other one's.
	r.State = mine.State
	wantFailure(t, n, mine, r, network.StageToken, network.ClassRefused)
}

func TestServeAgainIsTheSameProvider(t *testing.T) {
	p, err := devnetwork.New(devnetwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Issuer() != "" {
		t.Error("an issuer before Listen")
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	issuer := p.Issuer()
	n := join(t, p)
	a := network.NewAttempt()
	stop := serve(t, p)
	r, err := network.ParseReturn(press(t, p, n, a, "u1", "sign-in"))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if resp, err := browser.Get(issuer + "/jwks"); err == nil { //nolint:noctx // must fail at once
		_ = resp.Body.Close()
		t.Error("answers after Serve has returned")
	}
	// Listen first: Redeem must not come before the port is open.
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	defer serve(t, p)()
	if got, err := n.Redeem(t.Context(), a, r); err != nil || got.Subject != "u1" || p.Issuer() != issuer {
		t.Fatalf("after a restart: %+v, %v, issuer %s then %s", got, err, issuer, p.Issuer())
	}
}

func TestOnlyLoopback(t *testing.T) {
	for _, listen := range []string{
		"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "127.0.0.1.example.com:0",
	} {
		if p, err := devnetwork.New(devnetwork.Config{Listen: listen}); err == nil ||
			!strings.Contains(err.Error(), "127.0.0.1:0") {
			t.Errorf("listen %q: %v, %v", listen, p, err)
		}
	}
	for _, listen := range []string{"", "127.0.0.1:0", "127.0.0.2:0", "localhost:0"} {
		p, err := devnetwork.New(devnetwork.Config{Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestListenReportsAPortInUse(t *testing.T) {
	first := start(t, devnetwork.Config{})
	second, err := devnetwork.New(devnetwork.Config{Listen: strings.TrimPrefix(first.Issuer(), "http://")})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Serve(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "listen for dev network") {
		t.Fatalf("err = %v", err)
	}
}

func TestGETChangesNothing(t *testing.T) {
	p := start(t, devnetwork.Config{})
	n := join(t, p)
	address, err := n.AuthURL(t.Context(), network.NewAttempt())
	if err != nil {
		t.Fatal(err)
	}
	_, first := get(t, address)
	for range 20 {
		resp, body := get(t, address)
		if resp.StatusCode != http.StatusOK || body != first || len(resp.Cookies()) > 0 {
			t.Fatal("the form differs from one GET to the next")
		}
	}
}

func wantFailure(t *testing.T, n *network.Network, a network.Attempt, r network.Return, stage, class string) {
	t.Helper()
	var tr *network.Error
	if got, err := n.Redeem(t.Context(), a, r); !errors.As(err, &tr) || tr.Stage != stage ||
		tr.Class != class {
		t.Errorf("redeem = %+v, %v; want %s: %s", got, err, stage, class)
	}
}
