package signin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	sessionfailure "verifyd/sessions/failure"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
	"verifyd/sessions/tracing"
)

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

// void spends the attempt of a return to a browser that did not begin it. Somebody may have sent its user to
// the identity network's page: the address that this browser now shows would sign the person who began in as
// them.
func (h *verdicts) void(ctx context.Context, state string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.completeWithin)
	defer cancel()
	err := h.sessions.Redeem(ctx, "", flow.Hash(state))
	if err != nil && !errors.Is(err, sessions.ErrRedeemed) {
		h.log.Warn().Err(err).Msg("an attempt whose return came to another browser could not be spent")
	}
}

// toEnd sends the browser to the clean page, with a notice where the end is in doubt.
func (h *Handler) toEnd(w http.ResponseWriter, vis visitor, s sessions.Status, token sessions.Token,
	note notice, network string) {
	if note != "" {
		h.toNotice(w, vis, token, note, network)
		return
	}
	h.stepped(s.Session, timeline.Event{Name: timeline.EventFinished, Network: network})
	h.toPage(w, vis, token)
}

// Classes of failure that only this package sees, in addition to those of package network.
const (
	classMixUp = "mix_up" // the return arrived at another network's address
	classGone  = "gone"   // the network is no longer configured
	classStore = "store"  // the store could not say whether the identity is bound to another user
)

// stageRules is the stage after those of package network.
const stageRules = "rules"

// failure is an attempt that ended without anybody's verdict: the stage, class and cause for logs, the notice
// for the user.
type failure struct {
	stage, class string
	note         notice
	// what the network says of it, with what an operator can do; empty if the class says all
	cause string
}

func (t *failure) Error() string { return t.stage + ": " + t.class }

// failureOf returns the failure of an error.
func failureOf(err error) *failure {
	var own *failure
	var theirs *network.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &theirs):
		return &failure{theirs.Stage, theirs.Class, noteFor(theirs.Class), theirs.Error()}
	default:
		return &failure{stage: "unknown", class: "unknown", note: noteUnfinished}
	}
}

// noteFor distinguishes what waiting cures from what the user should report to somebody.
func noteFor(class string) notice {
	switch {
	case network.Passing(class):
		return noteUnreachable
	case class == network.ClassEarly, class == network.ClassExpired:
		// the provider's clock or ours is wrong: a token that was just made is of the past or of the future
		return noteClock
	default:
		return noteUnfinished
	}
}

// stepEvent is the log line of a step of a sign-in.
type stepEvent struct{ *zerolog.Event }

// step begins the log line of a step of a sign-in. Of the identity, the code, the state and the token it
// holds nothing.
func (j *stepLog) step(s sessions.Status, network string) stepEvent {
	e := j.log.Info().Str("sid", string(s.ID)). //nolint:zerologlint // the caller sends it
							Str("account", s.Account)
	if network != "" {
		e = e.Str("network", network)
	}
	return stepEvent{e}
}

// outcome adds the verdict, and what is stored instead of it: another state, or a doubt.
func (l stepEvent) outcome(o sessions.Outcome, standing sessions.State, doubt notice) stepEvent {
	e := l.Str("outcome", string(o.State))
	if o.Reason != sessions.NoReason {
		e = e.Str("reason", string(o.Reason))
	}
	if o.Rule != sessionfailure.NoRule {
		e = e.Str("rule", string(o.Rule))
	}
	switch {
	case doubt != "":
		e = e.Str("standing", string(doubt))
	case standing != o.State:
		e = e.Str("standing", string(standing))
	}
	return stepEvent{e}
}

func (l stepEvent) failure(t *failure) stepEvent {
	e := l.Str("outcome", "trouble").Str("stage", t.stage).Str("class", t.class)
	if t.cause != "" {
		e = e.Str("cause", t.cause)
	}
	return stepEvent{e}
}

func (l stepEvent) took(d time.Duration) stepEvent { return stepEvent{l.Dur("took", d)} }
