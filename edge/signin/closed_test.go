package signin_test

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/sessions"
)

const headingClosed = "Sign-in is not available right now"

// While an account is disabled nobody signs in for it, in any way: the page says so, and decides nothing.
// Once it is enabled within the session's life, the sign-in continues where it was, including the return from
// the network.
func TestNoSignInForADisabledAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	s, token := r.session()
	done, doneToken := r.session()
	b := r.browser()
	b.Follow(b.Get(b.back(doneToken, "sailor_42", "sign-in"))).WantPage(t, http.StatusOK, "You are verified")
	back := b.back(token, "sailor_42", "sign-in")
	yes := func() bool { return true }
	r.closed.Store(&yes)
	before := r.sequences()
	page := b.Get(b.page(token))
	page.WantPage(t, http.StatusForbidden, headingClosed)
	if strings.Contains(page.Body, "<form") || strings.Contains(page.Body, "sailor_42") {
		t.Error("the page shows too much")
	}
	b.Follow(b.continues(token)).WantPage(t, http.StatusForbidden, headingClosed)
	b.Follow(b.act(token, "decline")).WantPage(t, http.StatusForbidden, headingClosed)
	again := b.Get(back)
	again.WantPage(t, http.StatusForbidden, headingClosed)
	again.Lacks(t, "<nav") // the return's address is for the attempt alone
	if after := r.sequences(); after["KV_sessions"] != before["KV_sessions"] ||
		after["COMPLETIONS"] != before["COMPLETIONS"] {
		t.Errorf("something was written: %v, before %v", after, before)
	}
	b.Get(b.page(doneToken)).WantPage(t, http.StatusOK, "You are verified") // the stored state is shown
	r.want(done.ID, sessions.Verified, sessions.NoReason)
	r.want(s.ID, sessions.Pending, sessions.NoReason)
	r.closed.Store(nil)
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, "You are verified")
	r.want(s.ID, sessions.Verified, sessions.NoReason)
}

// An account that is disabled while the identity network is asked gets no outcome.
func TestAccountDisabledWhileTheNetworkIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	s, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	asked := 0
	later := func() bool { asked++; return asked > 1 } // the return checks once before it spends the attempt
	r.closed.Store(&later)
	b.Follow(b.Get(back)).WantPage(t, http.StatusForbidden, headingClosed)
	r.want(s.ID, sessions.Pending, sessions.NoReason)
	if n := r.outcomes("closed"); n != 1 {
		t.Errorf("%d lines tell of it", n)
	}
}
