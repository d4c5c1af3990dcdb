// Package words checks the fields of a session that an integrator may set in addition to the contract's: its
// reference and its user's locale.
package words

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"
)

const (
	// MaxReferenceBytes has room for an id with a prefix, and none for a document.
	MaxReferenceBytes = 128
	// MaxLocaleBytes is the length that RFC 5646 §4.4.1 asks implementations to have room for.
	MaxLocaleBytes = 35
)

// CheckReference returns what is wrong with a reference; nil: nothing. Empty is right: there is none.
func CheckReference(s string) error {
	if len(s) > MaxReferenceBytes {
		return fmt.Errorf("the field has %d bytes; it may have up to %d as UTF-8", len(s), MaxReferenceBytes)
	}
	for at, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("byte %d begins U+%04X, which is not printable; it may hold letters, marks, "+
				"digits, punctuation, symbols and plain spaces", at, r)
		}
	}
	return nil
}

// CheckLocale returns what is wrong with a locale; nil: nothing. A tag of an unknown language is valid as
// long as it is well-formed (RFC 5646 §2.2.9).
func CheckLocale(s string) error {
	_, err := language.Parse(s)
	var unknown language.ValueError // of a subtag, which is well-formed
	switch {
	case len(s) > MaxLocaleBytes:
		return fmt.Errorf("the field has %d bytes; a language tag has up to %d", len(s), MaxLocaleBytes)
	case s == "":
		return errors.New("the field is empty; leave it out, or write a BCP 47 language tag such as " +
			"de or pt-BR")
	case strings.Contains(s, "_"): // which Parse takes for a hyphen
		return fmt.Errorf("%q is not a BCP 47 language tag: it has hyphens where this has "+
			"underscores, as in pt-BR", s)
	case err != nil && !errors.As(err, &unknown):
		return fmt.Errorf("%q is not a BCP 47 language tag, such as de or pt-BR", s)
	}
	return nil
}
