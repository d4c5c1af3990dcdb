package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/secrets"
	"verifyd/edge/apidoc"
	"verifyd/edge/export"
	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf/wait"
)

// api holds what the handlers share.
type api struct {
	guard

	base string // {base_url} without a final slash
	docs *apidoc.Document

	waiting   *places.Places // requests that wait for a change
	listing   *places.Places
	listening *places.Places
	exports   *export.Answers
}

// guard checks who sends a request, and whether they may: the key, its rate, its account's quota.
type guard struct {
	Config

	unseen *places.Places // of requests whose key is not known, and may be in a moment
}

// authorize finds out whose request it is (contract §5; RFC 6750 §2.1). An address that has failed too often
// gets a Retry-After instead of the reason; a valid key is not refused for what others at its address do.
func (g *guard) authorize(r *http.Request) (account.Principal, *problem.Problem) {
	who, p := g.identify(r)
	if p != nil && (p.Code == problem.CodeKeyMissing || p.Code == problem.CodeKeyInvalid) {
		p = request.Refuse(g.FailedKeys, r, g.Now(), p)
	}
	return who, p
}

func (g *guard) identify(r *http.Request) (account.Principal, *problem.Problem) {
	secret, detail := request.Bearer(r.Header, "the API key", "<API_KEY>")
	if detail != "" {
		return account.Principal{}, &problem.Problem{Code: problem.CodeKeyMissing, Detail: detail}
	}
	event := web.EventFrom(r.Context())
	event.WaitedForKey = 0
	who, err := g.Keys.Lookup(secret)
	if errors.Is(err, account.ErrUnknownKey) {
		who, err = g.lookupNew(r.Context(), secret)
	}
	if errors.Is(err, account.ErrNotReady) {
		ctx, done, p := g.wait(r.Context())
		if p != nil {
			return account.Principal{}, p
		}
		defer done()
		began := time.Now()
		for range wait.Tries(ctx, 1) {
			if who, err = g.Keys.Lookup(secret); !errors.Is(err, account.ErrNotReady) {
				break
			}
		}
		event.WaitedForKey = time.Since(began)
	}
	if err != nil {
		return account.Principal{}, keyProblem(err)
	}
	if who.Key.Test && !g.TestKeys {
		return account.Principal{}, &problem.Problem{
			Code: problem.CodeKeyInvalid, Detail: "This is a test key, but test keys are switched off " +
				"here (VERIFYD_TEST_KEYS); use a live key.",
		}
	}
	event.Account, event.Key, event.Owner = who.Account.ID, who.Key.ID, who.Account.Owner()
	if g.Uses != nil {
		g.Uses.RecordUse(who.Key.ID, g.Now())
	}
	return who, nil
}

const (
	// unseenPause is the pause between two looks at whether a new key would be known, and unseenFor bounds
	// the whole: new keys are seen five times a second.
	unseenPause = 10 * time.Millisecond
	unseenFor   = 2 * time.Second
)

// lookupNew looks up a key that is not known once everything is known that was stored before the request. It
// may have been made a moment ago. A made-up key costs the time, and no request to the store.
func (g *guard) lookupNew(ctx context.Context, secret string) (account.Principal, error) {
	release, err := g.unseen.Acquire(places.Request{Of: limit.SiteOf(web.EventFrom(ctx).ClientIP)})
	if err != nil {
		return account.Principal{}, account.ErrUnknownKey
	}
	defer release()
	began := time.Now()
	for !g.Keys.SeenSince(began) && time.Since(began) < unseenFor {
		select {
		case <-time.After(unseenPause):
		case <-ctx.Done():
			return account.Principal{}, account.ErrUnknownKey
		}
	}
	return g.Keys.Lookup(secret)
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
			Code:       problem.CodeUnavailable,
			Detail:     "Which API keys are valid is not known at the moment.",
			RetryAfter: request.RetryUnavailable,
			Cause:      err,
		}
	}
}

func expiryDetail(e *account.ExpiredKeyError) string {
	if e.Rolled {
		return "This API key was replaced, and its grace period ended on " + web.Timestamp(e.At) + "."
	}
	return "This API key expired on " + web.Timestamp(e.At) + "."
}

// wait returns the context for a request's calls to the store, and done, which releases its place.
func (g *guard) wait(ctx context.Context) (_ context.Context, done func(), p *problem.Problem) {
	ctx, done, err := g.begin(ctx)
	if err != nil {
		return nil, nil, storeProblem(err)
	}
	return ctx, done, nil
}

// begin is Store.Begin. The time that a request has waited for its key is a part of its whole wait, which
// ends before its client gives up.
func (g *guard) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	event := web.EventFrom(ctx)
	return g.Store.Begin(ctx, places.Request{
		Of: owner(event), Must: event.Owner != "" && slices.Contains(must, event.Name),
		Waited: event.WaitedForKey,
	})
}

// The names of the routes that change something.
const (
	nameInit    = "init"
	nameCancel  = "cancel"
	nameConfirm = "confirm"
	nameResend  = "resend"
)

// must are the routes whose requests wait for the store where others no longer do.
var must = []string{nameInit, nameCancel, nameConfirm, nameResend}

// owner is whose request it is, as far as that is known: the account's owner, or the address's.
func owner(event *web.RequestEvent) string {
	if event.Owner == "" {
		return limit.SiteOf(event.ClientIP)
	}
	return event.Owner
}

// ofOwner is a request that counts by its owner.
func ofOwner(ctx context.Context) places.Request {
	return places.Request{Of: owner(web.EventFrom(ctx))}
}

func storeProblem(err error) *problem.Problem { return request.StoreProblem(err) }

func storeFull(cause error) *problem.Problem { return request.StoreFull(cause) }
