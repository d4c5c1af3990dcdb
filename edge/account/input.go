package account

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// InputError says which field of a change is wrong, and what would be right.
type InputError struct {
	// "name", "expires_at", "grace", "overlap", "role", "for", "member", "quota", "return_url", "return_origins", "colour"
	Field  string
	Detail string // for the person who gave it
}

func (e *InputError) Error() string { return e.Field + ": " + e.Detail }

const (
	nameBytes    = 128 // of an account: what a page and a table can show
	keyNameBytes = 64  // of a key, which stands beside nine other columns
)

func checkName(name string) error {
	if name == "" || !plain(name, nameBytes) {
		return &InputError{Field: "name",
			Detail: fmt.Sprintf("%q cannot be an account's name; want 1 to %d bytes of printable text without spaces around it, for example %q",
				name, nameBytes, "Harbor Guild")}
	}
	if isAccountID(name) { // commands take either, and one account's name must not be another's id
		return &InputError{
			Field: "name", Detail: fmt.Sprintf(
				"%q has the form of an account's id; choose another name, for example %q", name,
				"Harbor Guild"),
		}
	}
	return nil
}

// checkText is for names that may be left out.
func checkText(field, text string, most int) error {
	if !plain(text, most) {
		return &InputError{
			Field: field, Detail: fmt.Sprintf(
				"%q is not usable; want at most %d bytes of printable text without spaces around it", text,
				most),
		}
	}
	return nil
}

func plain(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func checkRole(r Role) error {
	if _, err := ParseRole(string(r)); err != nil {
		return &InputError{Field: "role", Detail: err.Error()}
	}
	return nil
}

// checkSpan bounds a time of grace or overlap.
func checkSpan(field string, d, most time.Duration) error {
	if d < 0 || d > most {
		return &InputError{
			Field: field, Detail: fmt.Sprintf("%s is out of range; use 0 (at once) to %s, for example 24h", d,
				most),
		}
	}
	return nil
}
