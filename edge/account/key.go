package account

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/account/secrets"
	"verifyd/sessions"
)

// KeyOptions are what may be chosen for a key; the zero value takes the service's defaults and never expires.
type KeyOptions struct {
	Name      string // by which its owners recognize it, at most 64 bytes
	Test      bool
	RateLimit Rate
	Policy    sessions.Policy
	ExpiresAt time.Time
}

// MaxGrace bounds how long a rolled key goes on working.
const MaxGrace = 30 * 24 * time.Hour

var (
	// ErrNoKey is returned if there is no key of that id.
	ErrNoKey = errors.New("no such API key")
	// ErrRolled is returned for rolling a key that was rolled before: it has one successor.
	ErrRolled = errors.New("the API key was already rolled")
	// ErrKeyEnded is returned for rolling a key that has expired or was revoked.
	ErrKeyEnded = errors.New("the API key has ended; create a new one")
)

// Key is an API key as it is known after its creation: never the key itself. It is stored as its JSON, under
// its digest.
type Key struct {
	ID        string          `json:"-"`                   // "key_" and 16 characters of base32, from the digest
	Account   string          `json:"account"`             // id of its account
	Name      string          `json:"name,omitempty"`      // what its owners call it; empty if it has no name
	Test      bool            `json:"test,omitempty"`      // made with the vfytest_ prefix
	Last4     string          `json:"last4"`               // the last characters, for people to distinguish keys
	RateLimit Rate            `json:"rate_limit,omitzero"` // zero means the service's default
	Policy    sessions.Policy `json:"policy,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	// zero: never; for a key that was rolled, the end of its grace
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`   // zero while it is not revoked
	Replaces   string    `json:"replaces,omitempty"`    // id of the key that it was rolled from; empty: none
	ReplacedBy string    `json:"replaced_by,omitempty"` // id of the key that it was rolled into; empty: none
}

// Prefix returns the prefix of the key: secrets.LivePrefix or TestPrefix.
func (k Key) Prefix() string {
	if k.Test {
		return secrets.TestPrefix
	}
	return secrets.LivePrefix
}

// KeyState decides what happens to a key's requests.
type KeyState string

// The states of a key.
const (
	KeyActive  KeyState = "active"
	KeyRolled  KeyState = "rolled" // replaced by another, and still accepted until ExpiresAt
	KeyExpired KeyState = "expired"
	KeyRevoked KeyState = "revoked"
)

// State returns the key's state at an instant.
func (k Key) State(now time.Time) KeyState {
	switch {
	case !k.RevokedAt.IsZero():
		return KeyRevoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return KeyExpired
	case k.ReplacedBy != "":
		return KeyRolled
	default:
		return KeyActive
	}
}

// Rate is how many sessions a key may start: Count per Per, with bursts of up to Burst.
type Rate struct {
	Count int           `json:"count"`
	Per   time.Duration `json:"per"` // in nanoseconds in storage
	Burst int           `json:"burst"`
}

// Mode returns "test" or "live".
func (k Key) Mode() string {
	if k.Test {
		return "test"
	}
	return "live"
}

// Actor is a program with the key, as an actor.
func (k Key) Actor() access.Actor { return access.Actor{Kind: access.ActorKey, ID: k.ID, Name: k.Name} }

// Rollable returns why the key cannot be rolled at an instant; nil: it can be. Its errors are ErrRolled and
// ErrKeyEnded.
func (k Key) Rollable(now time.Time) error {
	if k.ReplacedBy != "" {
		return fmt.Errorf("%w; it was replaced by %s, which can be rolled instead", ErrRolled, k.ReplacedBy)
	}
	if k.State(now) != KeyActive {
		return ErrKeyEnded
	}
	return nil
}

// SuccessorExpires returns when a key that replaces this one expires: it has the same lifetime.
func (k Key) SuccessorExpires(now time.Time) time.Time {
	if k.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return now.Add(k.ExpiresAt.Sub(k.CreatedAt))
}

// Retired returns the key as replaced by another, whose id is by: it ends at the end of the grace, or by
// itself if that is sooner; with no grace it is revoked.
func (k Key) Retired(by string, now time.Time, grace time.Duration) Key {
	k.ReplacedBy = by
	end := now.Add(grace)
	switch {
	case grace == 0:
		k.RevokedAt = now
	case k.ExpiresAt.IsZero() || end.Before(k.ExpiresAt):
		k.ExpiresAt = end
	}
	return k
}

// Revives reports whether this version of the key would undo the end of another that was seen before:
// revocations are final, and an expiry can only be moved nearer.
func (k Key) Revives(old Key) bool {
	if !k.RevokedAt.IsZero() {
		return false
	}
	return !old.RevokedAt.IsZero() || !old.ExpiresAt.IsZero() &&
		(k.ExpiresAt.IsZero() || k.ExpiresAt.After(old.ExpiresAt))
}

// Compare compares keys by age, the oldest first.
func (k Key) Compare(other Key) int {
	return cmp.Or(k.CreatedAt.Compare(other.CreatedAt), cmp.Compare(k.ID, other.ID))
}

// NameBegins reports whether the key's name begins with a text in lower case, whatever the name's; an empty
// text begins none.
func (k Key) NameBegins(text string) bool {
	return text != "" && strings.HasPrefix(strings.ToLower(strings.TrimSpace(k.Name)), text)
}
