package signin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
	"verifyd/sessions/tracing"
)

// A session whose level is proof.Account is signed in for twice: first with a network that proves the
// platform account, then with an identity network, in one browser. If that network is both, one sign-in does.
// One whose level is proof.Code is signed in for once, and then shows a code.

// checkStep lets a return go on if it is the step that its session waits for. If it is not, the page says
// what is, and the attempt stays whole.
func (h *Handler) checkStep(vis *visit, f flow.Flow) *reply {
	s := vis.status.Session
	progress, err := h.sessions.ProgressOf(vis.r.Context(), s)
	if err != nil {
		return h.replyReadError(vis, err)
	}
	n := h.networkOf(f, s)
	if progress.Network != "" || n != nil && !f.Platform && h.comesSecond(s, n, progress, f.Browser) {
		h.step(vis.status, f.Network).Str("outcome", "out_of_order").Msg("a return came for another step")
		return h.toPage(vis)
	}
	return nil
}

// goesOn reports whether something is left to prove after a sign-in with this outcome.
func goesOn(s sessions.Session, f flow.Flow, o sessions.Outcome) bool {
	return o.State == sessions.Pending && f.Platform || o.Verified() && s.Level == proof.Code
}

// goOn stores what was proven, and returns the notice for the user where it cannot be said that it is stored.
// cookie is that of the browser.
func (h *verdicts) goOn(ctx context.Context, s sessions.Session, f flow.Flow, cookie string) notice {
	return h.offer(ctx, s.ID, func(ctx context.Context) error {
		if f.Platform {
			return h.sessions.ProvePlatform(ctx, s.ID, f.Browser, f.Network)
		}
		err := h.sessions.AwaitCode(ctx, s, f.Browser, cookie, f.Network)
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

// refreshConfirm is how often the page with the code looks whether it was given, in seconds: the page goes on
// by itself, without a script.
const refreshConfirm = 10

// replyConfirm shows the code in the browser that signed in, and in any other that it is there.
func (h *Handler) replyConfirm(vis *visit, progress proof.Progress) *reply {
	s, k := vis.status, pageSignedIn
	if progress.Browser == vis.browser() {
		k = pageConfirm
	}
	v := h.view(vis, k)
	v.values["asker"], v.values["Asker"] = h.requester(vis, s.Account)
	a, _ := h.accounts.Requester(s.Account)
	v.addBranding(a)
	v.values["network"] = h.networkName(vis.words, progress.Network)
	v.Test, v.Caution = s.Test, true
	v.Again, v.AgainText = vis.again, "note.again"
	if k == pageConfirm {
		v.Session, v.Facts, v.formAction = vis.token.Reveal(), facts(s.Session), "'self'"
		v.Code = h.sessions.CodeFor(s.ID, vis.id)
		h.addExpiry(&v, s.Session)
		v.refresh = refreshConfirm
	}
	return &reply{page: v}
}

// CodeShown returns the code in two halves, as it is read.
func (v *view) CodeShown() string {
	return v.Code[:proof.CodeLength/2] + " " + v.Code[proof.CodeLength/2:]
}

// CodeSpelled returns the code's characters one by one, for screen readers.
func (v *view) CodeSpelled() string { return strings.Join(strings.Split(v.Code, ""), " ") }

// toNext sends the browser to the page that says what is left to prove, with a notice where it is in doubt
// that this step is stored.
func (h *Handler) toNext(vis *visit, f flow.Flow, note notice) *reply {
	if note != "" {
		return h.toNotice(vis, note, f.Network)
	}
	proven := timeline.EventCode
	if f.Platform {
		proven = timeline.EventPlatform
	}
	h.stepped(vis.status.Session, timeline.Event{Name: proven, Network: f.Network})
	return h.toPage(vis)
}

// completePause is the pause between two offers of a verdict to JetStream.
const completePause = 200 * time.Millisecond

// verdicts stores what sign-ins come to.
type verdicts struct {
	sessions *store.Store
	log      zerolog.Logger

	// for how long a verdict is offered: a person has just signed in, and a server that is gone must not cost
	// them that
	completeWithin time.Duration
}

// offer writes until it is stored, and returns the notice for the user where it cannot be said that it is.
// The verdict is there: that a browser does not wait for the answer takes nothing back, so the end of ctx
// counts for nothing.
func (h *verdicts) offer(ctx context.Context, id sessions.ID, write func(context.Context) error) notice {
	ctx, cancel := wait.For(context.WithoutCancel(ctx), h.completeWithin)
	defer cancel()
	unstored := noteUnsaved
	for {
		err := write(ctx)
		if err == nil {
			return ""
		}
		if errors.Is(err, natsconf.ErrUncertain) {
			unstored = noteUnconfirmed // an offer may be stored, though nobody said so
		}
		if storestate.Sealed(err) {
			h.log.Warn().Err(err).Str("sid", string(id)).Msg("a verdict cannot be stored here any more")
			return unstored
		}
		h.log.Warn().Err(err).Str("sid", string(id)).Msg("a verdict is not stored yet")
		select {
		case <-time.After(completePause):
		case <-ctx.Done():
			return unstored
		}
	}
}

// complete ends the session with a verdict. It returns the state that is stored afterwards, which is
// another's if that came first, and the notice for the user if it is unknown whether any is stored. The clean
// page shows what stands, so to have come second is no failure.
func (h *verdicts) complete(ctx context.Context, s sessions.Session,
	o sessions.Outcome) (standing sessions.State, doubt notice) {
	ctx, done := web.Step(ctx, "complete session", trace.SpanKindProducer, tracing.Network.String(o.Network))
	defer func() { done(string(standing)) }()
	doubt = h.offer(ctx, s.ID, func(ctx context.Context) error {
		c, err := h.sessions.Complete(ctx, s, o)
		switch {
		case err == nil, errors.Is(err, sessions.ErrCompleted):
			standing = c.State
			return nil
		case errors.Is(err, sessions.ErrExpired), errors.Is(err, sessions.ErrNotFound):
			standing = sessions.Expired
			return nil
		}
		return err
	})
	return standing, doubt
}
