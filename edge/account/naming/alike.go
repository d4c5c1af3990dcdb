package naming

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.mau.fi/util/confusable"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Look is a form that all names that look alike share. It is compared, and never shown.
type Look [2]string

// Like reports whether two names look alike.
func (l Look) Like(other Look) bool { return l[0] == other[0] || l[1] == other[1] }

// LookOf returns the look of a name.
//
// The skeleton of UTS 39 §4 is made from the folded name, since names are read whatever their case, and once
// more from the name as it is: a capital can look like a letter that its small form does not look like (Ð and
// D). An i counts as an l: if it is a capital I, a reader does not see which of the two is meant. Accents are
// removed, and the bars that skeletons add to letters such as ø. Those of Japanese stay, since they make
// another letter.
func LookOf(name string) Look {
	bare := strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Z, unicode.P) {
			return -1
		}
		return r
	}, norm.NFKC.String(name))
	if bare == "" {
		bare = name
	}
	fold := cases.Fold()
	return Look{skeleton(fold.String(bare)), skeleton(fold.String(confusable.Skeleton(bare)))}
}

// skeleton is that of UTS 39 §4 without accents, and with l in the place of i.
func skeleton(folded string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Inherited, r) && r != '\u3099' && r != '\u309a':
			return -1
		case r == 'i', r == 'I':
			return 'l'
		default:
			return unicode.ToLower(r)
		}
	}, confusable.Skeleton(folded))
}

// together are the scripts that are written together (UTS 39 §5.2): those of Japanese, Chinese and Korean,
// each with Latin.
var together = [][]string{
	{"Latin", "Han", "Hiragana", "Katakana"}, {"Latin", "Han", "Bopomofo"}, {"Latin", "Han", "Hangul"},
}

// mixed names the scripts of a name that are not written together; empty: they are. A character that belongs
// to many scripts counts for none.
func mixed(name string) string {
	found := map[string]bool{}
	for _, r := range name {
		if script := scriptOf(r); script != "" {
			found[script] = true
		}
	}
	scripts := slices.Sorted(maps.Keys(found))
	if len(scripts) < 2 || slices.ContainsFunc(together, func(allowed []string) bool {
		return !slices.ContainsFunc(scripts, func(s string) bool { return !slices.Contains(allowed, s) })
	}) {
		return ""
	}
	return strings.Join(scripts, " and ")
}

// scriptOf returns the script of a character; empty for those that many scripts share.
func scriptOf(r rune) string {
	if unicode.In(r, unicode.Common, unicode.Inherited) {
		return ""
	}
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return ""
}
