package page

import (
	"strings"
	"testing"
)

func TestOrigin(t *testing.T) {
	for base, want := range map[string]string{
		"https://example.com":         "https://example.com",
		"https://Example.com":         "https://example.com",
		"https://example.com:443/a/b": "https://example.com",
		"http://example.com:80":       "http://example.com",
		"http://example.com:443":      "http://example.com:443",
		"http://[::1]:8080/v":         "http://[::1]:8080",
	} {
		if got := Origin(base); got != want {
			t.Errorf("%s: %q, want %q", base, got, want)
		}
	}
}

func TestPlainSources(t *testing.T) {
	for name, tc := range map[string]struct {
		https  bool
		origin string
		want   string
	}{
		"https network":           {true, "https://id.example.com", ""},
		"dev network":             {false, "http://127.0.0.1:9000", "http://127.0.0.1:9000"},
		"dev network under https": {true, "http://localhost:9000", "http://localhost:9000"},
		"not known, under https":  {true, "", ""},
		"not known":               {false, "", "http://localhost:* http://127.0.0.1:*"},
	} {
		if got := strings.Join(PlainSources(tc.origin, tc.https), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
