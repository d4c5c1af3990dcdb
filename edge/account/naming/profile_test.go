package naming_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// The list of characters is whole: a line that is cut off or altered would refuse names of a whole script, or
// free letters that only look like others.
func TestProfileIsWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("profile.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed, count, last := &unicode.RangeTable{}, 0, uint32(0)
	for span := range strings.FieldsSeq(string(text)) {
		from, to, isRange := strings.Cut(span, "-")
		if !isRange {
			to = from
		}
		lo, wrong := strconv.ParseUint(from, 16, 32)
		hi, wrongToo := strconv.ParseUint(to, 16, 32)
		r := unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1}
		if wrong != nil || wrongToo != nil || isRange != (r.Lo < r.Hi) || r.Hi > unicode.MaxRune ||
			r.Lo <= last+1 {
			t.Errorf("%q after %x: it is no range, or not sorted, or one with the range before it", span,
				last)
		}
		listed.R32 = append(listed.R32, r)
		count, last = count+int(hi-lo)+1, r.Hi
	}
	const want = 112_139 // of Unicode 15.0
	if count != want {
		t.Errorf("%d characters are listed, want %d", count, want)
	}
	for _, is := range "azAZ09_ßıəЖЄกعא漢가ァ々क\U0002a6df\U000323af" {
		if !unicode.Is(listed, is) {
			t.Errorf("%+q (U+%04X) is missing", is, is)
		}
	}
	for _, not := range "@[µ×÷ĲſǄɡᴀ™Ɐꜱ❤😀ﬁ\u034f\u200b\u3164\ud7a4\U00010400\U00012000" {
		if unicode.Is(listed, not) {
			t.Errorf("%+q (U+%04X) is listed", not, not)
		}
	}
}
