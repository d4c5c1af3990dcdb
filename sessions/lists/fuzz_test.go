package lists

import (
	"errors"
	"strings"
	"testing"
)

// A cursor has one spelling, and leads to a sequence, of which a list takes the account's own records alone:
// TestCursorStaysInItsAccount. What is none leads nowhere.
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
