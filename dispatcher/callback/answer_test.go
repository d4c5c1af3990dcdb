package callback

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestInterleaveAlternatesFamilies(t *testing.T) {
	for given, want := range map[string]string{
		"1.1.1.1":                         "1.1.1.1",
		"2::1 2::2 1.1.1.1 1.1.1.2 2::3":  "2::1 1.1.1.1 2::2 1.1.1.2 2::3",
		"1.1.1.1 1.1.1.2 1.1.1.3 2::1":    "1.1.1.1 2::1 1.1.1.2 1.1.1.3",
		"::ffff:1.1.1.1 2::1 1.1.1.2":     "1.1.1.1 2::1 1.1.1.2",
		"2::1 ::ffff:127.0.0.1":           "2::1 127.0.0.1",
		"1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4": "1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4",
	} {
		if got := interleave(parse(given)); !slices.Equal(got, parse(want)) {
			t.Errorf("%s became %v; want %s", given, got, want)
		}
	}
}

func parse(s string) []netip.Addr {
	var ips []netip.Addr
	for word := range strings.FieldsSeq(s) {
		ips = append(ips, netip.MustParseAddr(word))
	}
	return ips
}
