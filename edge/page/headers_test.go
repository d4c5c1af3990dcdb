package page

import (
	"strings"
	"testing"
)

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
