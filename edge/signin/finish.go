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
	"verifyd/sessions/records"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
	"verifyd/sessions/tracing"
)

// answerWithin bounds a return: the way to its verdict, and the storing of it, for which there is always the
// whole time that a request waits for the store. It stays below the 30 s within which the edge's server sends
// an answer.
const answerWithin = 28 * time.Second

// finish answers GET and POST /signin/{network}/callback, the browser's way back from the identity network.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request) *reply {
	began := h.now()
	q, err := url.ParseQuery(r.URL.RawQuery)
	if r.Method == http.MethodPost {
		q = nil // a form (form_post), which no request asks for, comes without the flow's cookie
	}
	f, token, ok := h.find(w, r, q.Get("state"))
	if !ok {
		return replyLost(h.pages, r, h.codes.Spend(r, q))
	}
	if err != nil { // judged below as the return it is
		q = url.Values{"state": q["state"]}
	}
	vis := h.visit(r, f.Lang)
	vis.token, vis.again = token, "?"+r.URL.RawQuery // this very return
	if re := h.checkReturns(vis); re != nil {
		return re
	}
	// The code is worth one post, so what follows outlives a browser that does not wait for it.
	ctx, cancel := wait.For(context.WithoutCancel(r.Context()), h.judgeWithin)
	defer cancel()
	vis.r = r.WithContext(ctx)
	spent := records.Begin(func() (bool, error) { return h.codes.Spent(ctx, q) })
	if re := h.spend(vis, f); re != nil {
		return re
	}
	s := vis.status
	var o sessions.Outcome
	if err = checkSpent(spent()); err == nil {
		o, err = h.judge.verdict(ctx, f, s.Session, q, r.PathValue("network"))
	}
	if err != nil {
		t := failureOf(err)
		h.step(s, f.Network).failure(t).took(h.now().Sub(began)).Msg("a sign-in ended without a verdict")
		h.recordFailure(s.Session, f.Network, t)
		h.giveUp(ctx, s.ID, f.Browser)
		return h.toNotice(vis, t.note, f.Network)
	}
	h.attempts.Vouched(limit.TripSignIn, web.EventFrom(r.Context()).ClientIP)
	if h.closed(s) { // since the attempt was spent
		h.step(s, f.Network).Str("outcome", "closed").
			Msg("a sign-in ended for an account that is out of service")
		return h.toPage(vis)
	}
	if goesOn(s.Session, f, o) {
		note := h.goOn(r.Context(), s.Session, f, vis.id)
		h.step(s, f.Network).took(h.now().Sub(began)).Str("outcome", "goes_on").Msg("a step is proven")
		return h.toNext(vis, f, note)
	}
	standing, note := h.complete(r.Context(), s.Session, o)
	h.step(s, f.Network).outcome(o, standing, note).took(h.now().Sub(began)).Msg("a sign-in ended")
	return h.toEnd(vis, note, f.Network)
}

// find returns the flow that a return with this state belongs to, and the session's token that it is about.
// Another browser's flow is not found, and its code is not posted.
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
	return flow.Flow{}, "", false
}

// spend uses up the attempt of a session that is still pending. If it cannot, it returns the reply.
//
// The session is read first: where JetStream is away the attempt stays whole, so that a reload goes on with
// it, and a session that has ended lets no code be posted, however much later than the store's memory of
// spent attempts it is replayed.
func (h *Handler) spend(vis *visit, f flow.Flow) *reply {
	done, full := h.wait(vis, true)
	if full != nil {
		return full
	}
	defer done()
	ctx, id := vis.r.Context(), vis.token.ID() // a return that ends early does not wait for the lease
	lease := records.Begin(func() (sessions.SignInLease, error) { return h.sessions.LeaseOf(ctx, id) })
	if re := h.read(vis, h.sessions.ReadPending); re != nil {
		return re
	}
	s := vis.status
	if s.State != sessions.Pending {
		h.step(s, f.Network).Str("outcome", "late").Msg("a return came for a session that has ended")
		return h.toPage(vis)
	}
	if h.closed(s) { // the attempt stays whole: a reload goes on once the account is back
		h.step(s, f.Network).Str("outcome", "closed").
			Msg("a return came for an account that is out of service")
		return &reply{page: h.sessionView(vis)}
	}
	if re := h.checkLease(vis, f, lease); re != nil {
		return re
	}
	if re := h.checkStep(vis, f); re != nil {
		return re
	}
	switch err := h.sessions.Redeem(vis.r.Context(), s.ID, flow.Hash(f.Attempt.State)); {
	case errors.Is(err, sessions.ErrRedeemed):
		h.step(s, f.Network).Str("outcome", "repeated").Msg("a return came again")
		return h.toNotice(vis, noteChecking, f.Network)
	case err != nil:
		// Perhaps spent, perhaps not: without a clear success no code is posted.
		vis.again = h.pageURL(vis)
		return h.replyReadError(vis, err)
	}
	h.stepped(s.Session, timeline.Event{Name: timeline.EventReturned, Network: f.Network})
	return nil
}

// replyLost is for a return that belongs to no flow of its browser. If its code may still be good, its
// address does not stay where the browser shows it.
func replyLost(p *pages, r *http.Request, spent bool) *reply {
	if !spent {
		return &reply{to: r.URL.EscapedPath()}
	}
	return &reply{page: p.view(p.visit(r, ""), pageLost)}
}

// checkSpent refuses a return whose code came to another browser before, by the answer of flow.Codes.Spent.
func checkSpent(spent bool, err error) error {
	switch {
	case err != nil:
		return &failure{stage: network.StageAuthorization, class: classStore, note: noteUnfinished}
	case spent:
		return &failure{stage: network.StageAuthorization, class: classElsewhere, note: noteUnfinished}
	}
	return nil
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
			cause: err.Error(),
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
	switch err := h.hold(ctx, n, who, s); {
	case errors.Is(err, store.ErrIdentityHeld):
		refused.Rule = sessionfailure.RuleOneIdentity
		return refused, nil
	case err != nil:
		h.log.Warn().Err(err).Str("sid", string(s.ID)).Msg("an identity could not be held")
		return sessions.Outcome{}, &failure{stage: stageRules, class: classStore, note: noteUnsaved}
	}
	verified := sessions.Outcome{State: sessions.Verified, Network: n.ID()}
	if s.Level == proof.Account { // checkStep has seen to it, or this network has
		verified.Reached = proof.Account
	}
	return verified, nil
}

// hold lets the identity stand for the session's user, where the network's rules or the account ask that it
// stands for no other, or for few. The error is store.ErrIdentityHeld if it stands for others.
func (h *judge) hold(ctx context.Context, n *network.Network, who network.Identity,
	s sessions.Session) error {
	if hold, wanted := rules.Hold(n.Rules(), n.Namespace(), who, s); wanted {
		if err := h.sessions.HoldIdentity(ctx, hold); err != nil {
			return err
		}
	}
	a, _ := h.accounts.Requester(s.Account)
	if a.MaxUsers == 0 {
		return nil
	}
	return h.sessions.HoldSlot(ctx, rules.Slots(a.MaxUsers, n.Rules(), n.Namespace(), who, s))
}

// toEnd sends the browser to the clean page, with a notice where the end is in doubt.
func (h *Handler) toEnd(vis *visit, note notice, network string) *reply {
	if note != "" {
		return h.toNotice(vis, note, network)
	}
	h.stepped(vis.status.Session, timeline.Event{Name: timeline.EventFinished, Network: network})
	return h.toPage(vis)
}
