package web

import (
	"net/netip"
	"strings"
	"testing"
)

// What a client writes into X-Forwarded-For changes nothing of what trusted proxies appended, and if the peer
// is no trusted proxy the header is ignored. The resulting address has the form in which trusted ranges are
// compared.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"203.0.113.9", "203.0.113.9, 10.0.0.2", "unknown", "[2001:db8::7]:5555", "::ffff:203.0.113.9",
		"fe80::1%eth0",
		"10.0.0.3,10.0.0.2", "", ",", "203.0.113.9:5555", "[[::1]]",
	} {
		f.Add(s, "6.6.6.6")
		f.Add(s, "10.0.0.9, ")
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, header, before string) {
		if got := clientIP("198.51.100.7:1234", []string{header},
			trusted); got != netip.MustParseAddr("198.51.100.7") {
			t.Fatalf("a stranger's word counts: %q makes it %s", header, got)
		}
		got := clientIP("10.0.0.1:1", []string{header}, trusted)
		if !got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Fatalf("%q: %s", header, got)
		}
		passed := header + ", 203.0.113.9, 10.0.0.2"
		if got := clientIP("10.0.0.1:1", []string{before, passed},
			trusted); got != netip.MustParseAddr("203.0.113.9") {
			t.Fatalf("%q before %q: %s", before, passed, got)
		}
		if isTrusted(trusted, got) { // every hop was a proxy's, or the search ended at one
			return
		}
		if alone := clientIP("10.0.0.1:1", []string{before, header}, trusted); alone != got {
			t.Fatalf("%q before %q makes %s of %s", before, header, alone, got)
		}
		if !strings.ContainsAny(header, ".:") {
			t.Fatalf("%q is taken for %s", header, got)
		}
	})
}
