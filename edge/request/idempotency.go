package request

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"verifyd/edge/problem"
)

const (
	// headerIdempotencyKey names a request, so that repeating it after a lost answer creates nothing new. Its
	// value is used as it is: quotes belong to the key.
	headerIdempotencyKey = "Idempotency-Key"
	// HeaderReplayed marks an answer with the session that an earlier request started.
	HeaderReplayed = "Idempotent-Replayed"
	// maxIdempotencyKey bounds the key in bytes: room for any kind of random id with a prefix.
	maxIdempotencyKey = 255
	// RetryInProgress is the Retry-After of a repeat while the first request is under way: a start takes
	// milliseconds, and a second is the minimum of Retry-After.
	RetryInProgress = time.Second
)

// IdempotencyKey returns the key in the header; empty if there is none.
func IdempotencyKey(h http.Header) (string, *problem.Problem) {
	values := h[headerIdempotencyKey]
	if len(values) == 0 {
		return "", nil
	}
	bad := func(format string, args ...any) (string, *problem.Problem) {
		f := problem.Fault{Field: headerIdempotencyKey, Code: problem.FaultHeader,
			Detail: fmt.Sprintf(format, args...)}
		return "", Invalid(f)
	}
	key := values[0]
	switch {
	case len(values) > 1:
		return bad("the header occurs %d times; send one, or none", len(values))
	case key == "" || len(key) > maxIdempotencyKey:
		return bad("the header has %d characters; it must have 1 to %d, for example a random UUID", len(key),
			maxIdempotencyKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' }):
		return bad("the header may hold visible ASCII characters only, without spaces; for example a " +
			"random UUID")
	}
	return key, nil
}
