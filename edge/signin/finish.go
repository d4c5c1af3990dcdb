package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/rules"
	"verifyd/edge/web"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	sessionfailure "verifyd/sessions/failure"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
	"verifyd/sessions/tracing"
)

// answerWithin bounds a return: the way to its verdict, and the storing of it, for which there is always the
// whole time that a request waits for the store. It stays below the 30 s within which the edge's server sends
// an answer.
const answerWithin = 28 * time.Second

// finish answers GET /signin/{network}/callback, the browser's way back from the identity network.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request) {
	began := h.now()
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		// judged below as the return it is, should the state lead to a flow
		q = url.Values{"state": q["state"]}
	}
	f, token, ok := h.find(w, r, q.Get("state"))
	if !ok {
		h.draw(w, h.view(h.visitor(r, ""), pageLost))
		return
	}
	vis := h.visitor(r, f.Lang)
	if !h.mayReturn(w, r, vis, token) {
		return
	}
	// The code is worth one post, so what follows outlives a browser that does not wait for it.
	ctx, cancel := wait.For(context.WithoutCancel(r.Context()), h.judgeWithin)
	defer cancel()
	s, spent := h.spend(ctx, w, r, vis, f, token)
	if !spent {
		return
	}
	o, err := h.judge.verdict(ctx, f, s.Session, q, r.PathValue("network"))
	if err != nil {
		t := failureOf(err)
		h.step(s, f.Network).failure(t).took(h.now().Sub(began)).Msg("a sign-in ended without a verdict")
		h.recordFailure(s.Session, f.Network, t)
		h.giveUp(ctx, s.ID, f.Browser)
		h.toNotice(w, vis, token, t.note, f.Network)
		return
	}
	h.attempts.Vouched(limit.TripSignIn, web.EventFrom(r.Context()).ClientIP)
	if h.closed(s) { // since the attempt was spent
		h.step(s, f.Network).Str("outcome", "closed").
			Msg("a sign-in ended for an account that is out of service")
		h.toPage(w, vis, token)
		return
	}
	if goesOn(s.Session, f, o) {
		note := h.goOn(r.Context(), s.Session, f, vis)
		h.step(s, f.Network).took(h.now().Sub(began)).Str("outcome", "goes_on").Msg("a step is proven")
		h.toNext(w, vis, s, token, f, note)
		return
	}
	standing, note := h.complete(r.Context(), s.Session, o)
	h.step(s, f.Network).outcome(o, standing, note).took(h.now().Sub(began)).Msg("a sign-in ended")
	h.toEnd(w, vis, s, token, note, f.Network)
}

// find returns the flow that a return with this state belongs to, and the session's token that it is about.
// Another browser's flow is not found: its attempt is spent, and its code is not posted.
func (h *Handler) find(w http.ResponseWriter, r *http.Request, state string) (flow.Flow, sessions.Token,
	bool) {
	f, ok := h.cookies.Find(w, r, state)
	token, err := sessions.ParseToken(f.About)
	switch {
	case !ok:
		h.log.Info().Str("outcome", "lost").Msg("a return came without its cookie")
	case err != nil || !h.browsers.Began(r, f.Browser, string(token.ID())):
		h.attempts.OtherBrowser(limit.TripSignIn)
		h.log.Info().Str("outcome", "other_browser").
			Msg("a return came to a browser that did not begin the attempt")
	default:
		return f, token, true
	}
	if h.cookies.Made(state) {
		h.void(r.Context(), state)
	}
	return flow.Flow{}, "", false
}

// spend uses up the attempt of a session that is still pending. If that is not to be had it answers, and
// returns false.
//
// The session is read first: where JetStream is away the attempt stays whole, so that a reload goes on with
// it, and a session that has ended lets no code be posted, however much later than the store's memory of
// spent attempts it is replayed.
func (h *Handler) spend(
	ctx context.Context, w http.ResponseWriter, r *http.Request, vis visitor, f flow.Flow,
	token sessions.Token,
) (sessions.Status, bool) {
	r, done := h.wait(w, r.WithContext(ctx), vis, "?"+r.URL.RawQuery) // this very return
	if r == nil {
		return sessions.Status{}, false
	}
	defer done()
	lease := h.sessions.AskLeaseOf(r.Context(), token.ID())
	s, err := h.read(r, &vis, token, h.sessions.ReadPending)
	if err != nil {
		h.drawReadError(w, r, vis, err, "?"+r.URL.RawQuery) // this very return
		return s, false
	}
	if s.State != sessions.Pending {
		h.step(s, f.Network).Str("outcome", "late").Msg("a return came for a session that has ended")
		h.toPage(w, vis, token)
		return s, false
	}
	if h.closed(s) { // the attempt stays whole: a reload goes on once the account is back
		h.step(s, f.Network).Str("outcome", "closed").
			Msg("a return came for an account that is out of service")
		h.draw(w, h.sessionView(vis, s, token))
		return s, false
	}
	if !h.stillOurs(lease, w, r, vis, f, s, token) || !h.isNext(w, r, vis, f, s, token) {
		return s, false
	}
	switch err := h.sessions.Redeem(r.Context(), s.ID, flow.Hash(f.Attempt.State)); {
	case errors.Is(err, sessions.ErrRedeemed):
		h.step(s, f.Network).Str("outcome", "repeated").Msg("a return came again")
		h.toNotice(w, vis, token, noteChecking, f.Network)
		return s, false
	case err != nil:
		// Perhaps spent, perhaps not: without a clear success no code is posted.
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return s, false
	}
	h.stepped(s.Session, timeline.Event{Name: timeline.EventReturned, Network: f.Network})
	return s, true
}

