package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// maxCallbackBytes is more than the contract's three members can take: 2,048 bytes of text, each written
	// with six.
	maxCallbackBytes = 64 << 10
	// busyRetry is what is asked for, in seconds, while the first of two equal callbacks is being handled.
	busyRetry = "1"
)

// Handle takes a result. A nil error means that it was handled permanently: the callback is answered with
// 200, and the same webhook-id never comes again. With an error it is answered with 500, and handed over
// again when it is sent again.
//
// ctx ends when the service hangs up, which is after its VERIFYD_CALLBACK_TIMEOUT, 10 seconds by default.
// What takes longer belongs into a queue.
type Handle func(ctx context.Context, r Result) error

// Receiver is the http.Handler behind a callback_url. It answers in plain text:
//
//	200  handled, now or earlier; or a test callback that this receiver takes no notice of
//	400  the body could not be read
//	401  no signature of ours, or an old one: the callback proves nothing
//	405  not a POST
//	413  larger than any callback
//	422  rightly signed, but not a verification result
//	500  the handler gave an error
//	503  the same callback is being handled at this moment, or Seen gave an error
//
// Under the policy at-least-once the service sends again after 500 and 503; under once somebody presses "send
// again".
type Receiver struct {
	verifier *Verifier
	handle   Handle
	seen     Seen
	tests    bool
	now      func() time.Time
}

// ReceiverOption changes what NewReceiver makes.
type ReceiverOption func(*Receiver)

// WithSeen sets where handled callbacks are remembered. Default a MemorySeen with its default bounds.
func WithSeen(s Seen) ReceiverOption { return func(r *Receiver) { r.seen = s } }

// WithTests hands test callbacks over too, with Result.Test set. Without it they are checked and answered
// like others, and nothing else happens: a receiver in production must not take a test for a person.
func WithTests() ReceiverOption { return func(r *Receiver) { r.tests = true } }

// WithNow sets the clock, for tests.
func WithNow(now func() time.Time) ReceiverOption { return func(r *Receiver) { r.now = now } }

// NewReceiver makes the receiver of an account: secrets are what NewVerifier takes, one or, while they
// rotate, both. The error is about the secrets.
func NewReceiver(secrets []string, handle Handle, options ...ReceiverOption) (*Receiver, error) {
	verifier, err := NewVerifier(secrets...)
	if err != nil {
		return nil, err
	}
	if handle == nil {
		return nil, errors.New("no handler; give the function that takes results")
	}
	r := &Receiver{verifier: verifier, handle: handle, seen: NewMemorySeen(0, 0), now: time.Now}
	for _, o := range options {
		o(r)
	}
	return r, nil
}

// ServeHTTP receives one callback.
func (rc *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	result, status, words := rc.read(w, r)
	if status == 0 {
		status, words = rc.take(r.Context(), result)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", busyRetry)
	}
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, //nolint:gosec // plain text that forbids sniffing, of words of this package alone
		words+"\n")
}

// read returns a result that may be believed, or the answer to what may not.
func (rc *Receiver) read(w http.ResponseWriter, r *http.Request) (result Result, status int, words string) {
	if r.Method != http.MethodPost {
		return result, http.StatusMethodNotAllowed, "callbacks come by POST"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCallbackBytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return result, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("a callback has less than %d bytes", maxCallbackBytes)
	}
	if err != nil {
		return result, http.StatusBadRequest, "the body could not be read"
	}
	result, err = rc.verifier.Verify(r.Header, body, rc.now())
	switch {
	case errors.Is(err, ErrBody):
		return result, http.StatusUnprocessableEntity, err.Error()
	case err != nil:
		return result, http.StatusUnauthorized, err.Error()
	case result.Test && !rc.tests:
		return result, http.StatusOK, "a test, and rightly signed; this receiver takes no notice of tests"
	}
	return result, 0, ""
}

// take hands a result over, unless it was handed over before.
func (rc *Receiver) take(ctx context.Context, result Result) (status int, words string) {
	sighting, err := rc.seen.Begin(ctx, result.ID)
	switch {
	case err != nil:
		return http.StatusServiceUnavailable, "this receiver cannot tell whether it has handled this already"
	case sighting == SeenHandled:
		return http.StatusOK, "handled already"
	case sighting != SeenNew:
		return http.StatusServiceUnavailable, "being handled at this moment"
	}
	handled := false
	defer func() {
		// Also when the handler panics: then it was not handled, and comes again. The request's end must not
		// keep this from being said.
		err := rc.seen.End(context.WithoutCancel(ctx), result.ID, handled)
		if err != nil && handled {
			status, words = http.StatusServiceUnavailable, "handled, but this receiver could not remember it"
		}
	}()
	if err := rc.handle(ctx, result); err != nil {
		return http.StatusInternalServerError, "not handled" // why is the integrator's own business
	}
	handled = true
	return http.StatusOK, "handled"
}
