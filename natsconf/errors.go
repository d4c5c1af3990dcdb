package natsconf

import "errors"

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
