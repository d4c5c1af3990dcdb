package manage

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/secrets"
	"verifyd/edge/limit"
	"verifyd/natsconf/natstest"
)

func statusText(status int) string { return fmt.Sprint(status) }

// filled is the path of an operation with its parameters filled in.
func filled(path string) string {
	return strings.NewReplacer("{account}", account.IDOf("Nobody"), "{key}", "key_aaaaaaaaaaaaaaaa",
		"{invite}", "inv_aaaaaaaaaaaaaaaa").Replace(path)
}

// Each operation is refused to a token that has every scope but its own, and is allowed to a token with only
// that one; write opens what read opens.
func TestScopes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, o := range r.handler.operations() {
		var others []grant.Scope
		write := grant.Scope(strings.Replace(string(o.scope), ":read", ":write", 1))
		for _, s := range grant.Scopes() {
			if s != o.scope && s != write {
				others = append(others, s)
			}
		}
		a := r.ask(r.token(others...), o.method, filled(o.path), "")
		if a.status != http.StatusForbidden || a.code() != "scope_missing" ||
			!strings.Contains(a.doc["detail"].(string), string(o.scope)) {
			t.Errorf("%s %s without %s: %s", o.method, o.path, o.scope, a)
		}
		own := []grant.Scope{o.scope}
		if write != o.scope && strings.Contains(fmt.Sprint(grant.Scopes()), string(write)) {
			own = append(own, write)
		}
		for _, s := range own {
			if a := r.ask(r.token(s), o.method, filled(o.path), ""); a.status == http.StatusForbidden ||
				a.status == http.StatusUnauthorized || a.status >= 500 {
				t.Errorf("%s %s with %s: %s", o.method, o.path, s, a)
			}
		}
	}
}

// A malformed, foreign, revoked or expired token is refused with the reason; a revoked one is refused at the
// next request.
func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token, g, err := r.accounts.CreateToken(t.Context(), console, "deploy",
		[]grant.Scope{grant.AccountsRead}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if a := r.ask(token, "GET", pathAccounts, ""); a.status != http.StatusOK {
		t.Fatalf("a good token: %s", a)
	}
	other := token[:len(token)-1] + "!"
	for want, with := range map[string]string{
		"is not an operator token":  other,
		"is not known here":         secrets.NewOperatorToken(),
		"not an operator token of":  secrets.NewKey(false),
		"character of it is missin": strings.ToUpper(token),
	} {
		if a := r.ask(with, "GET", pathAccounts, ""); a.code() != "token_invalid" ||
			!strings.Contains(string(a.body), want) || a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %s", want, a)
		}
	}
	if a := r.ask("", "GET", pathAccounts, ""); a.code() != "token_missing" {
		t.Errorf("no token: %s", a)
	}
	if a := r.ask("", "GET", pathAccounts, "", "Authorization", "Basic YTpi"); a.code() != "token_missing" {
		t.Errorf("another scheme: %s", a)
	}
	r.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if a := r.ask(token, "GET", pathAccounts, ""); a.code() != "token_invalid" ||
		!strings.Contains(string(a.body), "expired on ") {
		t.Errorf("expired: %s", a)
	}
	r.now = time.Now
	if err := r.accounts.RevokeToken(t.Context(), console, g.Token); err != nil {
		t.Fatal(err)
	}
	if a := r.ask(token, "GET", pathAccounts, ""); a.code() != "token_invalid" ||
		!strings.Contains(string(a.body), "was revoked") {
		t.Errorf("revoked: %s", a)
	}
	if strings.Contains(r.log.String(), token) {
		t.Error("the log has the token")
	}
	if !strings.Contains(r.log.String(), g.Token) {
		t.Error("the log does not say whose requests they were")
	}
}

// A token that ends during a request changes nothing: the store checks it again.
func TestTokenThatEndsDuringARequestChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	_, g, err := r.accounts.CreateToken(t.Context(), console, "deploy", []grant.Scope{grant.AccountsWrite},
		time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.accounts.CreateAccount(t.Context(), console, "Harbor")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.accounts.RevokeToken(t.Context(), console, g.Token); err != nil {
		t.Fatal(err)
	}
	calls := accountCalls{r.handler}
	c := call{by: tokenActor(g), http: requestOf(a.ID)}
	if _, p := calls.deleteAccount(c); p == nil || p.Code != "token_invalid" {
		t.Errorf("delete: %+v", p)
	}
	c.http = requestOf("")
	c.http.Header.Set("Content-Type", "application/json")
	if _, p := calls.createAccount(c); p == nil || p.Code != "token_invalid" {
		t.Errorf("create: %+v", p)
	}
	if now, err := r.accounts.Account(t.Context(), a.ID); err != nil || !now.DeleteAskedAt.IsZero() {
		t.Errorf("%+v, %v", now, err)
	}
}

// Guesses from one address are bounded, and do not block a valid token.
func TestGuessesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		failures, err := limit.NewFailures(account.Rate{Count: 2, Per: time.Minute, Burst: 2})
		if err != nil {
			t.Fatal(err)
		}
		c.FailedKeys = failures
	})
	good, last := r.token(grant.AccountsRead), reply{}
	for range 3 {
		last = r.ask(secrets.NewOperatorToken(), "GET", pathAccounts, "")
	}
	if last.code() != "too_many_failed_keys" || last.header.Get("Retry-After") == "" {
		t.Errorf("the third guess: %s", last)
	}
	if a := r.ask(good, "GET", pathAccounts, ""); a.status != http.StatusOK {
		t.Errorf("a good token behind it: %s", a)
	}
}

// holding counts concurrent requests, and blocks them.
type holding struct {
	began, goOn chan struct{}
	on          atomic.Bool
}

func (h *holding) Fail(netip.Addr, time.Time) limit.Decision {
	if h.on.Load() {
		h.began <- struct{}{}
		<-h.goOn
	}
	return limit.Decision{Allowed: true}
}

// One address has at most a few concurrent requests.
func TestRequestsOfAnAddressAreBounded(t *testing.T) {
	t.Parallel()
	h := &holding{began: make(chan struct{}), goOn: make(chan struct{})}
	r := newRig(t, func(c *Config) { c.FailedKeys = h })
	h.on.Store(true)
	answers := make(chan reply, maxOfAddress)
	for range maxOfAddress {
		go func() { answers <- r.ask("", "GET", pathAccounts, "") }()
		select {
		case <-h.began:
		case <-time.After(natstest.TestTimeout):
			t.Fatal("the request did not arrive")
		}
	}
	if a := r.ask("", "GET", pathAccounts, ""); a.code() != "unavailable" ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", a)
	}
	h.on.Store(false)
	close(h.goOn)
	for range maxOfAddress {
		if a := <-answers; a.code() != "token_missing" {
			t.Errorf("one of those: %s", a)
		}
	}
}
