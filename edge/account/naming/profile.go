package naming

import (
	_ "embed" // profile.txt
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// profileText has the characters of UTS 39's General Security Profile for identifiers that are recommended
// (Identifier_Status, Unicode 15.0), as ranges of hexadecimal numbers: letters, marks and digits of the
// scripts in everyday use, without those that only phoneticians, mathematicians and historians write.
//
//go:embed profile.txt
var profileText string

// punctuation is what names have between their letters, in addition to what is on every keyboard.
const punctuation = "·’–—…‧・゠՚֊׳״۽۾་、。「」『』【】〜！？"

// profile are the characters of profileText.
var profile = sync.OnceValue(func() *unicode.RangeTable {
	t := &unicode.RangeTable{}
	for span := range strings.FieldsSeq(profileText) {
		from, to, isRange := strings.Cut(span, "-")
		if !isRange {
			to = from
		}
		lo, _ := strconv.ParseUint(from, 16, 32) // what is there is right
		hi, _ := strconv.ParseUint(to, 16, 32)
		t.R32 = append(t.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
	}
	return t
})

// outside returns the first character of a name that is neither of the profile nor ASCII or punctuation.
func outside(name string) (r rune, found bool) {
	i := strings.IndexFunc(name, func(r rune) bool {
		return r >= 0x80 && !unicode.Is(profile(), r) && !strings.ContainsRune(punctuation, r)
	})
	if i < 0 {
		return 0, false
	}
	r, _ = utf8.DecodeRuneInString(name[i:])
	return r, true
}
