package account

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"verifyd/sessions/base32"
)

const (
	// idPrefix begins an account's id.
	idPrefix = "acc_"
	idChars  = 20 // that follow
)

// IDOf makes an account's id from the name that it is made with, so that two callers that make accounts of
// one name meet in one entry.
func IDOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return idPrefix + base32.Lower.EncodeToString(sum[:])[:idChars]
}

// NewID makes an account's id that comes from no name: from 128 random bits, which nobody takes for one.
func NewID() string { return IDOf(rand.Text()) }

// IsID reports whether a text has the form of an account's id. It keeps other texts out of subjects, in which
// a dot or a star would mean something else.
func IsID(id string) bool {
	text, ok := strings.CutPrefix(id, idPrefix)
	return ok && text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
