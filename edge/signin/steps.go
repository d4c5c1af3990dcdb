package signin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/timeline"
)

// A session whose level is proof.Account is signed in for twice: first with a network that proves the
// platform account, then with an identity network, in one browser. If that network is both, one sign-in does.
// One whose level is proof.Code is signed in for once, and then shows a code.

// isNext reports whether a return is the step that its session waits for. If it is not, the page says what
// is, and the attempt stays whole.
func (h *Handler) isNext(w http.ResponseWriter, r *http.Request, vis visitor, f flow.Flow, s sessions.Status,
	token sessions.Token) bool {
	progress, err := h.sessions.AskProgressOf(r.Context(), s.Session)()
	if err != nil {
		h.drawReadError(w, r, vis, err, "?"+r.URL.RawQuery) // this very return
		return false
	}
	n := h.networkOf(f, s.Session)
	if progress.Network != "" || n != nil && !f.Platform && h.comesSecond(s.Session, n, progress, f.Browser) {
		h.step(s, f.Network).Str("outcome", "out_of_order").Msg("a return came for another step")
		h.toPage(w, vis, token)
		return false
	}
	return true
}

// goesOn reports whether something is left to prove after a sign-in with this outcome.
func goesOn(s sessions.Session, f flow.Flow, o sessions.Outcome) bool {
	return o.State == sessions.Pending && f.Platform || o.Verified() && s.Level == proof.Code
}

// goOn stores what was proven, and returns the notice for the user where it cannot be said that it is stored.
func (h *verdicts) goOn(ctx context.Context, s sessions.Session, f flow.Flow, vis visitor) notice {
	return h.offer(ctx, s.ID, func(ctx context.Context) error {
		if f.Platform {
			return h.sessions.ProvePlatform(ctx, s.ID, f.Browser, f.Network)
		}
		err := h.sessions.AwaitCode(ctx, s, f.Browser, vis.id, f.Network)
		if errors.Is(err, proof.ErrSignedIn) {
			return nil // the page says that the code is elsewhere
		}
		return err
	})
}

// addProgress says on the page of a session which sign-ins follow, and which is done.
func (p *pages) addProgress(v *view, s sessions.Session, progress proof.Progress, browser string) {
	if v.Kind != pageAsk.name || s.Level != proof.Account {
		return
	}
	prover := p.prover(s.Platform, s.Test)
	networks := p.networksOf(s.Test)
	switch {
	case prover == nil: // since the session was started
	case progress.PlatformIn(browser):
		v.Note, v.Stop = "note.proven", false
		v.values["platform"] = p.networkName(v.words, progress.Platform)
	case len(networks) == 1 && networks[0].Proves(s.Platform):
		v.Lead = "ask.lead.own"
	default:
		v.values["platform"] = prover.Name()
		v.formAction = p.formAction(append([]*network.Network{prover}, networks...))
		v.Lead = "ask.lead.both.many"
		if len(networks) == 1 {
			v.Lead = "ask.lead.both"
		}
		for i := range v.Buttons {
			v.Buttons[i].Second = !networks[i].Proves(s.Platform)
		}
	}
}

// drawConfirm shows the code in the browser that signed in, and in any other that it is there.
func (h *Handler) drawConfirm(w http.ResponseWriter, vis visitor, s sessions.Status, token sessions.Token,
	progress proof.Progress) {
	k := pageSignedIn
	if progress.Browser == vis.browser(s.ID) {
		k = pageConfirm
	}
	v := h.view(vis, k)
	v.values["asker"], v.values["Asker"] = h.requester(vis, s.Account)
	a, _ := h.accounts.Requester(s.Account)
	v.addBranding(a)
	v.values["network"] = h.networkName(vis.words, progress.Network)
	v.Test, v.Caution = s.Test, true
	v.Again, v.AgainText = h.pageURL(token, vis.chosen), "note.again"
	if k == pageConfirm {
		v.Session, v.Facts, v.formAction = token.Reveal(), facts(s.Session), "'self'"
		v.Code = h.sessions.CodeFor(s.ID, vis.id)
		h.addExpiry(&v, s.Session)
	}
	h.draw(w, v)
}

// CodeShown returns the code in two halves, as it is read.
func (v *view) CodeShown() string {
	return v.Code[:proof.CodeLength/2] + " " + v.Code[proof.CodeLength/2:]
}

// CodeSpelled returns the code's characters one by one, for screen readers.
func (v *view) CodeSpelled() string { return strings.Join(strings.Split(v.Code, ""), " ") }

// toNext sends the browser to the page that says what is left to prove, with a notice where it is in doubt
// that this step is stored.
func (h *Handler) toNext(w http.ResponseWriter, vis visitor, s sessions.Status, token sessions.Token,
	f flow.Flow, note notice) {
	if note != "" {
		h.toNotice(w, vis, token, note, f.Network)
		return
	}
	proven := timeline.EventCode
	if f.Platform {
		proven = timeline.EventPlatform
	}
	h.stepped(s.Session, timeline.Event{Name: proven, Network: f.Network})
	h.toPage(w, vis, token)
}
