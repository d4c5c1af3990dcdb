package signin_test

import (
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
)

const (
	headingConfirm  = "One more step"
	headingSignedIn = "The code is in another browser"
)

func asking(level proof.Level) func(*sessions.Request) {
	return func(q *sessions.Request) { q.Level = level }
}

var codeForm = regexp.MustCompile(`<kbd dir="ltr" role="img" aria-label="((?:[0-9A-Z] ){5}[0-9A-Z])">` +
	`([0-9A-Z]{3} [0-9A-Z]{3})</kbd>`)

// codeOn returns the code that a page shows.
func codeOn(t *testing.T, a answer) string {
	t.Helper()
	if a.Status != http.StatusOK {
		a.WantPage(t, http.StatusOK, headingConfirm)
	}
	if got := a.Header.Get("Refresh"); got != "10" {
		t.Errorf("the page with the code looks again after %q seconds", got)
	}
	m := codeForm.FindStringSubmatch(a.Body)
	if m == nil {
		t.Fatalf("no code on\n%s", a.Body)
	}
	code, ok := proof.ParseCode(m[2])
	if spelled, _ := proof.ParseCode(m[1]); !ok || spelled != code {
		t.Errorf("it shows %q and spells %q", m[2], m[1])
	}
	return code
}

// chooses presses Continue for one of the networks, on a page that was opened before.
func (b *browser) chooses(token sessions.Token, network string) answer {
	b.t.Helper()
	return b.Post(b.r.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {network},
	})
}

// signsIn presses Continue for a network and signs in where that leads.
func (b *browser) signsIn(token sessions.Token, network, subject string) answer {
	b.t.Helper()
	b.Get(b.page(token))
	return b.Follow(b.Get(b.signIn(b.To(b.chooses(token, network)), subject, "sign-in")))
}

// With a code the session stays pending after the sign-in; its page shows the code again to the browser that
// signed in, and to no other, and the code from the session's user completes it.
func TestCode(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{counted: true})
	s, token := r.session(asking(proof.Code))
	b := r.browser()
	if a := b.Get(b.page(token)); !strings.Contains(a.Body, "After the sign-in you get a code") {
		t.Errorf("the page says nothing of a code:\n%s", a.Body)
	}
	code := codeOn(t, b.signsIn(token, "example", "somebody"))
	r.want(s.ID, sessions.Pending, sessions.NoReason)
	if again := codeOn(t, b.Get(b.page(token)+"&lang=ar")); again != code {
		t.Errorf("it shows %s and then %s", code, again)
	}
	b.continues(token)
	other := r.browser()
	other.Get(other.page(token)).WantPage(t, http.StatusConflict, headingSignedIn)
	for _, action := range []string{"continue", "decline"} { // only the code's browser may take it back
		a := other.Follow(other.act(token, action))
		a.WantPage(t, http.StatusConflict, headingSignedIn)
		if strings.Contains(a.Body, code[:3]+" "+code[3:]) {
			t.Error("another browser is shown the code")
		}
	}
	r.want(s.ID, sessions.Pending, sessions.NoReason)
	if strings.Contains(r.log.String(), code) {
		t.Error("the code is in the log")
	}
	if c, err := r.store.Confirm(t.Context(), s, s.PlatformUserID, code); err != nil || !c.Verified() {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, each := range []*browser{b, other} {
		each.Get(each.page(token)).WantPage(t, http.StatusOK, headingVerified)
	}
	if n := r.counts(); n[stats.CountReturned] != 1 || n[stats.CountCode] != 1 ||
		n[stats.CountFinished] != 0 || n[stats.CountVerified] != 1 {
		t.Errorf("counts %v", n)
	}
}

