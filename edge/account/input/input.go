// Package input checks what people give: names, times, addresses, colours. Its refusals are worded so that
// the person can correct the input. It knows no accounts.
package input

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"verifyd/edge/account/access"
	"verifyd/edge/network/netsettings"
)

// Error reports which field of a change is wrong, and what is valid.
type Error struct {
	// "name", "expires_at", "grace", "overlap", "role", "for", "member", "quota", "return_url",
	// "return_origins", "colour", "reason"
	Field  string
	Detail string // for the person who entered it
}

func (e *Error) Error() string { return e.Field + ": " + e.Detail }

// Wrong returns the error for a field.
func Wrong(field, format string, args ...any) *Error {
	return &Error{Field: field, Detail: fmt.Sprintf(format, args...)}
}

// How long names and reasons may be.
const (
	NameBytes    = 128 // of an account: as much as a page and a table can show
	KeyNameBytes = 64  // of a key, which is shown next to nine other columns
	ReasonBytes  = 500 // of the reason why an account is disabled, as its members read it
)

// Text checks a name that may be left out. The error is an *Error.
func Text(field, text string, limit int) error {
	if !Plain(text, limit) {
		return Wrong(field, "%q cannot be used; give at most %d bytes of printable text without surrounding "+
			"spaces", text, limit)
	}
	return nil
}

// Plain reports whether a text has at most the given number of bytes, all printable, and no space around it.
func Plain(text string, limit int) bool {
	return len(text) <= limit && utf8.ValidString(text) && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Role checks a role. The error is an *Error.
func Role(r access.Role) error {
	if _, err := access.ParseRole(string(r)); err != nil {
		return Wrong("role", "%s", err)
	}
	return nil
}

// Span bounds a time of grace or overlap. The error is an *Error.
func Span(field string, d, limit time.Duration) error {
	if d < 0 || d > limit {
		return Wrong(field, "%s is out of range; use 0 (at once) to %s, for example 24h", d, limit)
	}
	return nil
}

// IsIdentity reports whether an identity network and a subject there can become an identity. One that is
// stored already may be another, and stays removable.
func IsIdentity(network, subject string) bool {
	return network != "" && Plain(network, NameBytes) && netsettings.IsSubject(subject)
}

// Readable makes one line of at most NameBytes from another service's name for somebody.
func Readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, text)
	for i := range text { // cut between characters
		if i > NameBytes-4 {
			text = text[:i]
			break
		}
	}
	return strings.TrimSpace(text)
}
