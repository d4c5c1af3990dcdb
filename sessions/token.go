package sessions

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"

	"verifyd/sessions/base32"
)

// TokenLength is the length of a token: tokenBytes in unpadded base64url.
const TokenLength = 43

const (
	tokenBytes   = 32
	accountBytes = 15                        // 20 of its bits are zero
	randomBytes  = tokenBytes - accountBytes // 136 bits: not guessable, and no two are ever the same
	// 160 bits of SHA-256: finding another token with the same id takes 2^160 tries
	idBytes = 20
	idLen   = 32 // idBytes in base32
)

// The form of an account's id, without which a token does not lead to it.
const (
	accountPrefix = "acc_"
	accountChars  = 20     // of base32.Lower
	accountRest   = "aaaa" // of zero bits, up to accountBytes
)

// ErrMalformed is returned for a string that is neither a session token nor a session id.
var ErrMalformed = errors.New(
	"neither a session token (43 characters of base64url) nor a session id (32 characters of base32)")

// Token is the secret in verify_url: 32 bytes in unpadded base64url, 43 characters, which cannot be
// distinguished from random ones without the store's key. Anyone who holds it may sign in for the session.
// Create returns it. It is stored only sealed, for ten minutes, in the reservation of an idempotency key.
type Token string

// Mask derives from a token's random part the mask that hides its other part, at least as long.
type Mask func(random []byte) []byte

// NewToken returns a token that leads to an account, for a caller that has the mask: a session's record is
// stored below its account, and a search below every account takes a look-up for each. It does not lead to
// accounts whose ids have another form than that of account.NewID.
func NewToken(account string, mask Mask) Token {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends if the system's source is broken
	if text, ok := strings.CutPrefix(account, accountPrefix); ok && len(text) == accountChars {
		if packed, err := base32.Lower.DecodeString(text + accountRest); err == nil {
			subtle.XORBytes(b[randomBytes:], packed, mask(b[:randomBytes]))
		}
	}
	return Token(base64.RawURLEncoding.EncodeToString(b[:]))
}

// Account returns the account that the token was made for, or nothing if it leads to none. One token in a
// million that leads to none seems to: a caller that finds nothing there looks below every account.
func (t Token) Account(mask Mask) string {
	b, err := base64.RawURLEncoding.DecodeString(string(t))
	if err != nil || len(b) != tokenBytes {
		return ""
	}
	subtle.XORBytes(b[randomBytes:], b[randomBytes:], mask(b[:randomBytes]))
	text, ok := strings.CutSuffix(base32.Lower.EncodeToString(b[randomBytes:]), accountRest)
	if !ok {
		return ""
	}
	return accountPrefix + text
}

// ParseToken checks the form of a token. The error is ErrMalformed. A well-formed token need not belong to
// any session.
func ParseToken(s string) (Token, error) {
	if len(s) != TokenLength {
		return "", ErrMalformed
	}
	// Strict refuses a last character with stray bits, and the length the line ends that decoders skip: one
	// token has one spelling, so one session has one link.
	if b, err := base64.RawURLEncoding.Strict().DecodeString(s); err != nil || len(b) != tokenBytes {
		return "", ErrMalformed
	}
	return Token(s), nil
}

// ID returns the session id that belongs to the token.
func (t Token) ID() ID {
	sum := sha256.Sum256([]byte(t))
	return ID(base32.Lower.EncodeToString(sum[:idBytes]))
}

// String keeps tokens out of logs and error texts; Reveal returns the secret itself.
func (Token) String() string { return "token(hidden)" }

// Reveal returns the token for verify_url, the init response and the sign-in page's own form, its only
// places.
func (t Token) Reveal() string { return string(t) }

// ID is the session id, "sid" in logs and subjects: the first 20 bytes of SHA-256(token) in lower-case
// base32, 32 characters.
type ID string

// ParseID reads what integrators put in a path: the session id, or the session token, for which it returns
// the id. The error is ErrMalformed.
func ParseID(s string) (ID, error) {
	if len(s) == idLen {
		// a line end is no part of a subject, and decoders skip it
		if b, err := base32.Lower.DecodeString(s); err != nil || len(b) != idBytes {
			return "", ErrMalformed
		}
		return ID(s), nil
	}
	t, err := ParseToken(s)
	if err != nil {
		return "", err
	}
	return t.ID(), nil
}
