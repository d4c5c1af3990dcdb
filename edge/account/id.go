package account

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	"verifyd/edge/account/input"
	"verifyd/edge/account/secrets"
)

const (
	// idPrefix begins an account's id.
	idPrefix = "acc_"
	idChars  = 20 // that follow
)

// IDOf makes an account's id from the name that it is made with, so that two who make accounts of one name
// meet in one entry.
func IDOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return idPrefix + secrets.Base32(sum[:])[:idChars]
}

// NewID makes an account's id that no name makes.
func NewID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return idPrefix + secrets.Base32(b[:])[:idChars]
}

// IsID reports whether a text has the form of an account's id. It keeps what has not out of subjects, where a
// dot or a star would mean something else.
func IsID(id string) bool {
	text, ok := strings.CutPrefix(id, idPrefix)
	return ok && text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// CheckName checks the name of an account. The error is an *input.Error.
func CheckName(name string) error {
	if name == "" || !input.Plain(name, input.NameBytes) {
		return &input.Error{Field: "name",
			Detail: fmt.Sprintf("%q cannot be an account's name; want 1 to %d bytes of printable text "+
				"without spaces around it, for example %q",
				name, input.NameBytes, "Harbor Guild")}
	}
	if IsID(name) { // commands take either, and one account's name must not be another's id
		return &input.Error{
			Field: "name", Detail: fmt.Sprintf(
				"%q has the form of an account's id; choose another name, for example %q", name,
				"Harbor Guild"),
		}
	}
	return nil
}