// A user who has signed in may still decline, and wrong codes end the session with a page of its own.
func TestCodeDeclinedOrWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	s, token := r.session(asking(proof.Code))
	b := r.browser()
	codeOn(t, b.signsIn(token, "example", "somebody"))
	b.Follow(b.act(token, "decline")).WantPage(t, http.StatusOK, "You were not verified")
	r.want(s.ID, sessions.Failed, sessions.Declined)

	s, token = r.session(asking(proof.Code))
	codeOn(t, b.signsIn(token, "example", "somebody"))
	for n := range proof.MaxTries {
		_, err := r.store.Confirm(t.Context(), s, s.PlatformUserID, strings.Repeat("0", n)+"ZZZZZZ"[n:])
		if wrong, ok := errors.AsType[*store.WrongCodeError](err); !ok || wrong.Left != proof.MaxTries-1-n {
			t.Errorf("try %d: %v", n, err)
		}
	}
	a := b.Get(b.page(token))
	a.WantPage(t, http.StatusOK, "You were not verified")
	if !strings.Contains(a.Body, "Too many wrong codes") {
		t.Errorf("the page does not say why:\n%s", a.Body)
	}
	r.want(s.ID, sessions.Failed, sessions.Unconfirmed)
}

// An identity that the rules refuse gets no code.
func TestCodeOfARefusedIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{subjectMatch: true})
	s, token := r.session(asking(proof.Code))
	b := r.browser()
	b.signsIn(token, "example", "somebody else").WantPage(t, http.StatusOK, "You were not verified")
	r.want(s.ID, sessions.Failed, sessions.Refused)
}

// The platform account comes first, then the identity, in one browser.
func TestAccount(t *testing.T) {
	t.Parallel()
	for name, only := range map[string]bool{"platform alone": true, "platform beside others": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{platform: &only, counted: true})
			s, token := r.session(asking(proof.Account))
			b := r.browser()
			a := b.Get(b.page(token))
			const buttons = "Continue with <bdi>Platform</bdi>, then <bdi>Example Network</bdi>"
			if text := html.UnescapeString(a.Body); !strings.Contains(text, "sign in twice, in this") ||
				!strings.Contains(text, buttons) {
				t.Errorf("the page does not say what is to come:\n%s", text)
			}
			a = b.signsIn(token, "example", s.PlatformUserID)
			a.WantPage(t, http.StatusOK, headingAsk)
			const done = `note good" role="status"><p>Your account on <bdi>Platform</bdi> is confirmed. One sign-in is left`
			if !strings.Contains(a.Body, done) {
				t.Errorf("the page does not say what is done:\n%s", a.Body)
			}
			if v, err := r.store.Read(t.Context(), s.ID); err != nil || v.State != sessions.Pending ||
				v.Progress.Step() != proof.StepIdentity || v.Reached != "" {
				t.Errorf("%+v, %v", v, err)
			}
			b.signsIn(token, "example", "their identity").WantPage(t, http.StatusOK, headingVerified)
			v, err := r.store.Read(t.Context(), s.ID)
			if err != nil || v.State != sessions.Verified || v.Reached != proof.Account ||
				v.Network != "example" {
				t.Errorf("%+v, %v", v.Outcome, err)
			}
			if n := r.counts(); n[stats.CountPlatform] != 1 || n[stats.CountFinished] != 1 ||
				n[stats.CountVerified] != 1 {
				t.Errorf("counts %v", n)
			}
		})
	}
}

// If the identity network is the platform's own, one sign-in is enough, and it must be the session's account.
func TestAccountAtOnce(t *testing.T) {
	t.Parallel()
	only := false
	r := newRig(t, setup{platform: &only})
	s, token := r.session(asking(proof.Account))
	b := r.browser()
	b.signsIn(token, "platform", s.PlatformUserID).WantPage(t, http.StatusOK, headingVerified)
	if v, err := r.store.Read(t.Context(), s.ID); err != nil || v.Reached != proof.Account ||
		v.Network != "platform" {
		t.Errorf("%+v, %v", v.Outcome, err)
	}
	s, token = r.session(asking(proof.Account))
	b.signsIn(token, "platform", "sailor_43").WantPage(t, http.StatusOK, "You were not verified")
	r.want(s.ID, sessions.Failed, sessions.Refused)
}

// Another platform account than the session's fails it, whichever sign-in it is that shows it.
func TestAnotherPlatformAccount(t *testing.T) {
	t.Parallel()
	only := true
	r := newRig(t, setup{platform: &only})
	s, token := r.session(asking(proof.Account))
	b := r.browser()
	b.signsIn(token, "example", "sailor_43").WantPage(t, http.StatusOK, "You were not verified")
	v, err := r.store.Read(t.Context(), s.ID)
	if err != nil || v.Reason != sessions.Refused || v.Rule != failure.RulePlatformAccount ||
		v.Reached != "" {
		t.Errorf("%+v, %v", v.Outcome, err)
	}
	// what each network proves is described for the integrators' interface
	if !r.handler.Proves("Discord", false) || r.handler.Proves("twitch", false) ||
		!r.handler.Proves("twitch", true) {
		t.Error("it proves other platforms")
	}
}

