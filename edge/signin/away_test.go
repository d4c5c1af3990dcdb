package signin_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/sessions"
)

var againForm = regexp.MustCompile(`class="button" href="([^"]*)"`)

func TestJetStreamAway(t *testing.T) {
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	r.away()
	form := func(action string) url.Values {
		return url.Values{"session": {token.Reveal()}, "action": {action}, "network": {"example"}}
	}
	for name, a := range map[string]answer{
		"page":     b.get(b.page(token)),
		"continue": b.post(r.base+"/signin", form("continue")),
		"decline":  b.post(r.base+"/signin", form("decline")),
		"return":   b.get(back),
	} {
		t.Run(name, func(t *testing.T) {
			a.wantPage(t, http.StatusServiceUnavailable, "One moment, please")
			if a.header.Get("Retry-After") != "5" || a.header.Get("Set-Cookie") != "" {
				t.Errorf("headers: %v", a.header)
			}
			way := r.page(token)
			if name == "return" { // the attempt is whole: the same return may go on
				way = back
			}
			if m := againForm.FindStringSubmatch(a.body); m == nil || b.resolve(a.at, html.UnescapeString(m[1])) != way {
				t.Errorf("the way on is %q, want %q", m, way)
			}
		})
	}
}

// Nobody says whether the verdict was stored: the user is told so, and not that it worked.
func TestUncertainEnd(t *testing.T) {
	r := newRig(t, setup{deaf: true})
	r.handler.SetCompleteWithin(50 * time.Millisecond)
	session, token := r.session()
	b := r.browser()
	for name, a := range map[string]answer{
		"return":  b.get(b.back(token, "sailor_42", "sign-in")),
		"decline": b.post(r.base+"/signin", url.Values{"session": {token.Reveal()}, "action": {"decline"}}),
	} {
		t.Run(name, func(t *testing.T) {
			page := b.follow(a)
			page.wantPage(t, http.StatusOK, headingAsk)
			if !strings.Contains(page.body, "could not confirm that your answer was saved") || !strings.Contains(page.body, ">Look again</a>") {
				t.Errorf("no notice:\n%s", page.body)
			}
		})
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// The verdict that nobody confirmed was stored after all: the clean page reads the truth.
func TestUncertainEndThatStands(t *testing.T) {
	r := newRig(t, setup{deaf: true})
	r.handler.SetCompleteWithin(50 * time.Millisecond)
	session, token := r.session()
	b := r.browser()
	end := b.to(b.post(r.base+"/signin", url.Values{"session": {token.Reveal()}, "action": {"decline"}}))
	r.listen()
	outcome := sessions.Outcome{State: sessions.Verified, Network: "example"}
	if c, err := r.store.Complete(t.Context(), session.ID, outcome); err == nil || c.State != sessions.Failed {
		t.Fatalf("the late verdict does not stand: %v, %v", c.State, err)
	}
	b.get(end).wantPage(t, http.StatusOK, headingNotVerified)
}
