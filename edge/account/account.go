package account

import (
	"errors"
	"time"

	"verifyd/sessions"
)

// Account is an integrator.
type Account struct {
	ID string // "acc_" and 20 characters of base32, made from the name
	// as operators and end users see it, 1 to 128 bytes; the operator may change it (names.go)
	Name  string
	Quota int64 // sessions per UTC month; 0 means the service's default
	// where the end user's page offers to go back to after the end; empty: nowhere. It is on one of ReturnOrigins
	ReturnURL string
	// ReturnOrigins are the sites that ReturnURL may be on, as browsers write origins: https://example.com,
	// https://example.com:8443.
	ReturnOrigins []string
	Colour        string // of its sign there, #rrggbb; empty: it has none
	CreatedAt     time.Time
	DisabledAt    time.Time // zero while it is in service
	// DeletedAt is zero unless the account was deleted. What is left of it signs the callbacks that were owed
	// by then, and nothing else.
	DeletedAt time.Time
	Secrets   []Secret // callback signing secrets, the current one first; two while one rotates out
	Members   []Member // in the order in which they came
	Invites   []Invite // open ones, and such as have expired since the last change of the account

	leadsTo string  // id of the account that has the name which this one's id was made from; see names.go
	last    *Record // of the change that made this version; see ledger.settle
}

// InService reports whether the account's keys are taken and its users can sign in.
func (a Account) InService() bool { return a.exists() && a.DisabledAt.IsZero() }

// exists reports whether the record is an account's, and not what is left of one, or a name that leads to
// one.
func (a Account) exists() bool { return a.Name != "" && a.DeletedAt.IsZero() }

// Member returns the member with an identity.
func (a Account) Member(network, subject string) (Member, bool) {
	if i := memberIndex(a.Members, network, subject); i >= 0 {
		return a.Members[i], true
	}
	return Member{}, false
}

// Signing returns the secrets that sign callbacks at an instant, the current one first: two while one rotates
// out.
func (a Account) Signing(now time.Time) []Secret {
	signing := make([]Secret, 0, len(a.Secrets))
	for _, s := range a.Secrets {
		if s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt) {
			signing = append(signing, s)
		}
	}
	return signing
}

// Key is an API key as it is known after its creation: never the key itself.
type Key struct {
	ID         string // "key_" and 16 characters of base32, from the digest
	Account    string // id of its account
	Name       string // what its owners call it; empty where nobody gave it one
	Test       bool   // made with the vfytest_ prefix
	Last4      string // the last four characters, for people to tell keys apart
	RateLimit  Rate   // zero means the service's default
	Policy     sessions.Policy
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never; for a key that was rolled, the end of its grace
	RevokedAt  time.Time // zero while it is not revoked
	Replaces   string    // id of the key that this one was rolled from; empty: none
	ReplacedBy string    // id of the key that this one was rolled into; empty: none

	last *Record // of the change that made this version; see ledger.settle
}

// Prefix returns what the key begins with: LivePrefix or TestPrefix.
func (k Key) Prefix() string {
	if k.Test {
		return TestPrefix
	}
	return LivePrefix
}

// KeyState is what becomes of a key's requests.
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

// Principal is who makes a request: a valid key and its account.
type Principal struct {
	Key     Key
	Account Account
}

// The reasons for which a key is not accepted. All but ErrNotReady are 401 to the caller.
var (
	ErrMalformedKey = errors.New("not an API key of this service")
	ErrUnknownKey   = errors.New("unknown API key")
	ErrRevokedKey   = errors.New("revoked API key")
	// ErrExpiredKey is what an *ExpiredKeyError is.
	ErrExpiredKey = errors.New("expired API key")
	// ErrDisabled: the key is good, and its account is disabled. Members of the account get it too, for what
	// they may not do meanwhile.
	ErrDisabled = errors.New("the account is disabled")
	// ErrNotReady: the mirror has not yet seen all keys; the caller answers 503.
	ErrNotReady = errors.New("the keys are not loaded yet")
)

// ExpiredKeyError says that a key was good until an instant. It is ErrExpiredKey to errors.Is.
type ExpiredKeyError struct {
	At     time.Time
	Rolled bool // another key took its place, and the grace for that is over
}

func (e *ExpiredKeyError) Error() string {
	return ErrExpiredKey.Error() + " since " + e.At.Format(time.RFC3339)
}

// Is makes it ErrExpiredKey.
func (e *ExpiredKeyError) Is(target error) bool { return target == ErrExpiredKey }
