package accounts

import (
	"testing"
	"time"
)

func TestParseEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-11-21": "2026-11-22T00:00:00Z", "2027-01-31T12:00:00+01:00": "2027-01-31T11:00:00Z",
		"90d": "2027-02-19T12:00:00Z", "90m": "2026-11-21T13:30:00Z",
		"2026-11-20": "", "2026-11-21T12:00:00Z": "", "0d": "", "99999d": "", "d": "", "1.5d": "", "-1h": "",
		"tomorrow": "",
	} {
		end, err := parseEnd(text, now)
		if (err == nil) != (want != "") || err == nil && end.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %s, %v; want %q", text, end, err, want)
		}
	}
}
