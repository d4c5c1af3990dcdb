package secrets

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

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
	digest, _ = DigestToken(token) // it has just been made in that form
	return token, digest
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
	// minSigningBytes is what it asks for: receivers refuse a shorter one. edge/client has its own.
	minSigningBytes = 24
)

// NewSigning makes a callback signing secret, as Standard Webhooks writes it.
func NewSigning() string {
	var b [signingBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return signingPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// CheckSigning returns why a text that somebody gave is not a signing secret; nil if it is one. The prefix
// may be missing.
func CheckSigning(secret string) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, signingPrefix))
	if err != nil || len(key) < minSigningBytes {
		return fmt.Errorf("it is not %q followed by base64 of at least %d bytes", signingPrefix,
			minSigningBytes)
	}
	return nil
}
