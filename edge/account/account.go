package account

import (
	"errors"
	"time"

	"verifyd/sessions"
)

// Account is an integrator.
type Account struct {
	ID        string // "acc_" and 20 characters of base32, made from the name
	Name      string // as operators and end users see it, 1 to 64 characters
	Quota     int64  // sessions per UTC month; 0 means the service's default
	CreatedAt time.Time
	Secrets   []string // signing secrets, "whsec_…", newest first; two while one rotates out
}

// Key is an API key as it is known after its creation: never the key itself.
type Key struct {
	ID        string          // "key_" and 16 characters of base32, from the digest
	Account   string          // id of its account
	Test      bool            // made with the vfytest_ prefix
	Last4     string          // the last four characters, for people to tell keys apart
	RateLimit Rate            // zero means the service's default
	Policy    sessions.Policy // of its callbacks; empty means the service's default
	CreatedAt time.Time
	RevokedAt time.Time // zero while it is valid
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

// The reasons for which a key is not accepted. All of them are 401 to the caller.
var (
	ErrMalformedKey = errors.New("not an API key of this service")
	ErrUnknownKey   = errors.New("unknown API key")
	ErrRevokedKey   = errors.New("revoked API key")
	// ErrNotReady: the mirror has not yet seen all keys; the caller answers 503.
	ErrNotReady = errors.New("the keys are not loaded yet")
)
