package api

import (
	"context"
	"errors"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/account/secrets"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
)

// guard checks who sends a request, and whether they may: the key, its rate, its account's quota.
type guard struct{ Config }

// authorize finds out whose request it is (contract §5; RFC 6750 §2.1). An address that has failed too often
// gets a Retry-After instead of the reason; a valid key is not refused for what others at its address do.
func (g *guard) authorize(r *http.Request) (account.Principal, *problem.Problem) {
	who, p := g.identify(r)
	if p == nil || p.Code != problem.CodeKeyMissing && p.Code != problem.CodeKeyInvalid ||
		g.FailedKeys == nil {
		return who, p
	}
	if d := g.FailedKeys.Fail(web.EventFrom(r.Context()).ClientIP, g.Now()); !d.Allowed {
		return who, &problem.Problem{
			Code: problem.CodeTooManyFailedKeys,
			Detail: "Too many requests without a valid API key came from this address; fix the key " +
				"first.",
			RetryAfter: d.RetryAfter,
		}
	}
	return who, p
}

func (g *guard) identify(r *http.Request) (account.Principal, *problem.Problem) {
	secret, detail := request.Bearer(r.Header, "the API key", "<API_KEY>")
	if detail != "" {
		return account.Principal{}, &problem.Problem{Code: problem.CodeKeyMissing, Detail: detail}
	}
	who, err := g.Keys.Lookup(secret)
	if err != nil {
		return account.Principal{}, keyProblem(err)
	}
	if who.Key.Test && !g.TestKeys {
		return account.Principal{}, &problem.Problem{
			Code: problem.CodeKeyInvalid, Detail: "This is a test key, and test keys are switched off " +
				"here (VERIFYD_TEST_KEYS); use a live key.",
		}
	}
	event := web.EventFrom(r.Context())
	event.Account, event.Key = who.Account.ID, who.Key.ID
	if g.Uses != nil {
		g.Uses.RecordUse(who.Key.ID, g.Now())
	}
	return who, nil
}

func keyProblem(err error) *problem.Problem {
	if expired, ok := errors.AsType[*account.ExpiredKeyError](err); ok {
		return &problem.Problem{Code: problem.CodeKeyInvalid, Detail: expiryDetail(expired)}
	}
	switch {
	case errors.Is(err, secrets.ErrMalformedKey):
		return &problem.Problem{
			Code:   problem.CodeKeyInvalid,
			Detail: "This is not an API key of this service, or a character of it is missing or wrong.",
		}
	case errors.Is(err, account.ErrUnknownKey):
		return &problem.Problem{Code: problem.CodeKeyInvalid, Detail: "This API key is not known here."}
	case errors.Is(err, account.ErrRevokedKey):
		return &problem.Problem{Code: problem.CodeKeyInvalid, Detail: "This API key was revoked."}
	case errors.Is(err, account.ErrDisabled):
		return &problem.Problem{
			Code: problem.CodeAccountDisabled,
			Detail: "The operator of this service has disabled the account of this API key; the key " +
				"works again once the account is enabled.",
		}
	default: // account.ErrNotReady, and anything else that keeps the service from knowing
		return &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "The API keys are not loaded yet.",
			RetryAfter: request.RetryUnavailable,
			Cause:      err,
		}
	}
}

func expiryDetail(e *account.ExpiredKeyError) string {
	if e.Rolled {
		return "This API key was replaced by another, and its grace ended on " + web.Timestamp(e.At) + "."
	}
	return "This API key expired on " + web.Timestamp(e.At) + "."
}

// wait returns the context for a request's calls to the store, and done, which releases its place.
func (g *guard) wait(ctx context.Context) (_ context.Context, done func(), p *problem.Problem) {
	ctx, done, err := g.Store.Begin(ctx)
	if err != nil {
		return nil, nil, storeProblem(err)
	}
	return ctx, done, nil
}

func storeProblem(err error) *problem.Problem { return request.StoreProblem(err) }

func storeFull(cause error) *problem.Problem { return request.StoreFull(cause) }
