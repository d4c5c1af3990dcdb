package dashboard

import "testing"

func TestRoundUp(t *testing.T) {
	for n, want := range map[int64]int64{0: 2, 1: 2, 3: 4, 5: 6, 9: 10, 11: 20, 21: 30, 41: 50, 51: 60, 99: 100, 203: 300, 1001: 2000} {
		if got := roundUp(n); got != want || got%2 != 0 {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1500: "-1,500"} {
		if got := count(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestParseAllow(t *testing.T) {
	for _, bad := range []string{"everybody", "@nodot", "@-x.org", "Example:1", "open,example:1", ":1", "example:"} {
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