// A test session's network proves any platform's accounts, as it accepts any identity.
func TestAccountOfATestSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	s, token := r.session(asking(proof.Account), func(q *sessions.Request) { q.Test = true })
	b := r.browser()
	b.signsIn(token, "dev", s.PlatformUserID).WantPage(t, http.StatusOK, headingVerified)
}

// Forwarding is the attack that levels are for: an attacker starts a session for their own account and makes
// somebody else, who can be verified, open the link.
//
// With only a link it works, and the page has warned.
func TestForwardedLink(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	s, token := r.session()
	victim := r.browser()
	if a := victim.Get(victim.page(token)); !strings.Contains(a.Body, "signing in would verify") {
		t.Errorf("no warning:\n%s", a.Body)
	}
	victim.signsIn(token, "example", "victim").WantPage(t, http.StatusOK, headingVerified)
	r.want(s.ID, sessions.Verified, sessions.NoReason)
}

// With a code it fails in every order: only the victim's page has the code, and from the victim's account it
// is worthless.
func TestForwardedCode(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(t *testing.T, r *rig, s sessions.Session, token sessions.Token,
		attacker, victim *browser){
		"the attacker looks first": func(t *testing.T, _ *rig, _ sessions.Session, token sessions.Token,
			attacker, victim *browser) {
			attacker.Get(attacker.page(token))
			codeOn(t, victim.signsIn(token, "example", "victim"))
			attacker.Get(attacker.page(token)).WantPage(t, http.StatusConflict, headingSignedIn)
		},
		"the attacker looks at the network's page, and the victim goes on": func(t *testing.T, r *rig,
			_ sessions.Session, token sessions.Token, attacker, victim *browser) {
			back := victim.signIn(attacker.press(token), "victim", "sign-in")
			victim.Get(back).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
			attacker.Follow(attacker.Get(back)).WantPage(t, http.StatusOK, headingAsk)
			r.clock.advance(3 * time.Minute)
			codeOn(t, victim.signsIn(token, "example", "victim"))
			attacker.Follow(attacker.Get(back)).WantPage(t, http.StatusConflict, headingSignedIn)
		},
		"the victim's return is replayed": func(t *testing.T, _ *rig, _ sessions.Session,
			token sessions.Token, attacker, victim *browser) {
			attacker.Get(attacker.page(token))
			back := victim.back(token, "victim", "sign-in")
			attacker.Get(back).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
			victim.Follow(victim.Get(back)).WantPage(t, http.StatusOK, headingAsk)
			codeOn(t, victim.signsIn(token, "example", "victim"))
			attacker.Get(back).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
		},
		"the victim gives the code from their own account": func(t *testing.T, r *rig, s sessions.Session,
			token sessions.Token, _, victim *browser) {
			code := codeOn(t, victim.signsIn(token, "example", "victim"))
			_, err := r.store.Confirm(t.Context(), s, "the victim's account", code)
			if _, ok := errors.AsType[*store.WrongCodeError](err); !ok {
				t.Errorf("it is taken: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			s, token := r.session(asking(proof.Code))
			attack(t, r, s, token, r.browser(), r.browser())
			r.want(s.ID, sessions.Pending, sessions.NoReason)
			for n := range proof.MaxTries { // and then guesses, from the account that the session is for
				_, _ = r.store.Confirm(t.Context(), s, s.PlatformUserID, strings.Repeat("0", n)+"ZZZZZZ"[n:])
			}
			if v, err := r.store.Read(t.Context(), s.ID); err != nil || v.State == sessions.Verified {
				t.Errorf("%+v, %v", v.Outcome, err)
			}
		})
	}
}

// With the platform account it fails in every order: what one browser has proven is worthless in another.
func TestForwardedAccount(t *testing.T) {
	t.Parallel()
	only := true
	for name, attack := range map[string]func(t *testing.T, r *rig, s sessions.Session, token sessions.Token,
		attacker, victim *browser){
		"the attacker proves the account, and the victim goes on": func(t *testing.T, r *rig,
			s sessions.Session, token sessions.Token, attacker, victim *browser) {
			attacker.signsIn(token, "example", s.PlatformUserID).WantPage(t, http.StatusOK, headingAsk)
			r.clock.advance(3 * time.Minute) // so that the attacker's browser blocks no other
			if a := victim.Get(victim.page(token)); !strings.Contains(a.Body, "sign in twice") {
				t.Errorf("the victim's page:\n%s", a.Body)
			}
			victim.signsIn(token, "example", "victim").WantPage(t, http.StatusOK, "You were not verified")
		},
		"the victim begins, the attacker proves the account, the victim returns": func(t *testing.T, r *rig,
			s sessions.Session, token sessions.Token, attacker, victim *browser) {
			back := victim.back(token, "victim", "sign-in")
			r.clock.advance(3 * time.Minute)
			attacker.signsIn(token, "example", s.PlatformUserID).WantPage(t, http.StatusOK, headingAsk)
			victim.Follow(victim.Get(back)).WantPage(t, http.StatusConflict, "Started in another browser")
		},
		"the victim's return of the identity is replayed": func(t *testing.T, r *rig, s sessions.Session,
			token sessions.Token, attacker, victim *browser) {
			attacker.signsIn(token, "example", s.PlatformUserID).WantPage(t, http.StatusOK, headingAsk)
			back := victim.signIn(attacker.To(attacker.chooses(token, "example")), "victim", "sign-in")
			victim.Get(back).WantPage(t, http.StatusBadRequest, "We lost track of your sign-in")
			attacker.Follow(attacker.Get(back)).WantPage(t, http.StatusOK, headingAsk)
			r.want(s.ID, sessions.Pending, sessions.NoReason)
		},
		"a press from before the account was proven": func(t *testing.T, r *rig, s sessions.Session,
			token sessions.Token, attacker, victim *browser) {
			// the attempt that proves the account cannot be returned as one of the identity, nor twice
			back := attacker.back(token, s.PlatformUserID, "sign-in")
			attacker.Follow(attacker.Get(back)).WantPage(t, http.StatusOK, headingAsk)
			attacker.Follow(attacker.Get(back)).WantPage(t, http.StatusOK, headingAsk)
			elsewhere := strings.Replace(back, "/signin/platform/", "/signin/example/", 1)
			attacker.Follow(attacker.Get(elsewhere)).WantPage(t, http.StatusOK, headingAsk)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{platform: &only})
			s, token := r.session(asking(proof.Account))
			attack(t, r, s, token, r.browser(), r.browser())
			if v, err := r.store.Read(t.Context(), s.ID); err != nil || v.State == sessions.Verified {
				t.Errorf("%+v, %v", v.Outcome, err)
			}
		})
	}
}

