package secrets

import (
	"errors"
	"strings"
	"testing"
)

func TestSecretsParseAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		test := i%2 == 0
		s := NewKey(test)
		if seen[s] {
			t.Fatal("two keys are the same")
		}
		seen[s] = true
		_, gotTest, err := ParseKey(s)
		if err != nil || gotTest != test {
			t.Fatalf("parse of a fresh key: test %t, %v", gotTest, err)
		}
	}
}

// Every single-character typo is refused by the checksum, before any lookup.
func TestSlipsAreRefusedByTheChecksum(t *testing.T) {
	s := NewKey(false)
	for i := range s {
		for _, c := range []byte("0Zz") {
			if s[i] == c {
				continue
			}
			slip := s[:i] + string(c) + s[i+1:]
			if _, _, err := ParseKey(slip); !errors.Is(err, ErrMalformedKey) {
				t.Fatalf("accepted with character %d changed", i)
			}
		}
	}
	for _, bad := range []string{
		"", "vfy_", "vfytest_", s[:len(s)-1], s + "0", " " + s, strings.ToUpper(s),
		strings.Replace(s, "vfy_", "vfytest_", 1),
	} {
		if _, _, err := ParseKey(bad); !errors.Is(err, ErrMalformedKey) {
			t.Errorf("accepted %q", bad)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add("vfy_")
	f.Add(NewKey(false))
	f.Add(NewKey(true))
	f.Fuzz(func(t *testing.T, s string) {
		_, test, err := ParseKey(s)
		if err != nil {
			return
		}
		body := s[:len(s)-checksumLen]
		if checksum(body) != s[len(body):] || test != strings.HasPrefix(s, TestPrefix) {
			t.Errorf("accepted %q", s)
		}
	})
}

func BenchmarkParseSecret(b *testing.B) {
	s := NewKey(false)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ParseKey(s); err != nil {
			b.Fatal(err)
		}
	}
}
