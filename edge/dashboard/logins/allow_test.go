package logins

import "testing"

func TestParseAllow(t *testing.T) {
	for _, bad := range []string{
		"everybody", "@nodot", "@-x.org", "Example:1", "open,example:1", ":1", "example:",
	} {
		if _, err := ParseAllow(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for _, good := range []string{"", "open", " open ", "example:1", "example:a:b, @Example.org"} {
		if _, err := ParseAllow(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
