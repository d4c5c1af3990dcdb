package account

import (
	"errors"
	"time"
)

// Principal is the maker of a request: a valid key and its account.
type Principal struct {
	Key     Key
	Account Account
}

// The reasons for which a key is not accepted. All but ErrNotReady are 401 to the caller, as is
// secrets.ErrMalformedKey.
var (
	ErrUnknownKey = errors.New("unknown API key")
	ErrRevokedKey = errors.New("revoked API key")
	// ErrExpiredKey is the kind of an *ExpiredKeyError, to errors.Is.
	ErrExpiredKey = errors.New("expired API key")
	// ErrDisabled: the key is valid, and its account is disabled. Members of the account get it too, for
	// actions that they may not take meanwhile.
	ErrDisabled = errors.New("the account is disabled")
	// ErrNotReady: the mirror has not yet seen all keys, or the key was valid and may have been revoked
	// since; the caller waits a moment, and answers 503 in the end.
	ErrNotReady = errors.New("which keys are valid is not known at the moment")
)

// ExpiredKeyError reports that a key was valid until an instant. It is ErrExpiredKey to errors.Is.
type ExpiredKeyError struct {
	At     time.Time
	Rolled bool // another key took its place, and the grace for that is over
}

func (e *ExpiredKeyError) Error() string {
	return ErrExpiredKey.Error() + " since " + e.At.Format(time.RFC3339)
}

// Is makes it ErrExpiredKey.
func (e *ExpiredKeyError) Is(target error) bool { return target == ErrExpiredKey }
