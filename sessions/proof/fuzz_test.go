package proof_test

import (
	"strings"
	"testing"

	"verifyd/sessions/proof"
)

// A code that is read is of the alphabet, is read as itself, and has as many characters as were typed,
// without spaces and hyphens.
func FuzzParseCode(f *testing.F) {
	for _, s := range []string{"K7M-2QX", "k7m 2qx", "oil-OIL", "K7M2Q", "K7M2QXY", "ＫK7M2QX", "ſK7M2Q",
		"K7M2QU", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		code, ok := proof.ParseCode(s)
		if !ok {
			return
		}
		if len(code) != proof.CodeLength || strings.Trim(code, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" {
			t.Fatalf("%q is read as %q", s, code)
		}
		if again, ok := proof.ParseCode(strings.ToLower(code)); !ok || again != code {
			t.Fatalf("%q is read as %q, and that as %q", s, code, again)
		}
		if typed := strings.NewReplacer(" ", "", "-", "").Replace(s); len(typed) != proof.CodeLength {
			t.Fatalf("%q is read as %q, and has %d bytes", s, code, len(typed))
		}
	})
}
