package account

import (
	"errors"
	"strings"
	"testing"
)

func TestSecretsParseAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		test := i%2 == 0
		s := newSecret(test)
		if seen[s] {
			t.Fatal("two keys are the same")
		}
		seen[s] = true
		_, gotTest, err := parseSecret(s)
		if err != nil || gotTest != test {
			t.Fatalf("parse of a fresh key: test %t, %v", gotTest, err)
		}
	}
}

// Every single-character slip is refused by the checksum, before any look-up.
func TestSlipsAreRefusedByTheChecksum(t *testing.T) {
	s := newSecret(false)
	for i := range s {
		for _, c := range []byte("0Zz") {
			if s[i] == c {
				continue
			}
			slip := s[:i] + string(c) + s[i+1:]
			if _, _, err := parseSecret(slip); !errors.Is(err, ErrMalformedKey) {
				t.Fatalf("accepted with character %d changed", i)
			}
		}
	}
	for _, bad := range []string{
		"", "vfy_", "vfytest_", s[:len(s)-1], s + "0", " " + s, strings.ToUpper(s),
		strings.Replace(s, "vfy_", "vfytest_", 1),
	} {
		if _, _, err := parseSecret(bad); !errors.Is(err, ErrMalformedKey) {
			t.Errorf("accepted %q", bad)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add("vfy_")
	f.Add(newSecret(false))
	f.Add(newSecret(true))
	f.Fuzz(func(t *testing.T, s string) {
		_, test, err := parseSecret(s)
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
	s := newSecret(false)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := parseSecret(s); err != nil {
			b.Fatal(err)
		}
	}
}