// An identity verifies as many users as the account allows, whatever their platform, and no more.
func TestOneIdentityForFewUsers(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	verify := func(user, platform, identity string) sessions.Session {
		t.Helper()
		s, token := r.session(func(q *sessions.Request) {
			q.Account, q.PlatformUserID, q.Platform = "acc_few", user, platform
		})
		b.signsIn(token, "example", identity)
		return s
	}
	for _, row := range []struct {
		user, platform, identity string
		state                    sessions.State
		reason                   sessions.Reason
	}{
		{"ann", "discord", "shared", sessions.Verified, sessions.NoReason},
		{"ann", "discord", "shared", sessions.Verified, sessions.NoReason},
		{"ann", "twitch", "shared", sessions.Verified, sessions.NoReason}, // another user
		{"bob", "discord", "shared", sessions.Failed, sessions.Refused},
		{"bob", "discord", "bob's own", sessions.Verified, sessions.NoReason},
	} {
		s := verify(row.user, row.platform, row.identity)
		r.want(s.ID, row.state, row.reason)
		v, err := r.store.Read(t.Context(), s.ID)
		if refused := row.reason == sessions.Refused; err != nil ||
			refused != (v.Rule == failure.RuleOneIdentity) {
			t.Errorf("%+v: %+v, %v", row, v.Outcome, err)
		}
	}
}
