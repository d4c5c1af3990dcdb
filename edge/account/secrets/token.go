package secrets

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"verifyd/sessions/base32"
)

// tokenBytes of randomness in an invite's or a login link's token. Nobody guesses them, so a plain digest is
// kept of it.
const tokenBytes = 32

// NewToken makes a random token in base64url and its stored digest.
func NewToken() (token, digest string) {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// DigestToken returns the stored digest of a token, if it has the form of one.
func DigestToken(token string) (digest string, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != tokenBytes {
		return "", false
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:]), true
}

// ShortID makes an id from a digest, long enough that no two of an account are the same.
func ShortID(prefix, digest string) string {
	b, err := hex.DecodeString(digest)
	if err != nil || len(b) < idBytes {
		return prefix
	}
	return prefix + base32.Lower.EncodeToString(b[:idBytes])
}

const (
	// signingBytes of randomness in a signing secret, as Standard Webhooks recommends (24 to 64).
	signingBytes  = 32
	signingPrefix = "whsec_"
)

// NewSigning makes a callback signing secret, as Standard Webhooks writes it.
func NewSigning() string {
	var b [signingBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return signingPrefix + base64.StdEncoding.EncodeToString(b[:])
}
