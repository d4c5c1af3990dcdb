package sessions_test

import (
	"errors"
	"strings"
	"testing"

	"verifyd/sessions"
)

// A token and an id have one spelling each, and what is neither is refused: a decoder with two spellings for
// one session would have two fences for its POST.
func FuzzParseID(f *testing.F) {
	token := sessions.Token("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	for _, s := range []string{
		token.Reveal(), string(token.ID()), token.Reveal()[:42] + "9", token.Reveal() + "=",
		token.Reveal()[:42] + "\n",
		string(token.ID())[:31] + "\n", string(token.ID())[:31] + "A", "", "*", ">",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := sessions.ParseID(s)
		if err != nil {
			if !errors.Is(err, sessions.ErrMalformed) || id != "" {
				t.Fatalf("%q: %q, %v", s, id, err)
			}
			return
		}
		again, err := sessions.ParseID(string(id))
		if err != nil || again != id {
			t.Fatalf("%q is %q, which is read as %q, %v", s, id, again, err)
		}
		tok, terr := sessions.ParseToken(s)
		if isToken := len(s) == 43; isToken != (terr == nil) || isToken && tok.ID() != id || !isToken &&
			string(id) != s {
			t.Fatalf("%q: id %q, token %v", s, id, terr)
		}
		if rest := strings.Trim(s,
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"); rest != "" {
			t.Fatalf("%q is accepted, and is more than one word of a subject", s)
		}
	})
}
