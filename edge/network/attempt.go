package network

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"time"
)

const (
	secretBytes = 32 // 256 bits: not guessable; also the size RFC 7636 §4.1 recommends for a verifier
	secretLen   = 43 // secretBytes in unpadded base64url
)

// Attempt is one browser's try to sign in. It is made before the browser leaves, travels sealed in a cookie
// of that browser, and is spent by one Redeem. Anyone who holds it could finish the browser's sign-in, so it
// is written nowhere else.
type Attempt struct {
	State    string `json:"state"`    // binds the return to this browser (RFC 6749 §10.12)
	Nonce    string `json:"nonce"`    // binds the ID token to this attempt (OpenID Connect Core 1.0 §15.5.2)
	Verifier string `json:"verifier"` // binds the code to this attempt (RFC 7636)
	// MaxAge is how long ago the user may have signed in at the provider, which is asked to have them sign in
	// again; zero: however long. What a provider does about it the caller sees in Identity.SignedInAgo.
	MaxAge time.Duration `json:"max_age,omitzero"`
}

// NewAttempt returns an attempt of three independent secrets, each 32 random bytes in unpadded base64url.
func NewAttempt() Attempt {
	return Attempt{State: newSecret(), Nonce: newSecret(), Verifier: newSecret()}
}

func newSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends if the system's source is broken
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// StateIs reports, in constant time, whether a return with this state belongs to the attempt.
func (a Attempt) StateIs(state string) bool {
	return len(a.State) == secretLen && subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) == 1
}

// whole reports whether all three secrets are there: an attempt from a cookie of another version may lack
// one, and an empty nonce or verifier would check nothing.
func (a Attempt) whole() bool {
	return len(a.State) == secretLen && len(a.Nonce) == secretLen && len(a.Verifier) == secretLen
}

// String keeps attempts out of logs and error texts.
func (Attempt) String() string { return "network.Attempt(hidden)" }

// GoString keeps attempts out of %#v as well.
func (Attempt) GoString() string { return "network.Attempt(hidden)" }
