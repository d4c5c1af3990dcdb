package lists

import (
	"errors"
	"strings"
	"testing"
)

// A cursor has one spelling, and decodes to a sequence. TestCursorStaysInItsAccount checks that a list from
// there has only the account's own records. Any other text is refused.
func FuzzCursor(f *testing.F) {
	for _, n := range []uint64{0, 1, 511, 1 << 40, 1<<64 - 1} {
		f.Add(encodeCursor(n))
	}
	f.Add(strings.ToUpper(encodeCursor(1<<64 - 1)))
	f.Add("04000000000000g=")
	f.Add("04 000000000000g\n")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := decodeCursor(s)
		switch {
		case err == nil && (encodeCursor(n) != s || len(s) != len(encodeCursor(0))):
			t.Fatalf("%q is read as %d, which is written %q", s, n, encodeCursor(n))
		case err != nil && (!errors.Is(err, ErrBadCursor) || n != 0):
			t.Fatalf("%q is refused with %d, %v", s, n, err)
		}
	})
}
