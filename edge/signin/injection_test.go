package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"verifyd/sessions"
)

// A stolen code, put into the thief's own attempt: the provider sees that it was made for another challenge
// (RFC 9700 §4.5).
func TestCodeInjection(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	victim, thief := r.browser(), r.browser()
	theirs, victimToken := r.session()
	own, thiefToken := r.session(func(q *sessions.Request) { q.PlatformUserID = "thief" })
	stolen := victim.back(victimToken, "sailor_42", "sign-in")
	state := mustQuery(t, thief.press(thiefToken)).Get("state")
	forged := r.base + "/signin/example/callback?" + url.Values{
		"state": {state}, "code": {mustQuery(t, stolen).Get("code")}, "iss": {r.dev.Issuer()},
	}.Encode()
	thief.Follow(thief.Get(forged)).WantPage(t, http.StatusOK, headingAsk)
	r.want(own.ID, sessions.Pending, sessions.NoReason)
	if log := r.log.String(); !strings.Contains(log, `"class":"refused"`) ||
		!strings.Contains(log, "invalid_grant (the code was used") {
		t.Errorf("the provider did not refuse the code:\n%s", r.log)
	}
	// The victim's own return finds its code used up; nobody was verified, and another try succeeds.
	victim.Follow(victim.Get(stolen)).WantPage(t, http.StatusOK, headingAsk)
	r.want(theirs.ID, sessions.Pending, sessions.NoReason)
	victim.Follow(victim.Get(victim.back(victimToken, "sailor_42", "sign-in"))).
		WantPage(t, http.StatusOK, headingVerified)
}

// The thief's return, opened in the victim's browser, must not sign the victim in as the thief (RFC 9700
// §4.7).
func TestForcedReturn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	victim, thief := r.browser(), r.browser()
	theirs, victimToken := r.session()
	own, thiefToken := r.session(func(q *sessions.Request) { q.PlatformUserID = "thief" })
	victim.press(victimToken) // the victim is in the middle of a sign-in
	forced := thief.back(thiefToken, "thief", "sign-in")
	victim.Get(forced).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
	r.want(theirs.ID, sessions.Pending, sessions.NoReason)
	r.want(own.ID, sessions.Pending, sessions.NoReason)
}

// A code that is replayed after a successful sign-in, with the state of a later attempt of the same browser.
func TestCodeReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	_, first := r.session()
	used := b.back(first, "sailor_42", "sign-in")
	b.Follow(b.Get(used)).WantPage(t, http.StatusOK, headingVerified)
	second, token := r.session()
	q := mustQuery(t, used)
	q.Set("state", mustQuery(t, b.press(token)).Get("state"))
	b.Follow(b.Get(r.base+"/signin/example/callback?"+q.Encode())).WantPage(t, http.StatusOK, headingAsk)
	r.want(second.ID, sessions.Pending, sessions.NoReason)
}

// No parameter redirects a browser elsewhere (RFC 9700 §4.11).
func TestNoOpenRedirect(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "error")
	for _, name := range []string{
		"redirect_uri", "return_to", "return_url", "next", "url", "continue", "iss", "note",
		"openid.return_to", "session",
	} {
		for _, evil := range []string{
			"https://evil.example/", "//evil.example/", `\\evil.example`, "javascript:alert(1)",
		} {
			more := "&" + url.Values{name: {evil}}.Encode()
			form := url.Values{
				"session": {token.Reveal()}, "action": {"continue"}, "network": {"example"}, name: {evil},
			}
			for where, a := range map[string]answer{
				"page": b.Get(b.page(token) + more), "press": b.Post(r.base+"/signin", form),
				"return": b.Get(back + more),
				"lost":   r.browser().Get(back + more),
			} {
				to := a.Header.Get("Location")
				if to == "" || strings.HasPrefix(to, "/?session=") || where == "press" &&
					strings.HasPrefix(to, r.dev.Issuer()+"/authorize?") {
					continue
				}
				t.Errorf("%s with %s=%s leads to %q", where, name, evil, to)
			}
		}
	}
}