// judge asks identity networks who somebody is, and judges what they say.
type judge struct {
	networks

	accounts Accounts
	sessions *store.Store
	log      zerolog.Logger
	now      func() time.Time
}

// verdict takes the return of a spent attempt to a verdict. Any error is nobody's verdict.
func (h *judge) verdict(ctx context.Context, f flow.Flow, s sessions.Session, q url.Values,
	arrivedAt string) (sessions.Outcome, error) {
	n := h.networkOf(f, s)
	if n == nil {
		return sessions.Outcome{}, &failure{
			stage: network.StageAuthorization, class: classGone, note: noteUnfinished,
		}
	}
	// A return at another network's address is a mix-up: its code may be meant for the other's ears (RFC 9700
	// §4.4.2).
	if arrivedAt != f.Network {
		return sessions.Outcome{}, &failure{
			stage: network.StageAuthorization, class: classMixUp, note: noteUnfinished,
		}
	}
	ret, err := network.ParseReturn(q)
	if err != nil {
		return sessions.Outcome{}, &failure{
			stage: network.StageAuthorization, class: network.ClassMalformed, note: noteUnfinished,
		}
	}
	asking, done := web.Step(ctx, "ask identity network", trace.SpanKindClient,
		tracing.Network.String(n.ID()))
	who, err := n.Redeem(asking, f.Attempt, ret)
	done(askOutcome(err))
	switch {
	case errors.Is(err, network.ErrDeclined):
		return sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined, Network: n.ID()}, nil
	case err != nil:
		return sessions.Outcome{}, err
	}
	return h.accept(ctx, n, who, s, f.Platform)
}

// askOutcome is the word for how asking a network ended.
func askOutcome(err error) string {
	switch {
	case err == nil:
		return "vouched"
	case errors.Is(err, network.ErrDeclined):
		return string(sessions.Declined)
	default:
		return failureOf(err).class
	}
}

// accept judges an identity that the provider vouched for: whether it is the platform account, where the
// session asks for that and the network can say it, and, if that is not all that the sign-in was for, by the
// network's rules. The error says that the store could not report whether the identity stands for another
// user.
func (h *judge) accept(ctx context.Context, n *network.Network, who network.Identity, s sessions.Session,
	platform bool) (sessions.Outcome, error) {
	refused := sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Network: n.ID()}
	if s.Level == proof.Account && n.Proves(s.Platform) && who.Subject != s.PlatformUserID {
		refused.Rule = sessionfailure.RulePlatformAccount
		return refused, nil
	}
	if platform {
		return sessions.Outcome{State: sessions.Pending, Network: n.ID()}, nil
	}
	rule, ok := rules.Judge(n.Rules(), who, s, h.now())
	if !ok {
		refused.Rule = rule
		return refused, nil
	}
	switch err := h.bind(ctx, n, who, s); {
	case errors.Is(err, store.ErrIdentityBound):
		refused.Rule = sessionfailure.RuleOneIdentity
		return refused, nil
	case err != nil:
		h.log.Warn().Err(err).Str("sid", string(s.ID)).Msg("an identity could not be held")
		return sessions.Outcome{}, &failure{stage: stageRules, class: classStore, note: noteUnsaved}
	}
	verified := sessions.Outcome{State: sessions.Verified, Network: n.ID()}
	if s.Level == proof.Account { // isNext has seen to it, or this network has
		verified.Reached = proof.Account
	}
	return verified, nil
}

// bind lets the identity stand for the session's user, where the network's rules or the account ask that it
// stands for no other, or for few. The error is store.ErrIdentityBound if it stands for others.
func (h *judge) bind(ctx context.Context, n *network.Network, who network.Identity,
	s sessions.Session) error {
	if hold, wanted := rules.Hold(n.Rules(), n.Namespace(), who, s); wanted {
		if err := h.sessions.BindIdentity(ctx, hold); err != nil {
			return err
		}
	}
	a, _ := h.accounts.Requester(s.Account)
	if a.MaxUsers == 0 {
		return nil
	}
	return h.sessions.BindSlot(ctx, rules.Slots(a.MaxUsers, n.Rules(), n.Namespace(), who, s))
}
