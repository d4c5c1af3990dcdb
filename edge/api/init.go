package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/stats"
)

// initAnswer is the contract's verification session (contract §2.1): these three members and no others.
type initAnswer struct {
	VerifyURL string `json:"verify_url"`
	Session   string `json:"session"`
	ExpiresAt string `json:"expires_at"`
}

// POST /verify/init starts a session (contract §4.1). The order of its checks is the package's first law.
func (a *api) init(w http.ResponseWriter, r *http.Request) {
	answer, p := a.start(w.Header(), r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusOK, "application/json", answer)
}

func (a *api) start(h http.Header, r *http.Request) (initAnswer, *problem.Problem) {
	traced := web.EventFrom(r.Context()).Begin(r.Context())
	who, p := a.authorize(r)
	if p != nil {
		return initAnswer{}, p
	}
	now := a.Now()
	if p := a.withinRate(h, who, now); p != nil {
		return initAnswer{}, p
	}
	v, p := a.readVerification(r)
	if p == nil {
		v.asked, p = a.level(who, v)
	}
	if p != nil {
		return initAnswer{}, p
	}
	key, p := request.IdempotencyKey(r.Header)
	if p != nil {
		return initAnswer{}, p
	}
	ctx, done, p := a.wait(traced)
	if p != nil {
		return initAnswer{}, p
	}
	defer done()
	if key != "" {
		return a.startKeyed(ctx, h, key, who, v, now)
	}
	if p := a.hasRoom(); p != nil {
		return initAnswer{}, p
	}
	u, p := a.takeUnit(ctx, who, now)
	if p != nil {
		return initAnswer{}, a.refused(h, who, u, p, now)
	}
	quotaHeaders(h, u, now)
	return a.create(ctx, who, v, now)
}

// hasRoom reports whether the store accepts new sessions.
func (g *guard) hasRoom() *problem.Problem {
	if err := g.StoreLeft(); err != nil {
		return storeLeft(err)
	}
	if g.StoreHigh() {
		return storeFull(nil)
	}
	return nil
}

// storeLeft is for a start in a store that accepts nothing any more. It is checked before the quota: a unit
// that is taken and given back would be a change in a store that is being compared at its end.
func storeLeft(cause error) *problem.Problem {
	return storeProblem(fmt.Errorf("%w: %w", natsconf.ErrUnavailable, cause))
}

func (g *guard) withinRate(h http.Header, who account.Principal, now time.Time) *problem.Problem {
	d := g.Rates.Allow(who.Key, now)
	rateHeaders(h, g.Rates.RateOf(who.Key), d)
	if d.Allowed {
		return nil
	}
	g.Usages.Count(who.Account.ID, who.Key.Test, stats.CountRateLimited)
	return &problem.Problem{
		Code: problem.CodeRateLimited, Detail: "This API key starts or confirms sessions, or it or " +
			"another key of the account sends outcomes again, faster than its rate allows.",
		RetryAfter: d.RetryAfter,
	}
}

// takeUnit takes a unit of the account's quota. Test sessions cost none.
func (g *guard) takeUnit(ctx context.Context, who account.Principal, now time.Time) (limit.Usage,
	*problem.Problem) {
	if who.Key.Test {
		return limit.Usage{}, nil
	}
	ctx, done := web.Step(ctx, "take quota", trace.SpanKindProducer)
	u, err := g.Quota.Take(ctx, who.Account.ID, who.Account.Quota, now)
	done(web.StepOutcome(err))
	switch {
	case err == nil:
		return u, nil
	case !errors.Is(err, limit.ErrQuotaExceeded):
		return u, storeProblem(err)
	}
	return u, &problem.Problem{
		Code: problem.CodeQuotaExceeded,
		Detail: "This account has started as many sessions this month as it may; the count starts again at " +
			web.Timestamp(u.ResetAt) + ".",
		RetryAfter: u.ResetAt.Sub(now),
	}
}

// refused reports that a start is refused with the problem that takeUnit returned, and returns it.
func (g *guard) refused(h http.Header, who account.Principal, u limit.Usage, p *problem.Problem,
	now time.Time) *problem.Problem {
	quotaHeaders(h, u, now)
	if p.Code == problem.CodeQuotaExceeded {
		g.Usages.Count(who.Account.ID, false, stats.CountQuotaExceeded)
	}
	return p
}

// giveBack returns what takeUnit took.
func (g *guard) giveBack(ctx context.Context, who account.Principal, now time.Time) error {
	if who.Key.Test {
		return nil
	}
	return g.Quota.GiveBack(ctx, who.Account.ID, now)
}

// create makes the session, and gives its unit of quota back if no session was made. After an uncertain write
// a session may exist, but nobody holds its token.
func (a *api) create(ctx context.Context, who account.Principal, v verification, now time.Time) (initAnswer,
	*problem.Problem) {
	ctx, done := web.Step(ctx, "store session", trace.SpanKindProducer)
	s, token, err := a.Sessions.Create(ctx, requestOf(who, v))
	done(web.StepOutcome(err))
	if err != nil {
		err = errors.Join(err, a.giveBack(ctx, who, now))
		return initAnswer{}, storeProblem(err)
	}
	return a.answer(ctx, token, s), nil
}

func requestOf(who account.Principal, v verification) sessions.Request {
	return sessions.Request{
		Account: who.Account.ID, Key: who.Key.ID, Test: who.Key.Test, Policy: who.Key.Policy,
		Platform: v.platform, PlatformUserID: v.platformUserID, GuildID: v.guildID,
		CallbackURL: v.callback.String(), Level: v.asked, Reference: v.reference, Locale: v.locale,
		DisplayName: v.displayName, GroupName: v.groupName,
	}
}

func (a *api) answer(ctx context.Context, token sessions.Token, s sessions.Session) initAnswer {
	web.EventFrom(ctx).Session = s.ID
	return initAnswer{
		VerifyURL: a.base + "/?session=" + token.Reveal(), Session: token.Reveal(),
		ExpiresAt: web.Timestamp(s.ExpiresAt),
	}
}

// starts counts the answers of POST /verify/init.
type starts struct{ answers *prometheus.CounterVec }

func newStarts(reg prometheus.Registerer) (starts, error) {
	s := starts{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verifyd_init_total",
		Help: "Answers of POST /verify/init: created, replayed, the code of the problem, or none.",
	}, []string{"outcome"})}
	if err := reg.Register(s.answers); err != nil {
		return starts{}, fmt.Errorf("register metrics: %w", err)
	}
	return s, nil
}

func (s starts) count(event *web.RequestEvent, status int) {
	if event.Route != pathInit {
		return
	}
	outcome := string(event.Code)
	switch {
	case outcome != "":
	case event.Replayed:
		outcome = "replayed"
	case status == http.StatusOK:
		outcome = "created"
	default:
		outcome = "none"
	}
	s.answers.WithLabelValues(outcome).Inc()
}
