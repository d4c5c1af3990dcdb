// Package request reads requests of programs strictly, or reports what is wrong with them: the secret in
// their header, strict JSON, the query's parameters. It knows no route. It also maps the store's errors to
// problems.
package request

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/storestate"
)

const (
	// RetryUnavailable is the Retry-After of answers while JetStream is unavailable for longer than requests
	// wait, or while more requests arrive than may wait.
	RetryUnavailable = 2 * time.Second
	// retryStoreFull is longer: space becomes free when sessions and results age out, or when an operator
	// acts.
	retryStoreFull = time.Minute
)

// Bearer returns the secret in the header, or what is wrong with the header.
func Bearer(h http.Header, what, example string) (secret, detail string) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", "Send " + what + " in the header Authorization: Bearer " + example + "."
	}
	if len(values) > 1 {
		return "", "There are several Authorization headers; send one."
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" { // RFC 9110 §11.1: schemes are case-insensitive
		return "", "The Authorization header must be: Bearer " + example + "."
	}
	return secret, ""
}

// FailedKeys limits how often an address may send requests without a valid key or token; a *limit.Failures.
type FailedKeys interface {
	Fail(address netip.Addr, now time.Time) limit.Decision
}

// Refuse counts a request without a valid key or token against its address, and returns what it gets: p, or a
// Retry-After instead of the reason if the address has sent too many of them. nil counts nothing.
func Refuse(failed FailedKeys, r *http.Request, now time.Time, p *problem.Problem) *problem.Problem {
	if failed == nil {
		return p
	}
	d := failed.Fail(web.EventFrom(r.Context()).ClientIP, now)
	if d.Allowed {
		return p
	}
	return &problem.Problem{
		Code: problem.CodeTooManyFailedKeys,
		Detail: "Too many requests without a valid API key or operator token came from this address; fix " +
			"it first.",
		RetryAfter: d.RetryAfter,
	}
}

// StoreProblem returns the problem for an error of the store.
func StoreProblem(err error) *problem.Problem {
	switch {
	case errors.Is(err, natsconf.ErrStoreFull):
		return StoreFull(err)
	case errors.Is(err, places.ErrNoPlace):
		return &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "The service cannot reach its store, and too many " +
				"requests are waiting for it; try again.",
			RetryAfter: RetryUnavailable, Cause: err,
		}
	case storestate.Sealed(err):
		return &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "The service is being moved to another store; try again " +
				"until a process on that one answers.",
			RetryAfter: RetryUnavailable, Cause: err,
		}
	case errors.Is(err, natsconf.ErrUnavailable), errors.Is(err, natsconf.ErrUncertain),
		errors.Is(err, natsconf.ErrConflict),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "The service cannot reach its store; try again.",
			RetryAfter: RetryUnavailable, Cause: err,
		}
	case errors.Is(err,
		natsconf.ErrNewer): // during a rollout: the next edge may run the newer build
		return &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "The service is being upgraded; try again.",
			RetryAfter: RetryUnavailable, Cause: err,
		}
	default:
		return &problem.Problem{
			Code:   problem.CodeInternal,
			Detail: "The service failed; its log has the reason under this request_id.",
			Cause:  err,
		}
	}
}

// StoreFull is the answer while the store is nearly full.
func StoreFull(cause error) *problem.Problem {
	return &problem.Problem{
		Code:       problem.CodeStoreFull,
		Detail:     "New sessions do not start until there is room; open ones continue.",
		RetryAfter: retryStoreFull, Cause: cause,
	}
}
