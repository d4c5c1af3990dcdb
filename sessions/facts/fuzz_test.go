package facts_test

import (
	"strings"
	"testing"

	"verifyd/sessions/facts"
)

// A subject that is read is the subject that is written, so that no two of them are the same fact: the stream
// accepts one message for each subject, which is the fence of the one POST.
func FuzzParseSubject(f *testing.F) {
	const id = "abcdefghijklmnopqrstuvwxyz234567"
	for _, s := range []string{
		"completion." + id, "claim." + id + ".1", "result." + id + ".2", "resend." + id + ".3",
		"claim." + id + ".01", "claim." + id + ".+1", "claim." + id + ".0", "claim." + id,
		"completion." + id + ".1", "claim." + strings.ToUpper(id) + ".1", "claim.>.1", "$KV.sessions." + id,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, ok := facts.ParseSubject(s)
		if !ok {
			return
		}
		written := k.Subject()
		if k.N == 0 {
			written = strings.TrimSuffix(written, ".0")
		}
		if written != s || facts.OfFact(s) != k.ID || len(k.ID) != 32 || strings.ContainsAny(s, " *>") {
			t.Fatalf("%q is read as %+v, which is written %q", s, k, written)
		}
	})
}
