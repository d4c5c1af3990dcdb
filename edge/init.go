package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/sessions"
)

// timestampLayout is the contract's form of an instant (contract §2.1), in UTC.
const timestampLayout = "2006-01-02T15:04:05.000Z"

func timestamp(t time.Time) string { return t.UTC().Format(timestampLayout) }

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
		writeProblem(w, r, p)
		return
	}
	writeJSON(w, http.StatusOK, "application/json", answer)
}

func (a *api) start(h http.Header, r *http.Request) (initAnswer, *problem) {
	who, p := a.authorize(r)
	if p != nil {
		return initAnswer{}, p
	}
	now := a.Now()
	if p := a.withinRate(h, who.Key, now); p != nil {
		return initAnswer{}, p
	}
	v, p := a.readVerification(r)
	if p != nil {
		return initAnswer{}, p
	}
	if a.StoreHigh() {
		return initAnswer{}, storeFull(nil)
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.StoreTimeout)
	defer cancel()
	if p := a.withinQuota(ctx, h, who.Account, now); p != nil {
		return initAnswer{}, p
	}
	return a.create(ctx, who, v, now)
}

func (a *api) withinRate(h http.Header, k account.Key, now time.Time) *problem {
	d := a.Rates.Allow(k, now)
	rateHeaders(h, a.Rates.RateOf(k), d)
	if d.Allowed {
		return nil
	}
	return &problem{code: CodeRateLimited, detail: "This API key starts sessions faster than its rate allows.", retryAfter: d.RetryAfter}
}

func (a *api) withinQuota(ctx context.Context, h http.Header, owner account.Account, now time.Time) *problem {
	u, err := a.Quota.Take(ctx, owner.ID, owner.Quota, now)
	if err != nil && !errors.Is(err, limit.ErrQuotaExceeded) {
		return storeProblem(err)
	}
	quotaHeaders(h, u, now)
	if err == nil {
		return nil
	}
	return &problem{
		code: CodeQuotaExceeded, detail: "This account has started as many sessions this month as it may; the count starts anew at " +
			timestamp(u.ResetAt) + ".",
		retryAfter: u.ResetAt.Sub(now),
	}
}

// create makes the session, and gives its unit of quota back where there is none to show for it. After an uncertain write a
// session may exist, but nobody holds its token.
func (a *api) create(ctx context.Context, who account.Principal, v verification, now time.Time) (initAnswer, *problem) {
	s, token, err := a.Sessions.Create(ctx, sessions.Request{
		Account: who.Account.ID, Key: who.Key.ID, Test: who.Key.Test, Policy: who.Key.Policy,
		Platform: v.platform, PlatformUserID: v.platformUserID, GuildID: v.guildID, CallbackURL: v.callback.String(),
	})
	if err != nil {
		err = errors.Join(err, a.Quota.GiveBack(ctx, who.Account.ID, now))
		return initAnswer{}, storeProblem(err)
	}
	LineOf(ctx).Session = s.ID
	return initAnswer{
		VerifyURL: a.base + "/?session=" + token.Reveal(), Session: token.Reveal(), ExpiresAt: timestamp(s.ExpiresAt),
	}, nil
}
