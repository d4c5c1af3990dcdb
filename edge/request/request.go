// Package request reads requests of programs strictly, or reports what is wrong with them: the secret in
// their header, strict JSON, the query's parameters. It knows no route. It also maps the store's errors to
// problems.
package request

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/natsconf"
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

// StoreProblem returns the problem for an error of the store.
func StoreProblem(err error) *problem.Problem {
	switch {
	case errors.Is(err, natsconf.ErrStoreFull):
		return StoreFull(err)
	case errors.Is(err, limit.ErrNoPlace):
		return &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "The service cannot reach its store, and as many " +
				"requests wait for it as may; try again.",
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
		Detail:     "New sessions do not start until there is room; open ones go on.",
		RetryAfter: retryStoreFull, Cause: cause,
	}
}
