package origin

import "testing"

func TestOf(t *testing.T) {
	for base, want := range map[string]string{
		"https://example.com":         "https://example.com",
		"https://Example.com":         "https://example.com",
		"https://example.com:443/a/b": "https://example.com",
		"http://example.com:80":       "http://example.com",
		"http://example.com:443":      "http://example.com:443",
		"http://[::1]:8080/v":         "http://[::1]:8080",
	} {
		if got := Of(base); got != want {
			t.Errorf("%s: %q, want %q", base, got, want)
		}
	}
}
