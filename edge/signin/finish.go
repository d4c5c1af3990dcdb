package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"

	"verifyd/edge"
	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/edge/rules"
	"verifyd/sessions"
	"verifyd/sessions/tracing"
)

// judgeWithin bounds the way to a verdict: to spend the attempt and to ask the provider. Together with completeWithin it stays
// below the 30 s within which the edge's server sends an answer.
const judgeWithin = 18 * time.Second

// finish answers GET /signin/{network}/callback, the browser's way back from the identity network.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request) {
	began := h.now()
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		q = url.Values{"state": q["state"]} // judged below as the return it is, should the state lead to a flow
	}
	f, token, ok := h.find(w, r, q.Get("state"))
	if !ok {
		h.log.Info().Str("outcome", "lost").Msg("a return came without its cookie")
		h.draw(w, h.view(h.guest(r, ""), pageLost))
		return
	}
	g := h.guest(r, f.Lang)
	// The code is worth one post, so what follows outlives a browser that does not wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), judgeWithin)
	defer cancel()
	s, spent := h.spend(ctx, w, r, g, f, token)
	if !spent {
		return
	}
	o, err := h.judge(ctx, f, s.Session, q, r.PathValue("network"))
	if err != nil {
		t := troubleOf(err)
		h.step(s, f.Network).trouble(t).took(h.now().Sub(began)).Msg("a sign-in ended without a verdict")
		h.troubled(s.Session, f.Network, t)
		h.giveUp(ctx, s.ID, f.Browser)
		h.toNotice(w, g, token, t.note, f.Network)
		return
	}
	standing, note := h.complete(r.Context(), s.ID, o)
	h.step(s, f.Network).outcome(o, standing, note).took(h.now().Sub(began)).Msg("a sign-in ended")
	h.toEnd(w, g, s, token, note, f.Network)
}

// find gives the flow that a return with this state belongs to, and the session's token that it is about.
func (h *Handler) find(w http.ResponseWriter, r *http.Request, state string) (flow.Flow, sessions.Token, bool) {
	f, ok := h.cookies.Find(w, r, state)
	if !ok {
		return flow.Flow{}, "", false
	}
	token, err := sessions.ParseToken(f.About)
	return f, token, err == nil
}

// spend uses up the attempt of a session that is still pending. Where that is not to be had it answers, and gives false.
//
// The session is read first: where JetStream is away the attempt stays whole, so that a reload goes on with it, and a session
// that has ended lets no code be posted, however much later than the store's memory of spent attempts it is replayed.
func (h *Handler) spend(
	ctx context.Context, w http.ResponseWriter, r *http.Request, g guest, f flow.Flow, token sessions.Token,
) (sessions.View, bool) {
	id := token.ID()
	s, err := h.read(ctx, r, id)
	if err != nil {
		h.drawReadError(w, r, g, err, "?"+r.URL.RawQuery) // this very return
		return s, false
	}
	if s.State != sessions.Pending {
		h.step(s, f.Network).Str("outcome", "late").Msg("a return came for a session that has ended")
		h.toPage(w, g, token)
		return s, false
	}
	if !h.stillOurs(ctx, w, r, g, f, s, token) {
		return s, false
	}
	switch err := h.sessions.Redeem(ctx, id, flow.Hash(f.Attempt.State)); {
	case errors.Is(err, sessions.ErrRedeemed):
		h.step(s, f.Network).Str("outcome", "repeated").Msg("a return came again")
		h.toNotice(w, g, token, noteChecking, f.Network)
		return s, false
	case err != nil:
		// Perhaps spent, perhaps not: without a plain yes no code is posted.
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
		return s, false
	}
	h.stepped(s.Session, sessions.Event{Name: sessions.EventReturned, Network: f.Network})
	return s, true
}

// judge takes the return of a spent attempt to a verdict. Any error is nobody's verdict.
func (h *Handler) judge(ctx context.Context, f flow.Flow, s sessions.Session, q url.Values, arrivedAt string) (sessions.Outcome, error) {
	n := h.network(f.Network, s.Test)
	if n == nil {
		return sessions.Outcome{}, &trouble{stage: network.StageAuthorization, class: classGone, note: noteUnfinished}
	}
	// A return at another network's address is a mix-up: its code may be meant for the other's ears (RFC 9700 §4.4.2).
	if arrivedAt != f.Network {
		return sessions.Outcome{}, &trouble{stage: network.StageAuthorization, class: classMixUp, note: noteUnfinished}
	}
	ret, err := network.ParseReturn(q)
	if err != nil {
		return sessions.Outcome{}, &trouble{stage: network.StageAuthorization, class: network.ClassMalformed, note: noteUnfinished}
	}
	asking, done := edge.Step(ctx, "ask identity network", trace.SpanKindClient, tracing.Network.String(n.ID()))
	who, err := n.Redeem(asking, f.Attempt, ret)
	done(askOutcome(err))
	switch {
	case errors.Is(err, network.ErrDeclined):
		return sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined, Network: n.ID()}, nil
	case err != nil:
		return sessions.Outcome{}, err
	}
	return h.accept(ctx, n, who, s)
}

// askOutcome is the word for how asking a network ended.
func askOutcome(err error) string {
	switch {
	case err == nil:
		return "vouched"
	case errors.Is(err, network.ErrDeclined):
		return string(sessions.Declined)
	default:
		return troubleOf(err).class
	}
}

// accept judges an identity that the provider vouched for by the network's rules. The error says that the store could not tell whether
// the identity stands for another user.
func (h *Handler) accept(ctx context.Context, n *network.Network, who network.Identity, s sessions.Session) (sessions.Outcome, error) {
	refused := sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Network: n.ID()}
	rule, ok := rules.Judge(n.Rules(), who, s, h.now())
	if !ok {
		refused.Rule = rule
		return refused, nil
	}
	if hold, wanted := rules.Hold(n.Rules(), n.ID(), who, s); wanted {
		switch err := h.sessions.Hold(ctx, hold); {
		case errors.Is(err, sessions.ErrHeld):
			refused.Rule = sessions.RuleOneIdentity
			return refused, nil
		case err != nil:
			h.log.Warn().Err(err).Str("sid", string(s.ID)).Msg("an identity could not be held")
			return sessions.Outcome{}, &trouble{stage: stageRules, class: classStore, note: noteUnsaved}
		}
	}
	return sessions.Outcome{State: sessions.Verified, Network: n.ID()}, nil
}
