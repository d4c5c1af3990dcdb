package natsconf

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The kinds of failure that callers distinguish. Each is wrapped with the operation that failed.
var (
	// ErrConflict: another message holds the subject. For a write-once subject the caller reads it from the
	// leader and compares the nonce, since a retry of one's own message can look like a loss.
	ErrConflict = errors.New("another message holds this subject")
	// ErrUncertain: no answer came; the message may or may not be stored. Resolve by reading from the
	// leader.
	ErrUncertain = errors.New("JetStream gave no answer")
	// ErrUnavailable: JetStream refused or cannot be reached, and nothing was stored. A repeat is harmless.
	ErrUnavailable = errors.New("JetStream is not available")
	// ErrStoreFull: the store is at its size limit and nothing was stored.
	ErrStoreFull = errors.New("the store is full")
	// ErrNotFound: no message on that subject, as the stream's leader sees it.
	ErrNotFound = errors.New("no such message")
	// ErrTooMany: there are more messages than the caller can take at once.
	ErrTooMany = errors.New("more messages than can be taken at once")
)

// The error codes of JetStream that are distinguished.
const (
	codeWrongLastSequence jetstream.ErrorCode = 10071 // a message is on the subject already
	// the store refused: the subject is taken, or the stream is full
	codeStoreFailed            jetstream.ErrorCode = 10077
	codeWrongLastSequenceConst jetstream.ErrorCode = 10164 // another publish to the subject is in flight
	codeStorageExceeded        jetstream.ErrorCode = 10047 // the server's store limit is reached
	codeInsufficientResources  jetstream.ErrorCode = 10023
	// a batch came without its begin: 50 others of the stream were open then, or the leader has changed since
	codeBatchIncomplete jetstream.ErrorCode = 10176
)

// Kind wraps an error of a publish by nats.go as one of this package's kinds.
func Kind(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return err // it has one
		}
	}
	kind := ErrUncertain
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		kind = apiKind(api)
	case unsent(err), errors.Is(err, nats.ErrMaxPayload):
		kind = ErrUnavailable // it was not sent
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func apiKind(e *jetstream.APIError) error {
	switch e.ErrorCode {
	case codeWrongLastSequence, codeWrongLastSequenceConst:
		return ErrConflict
	case codeStoreFailed:
		if e.Description == "maximum messages per subject exceeded" {
			return ErrConflict
		}
		return ErrStoreFull
	case codeStorageExceeded, codeInsufficientResources:
		return ErrStoreFull
	default:
		return ErrUnavailable // the server answered no: nothing is stored
	}
}

// unsent reports whether a message is stored nowhere because there was no server for it, or for the whole of
// its batch, or no connection.
func unsent(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return noResponders(err) || errors.Is(err, nats.ErrReconnectBufExceeded) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || ok && api.ErrorCode == codeBatchIncomplete
}

// noResponders reports whether no server was there for a message, so that it is stored nowhere: the stream
// has no leader, or the server that the client is connected to does not know the leader yet.
func noResponders(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}
