// Package naming decides which names accounts can have. End users trust the name that the sign-in page shows,
// so it has to be legible, and must not be another account's.
//
// The laws:
//
//   - A name is stored in one form (Clean): NFKC, one space between words, none around.
//   - A name has no invisible characters: control and format characters, marks of direction, fillers.
//   - A name has the letters of scripts in everyday use (UTS 39 §3.1), and punctuation; no symbols.
//   - A name is of one script, or of those that are written together (UTS 39 §5.2, "highly restrictive").
//   - Two names that look alike are one name (Look): by the skeleton of UTS 39 §4, whatever their case,
//     spaces, punctuation and accents.
//   - Names of identity networks, of platforms and of the service itself are reserved (IsReserved).
//
// It knows no accounts. The package that stores accounts judges whether another account has a name.
package naming

import (
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"verifyd/edge/account/input"
)

// Kept is how long a name stays reserved for its account after the account took another one or was deleted:
// people who knew the account by it must not meet another account there.
const Kept = 90 * 24 * time.Hour

// Former is a name that an account had.
type Former struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"` // no other account can take it before
}

// maxMarks is how many combining marks may follow each other (UTS 39 §5.4): more would overlap the lines
// above and below.
const maxMarks = 4

// Clean returns a name in the form in which it is stored. U+FE0E and U+FE0F choose between two renderings of
// the character before them, which changes no name.
func Clean(name string) string {
	name = strings.NewReplacer("\ufe0e", "", "\ufe0f", "").Replace(name)
	words := strings.FieldsFunc(norm.NFKC.String(name), func(r rune) bool { return r == ' ' })
	return strings.Join(words, " ")
}

// Check returns a name in the form in which it is stored. The error is an *input.Error for a text that cannot
// be a name.
func Check(name string) (string, error) {
	clean := Clean(name)
	if clean == "" || !input.Plain(clean, input.NameBytes) {
		return "", wrong("%q cannot be an account's name; give 1 to %d bytes of printable text, for "+
			"example %q",
			name, input.NameBytes, example)
	}
	marks := 0
	for i, r := range norm.NFD.String(clean) {
		if isInvisible(r) {
			return "", wrong("%q contains an invisible character, %U; leave it out", clean, r)
		}
		if !unicode.Is(unicode.Mn, r) {
			marks = 0
			continue
		}
		if marks++; marks > maxMarks || i == 0 {
			return "", wrong("%+.60q has accents without a letter, or too many on one; leave them out",
				clean)
		}
	}
	return clean, nil
}

// Judge refuses a name, in the form in which it is stored, that deceives by itself. own are the names of the
// service's own: of its identity networks, and its host. An operator may grant the name all the same. The
// error is an *input.Error.
func Judge(clean string, own ...string) error {
	if claims(clean) {
		return wrong("%q claims to be verified, which only the operator can say of a name; leave that out, "+
			"for example %q. Only the operator can grant it", clean, example)
	}
	if IsReserved(clean, own...) {
		return wrong("%q is reserved, since users would take it for an identity network, a platform or this "+
			"service; choose a name of your own, for example %q. Only the operator can grant "+
			"it", clean, example)
	}
	if r, found := outside(clean); found {
		return wrong("%q has the character %q (%U), which looks like others, or is a symbol; leave it out. "+
			"Only the operator can grant it", clean, r, r)
	}
	if scripts := mixed(clean); scripts != "" {
		return wrong("%q mixes letters of %s, and letters of different scripts look alike; write it in one "+
			"script. Only the operator can grant it", clean, scripts)
	}
	return nil
}

const example = "Harbor Guild"

func wrong(format string, args ...any) error { return input.Wrong("name", format, args...) }

// isInvisible reports whether a character is invisible though it counts as printable: those that Unicode
// marks as ignorable by default, and the empty pattern of Braille.
func isInvisible(r rune) bool {
	return unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) ||
		unicode.Is(unicode.Variation_Selector, r) || r == '\u2800' || r == '\U0001d159'
}
