package web

import (
	"net/netip"
	"testing"
)

func TestClientIP(t *testing.T) {
	proxies := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48"),
		netip.MustParsePrefix("127.0.0.1/32"),
	}
	for _, row := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"198.51.100.7:1234", nil, "198.51.100.7"},
		{"198.51.100.7:1234", []string{"203.0.113.9"}, "198.51.100.7"}, // a stranger's header
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		// the client wrote the first
		{"10.0.0.1:1", []string{"6.6.6.6, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"6.6.6.6", "203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"10.0.0.3,10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:1", []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"203.0.113.9, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"203.0.113.9:5555"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"[2001:db8::7]:5555"}, "2001:db8::7"},
		{"10.0.0.1:1", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"[2001:db8:f::1]:1", []string{"2001:db8::7"}, "2001:db8::7"},
		{"[::ffff:10.0.0.1]:1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"@", []string{"203.0.113.9"}, "invalid IP"},
	} {
		if got := clientIP(row.remote, row.forwarded, proxies); got.String() != row.want {
			t.Errorf("clientIP(%s, %q) = %s, want %s", row.remote, row.forwarded, got, row.want)
		}
	}
	if got := clientIP("10.0.0.1:1", []string{"203.0.113.9"}, nil); got != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("without trusted proxies: %s", got)
	}
}
