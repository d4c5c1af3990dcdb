package urlpolicy_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"verifyd/sessions/urlpolicy"
)

// FuzzParse compares Parse with net/url: what is accepted has one reading, and that reading is within the
// policy.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"https://bot.example.com:8443/verified?a=b", "https://[2606:4700:4700::1111]/", "https://8.8.8.8/",
		"HTTPS://A.example./%2F?",
		"https://user@h.example/", "https://h.example/#", "https://127.1/", "https://0x7f000001/",
		"https://[::ffff:1.2.3.4]/",
		"https://h.example\\@i.example/", "https://h.example:/", "https:///x", "https://[fe80::1%25eth0]/",
		"https://h.example?[=%",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := public.Parse(raw)
		if err != nil {
			var fault *urlpolicy.Fault
			if !errors.As(err, &fault) || fault.Code == "" || fault.Detail == "" || u != (urlpolicy.URL{}) {
				t.Fatalf("Parse(%q): %v, %v", raw, u, err)
			}
			return
		}
		if u.String() != raw || len(raw) > urlpolicy.MaxURLBytes ||
			strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("Parse(%q) = %q", raw, u)
		}
		checkAgainstNetURL(t, raw, u)
		checkLiteral(t, u)
		canonical := "https://" + u.HostHeader() + u.RequestURI()
		again, err := public.Parse(canonical)
		if len(canonical) <= urlpolicy.MaxURLBytes &&
			(err != nil || again.HostPort() != u.HostPort() || again.RequestURI() != u.RequestURI()) {
			t.Fatalf("Parse(%q) gives %v, %v; its source %q gave %v", canonical, again.HostPort(), err, raw,
				u.HostPort())
		}
	})
}

func checkAgainstNetURL(t *testing.T, raw string, u urlpolicy.URL) {
	t.Helper()
	theirs, err := url.Parse(raw)
	if err != nil || theirs.Scheme != "https" || theirs.User != nil || theirs.Fragment != "" ||
		theirs.Opaque != "" {
		t.Fatalf("net/url reads %q as %v, %v", raw, theirs, err)
	}
	host := strings.TrimSuffix(strings.ToLower(theirs.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	port := theirs.Port()
	if port == "" {
		port = "443"
	}
	if host != u.Host() || !strings.HasSuffix(u.HostPort(), ":"+port) ||
		theirs.RequestURI() != u.RequestURI() {
		t.Fatalf("net/url reads %q as host %q, port %q, target %q; Parse as %q, %q", raw, host, port,
			theirs.RequestURI(), u.HostPort(), u.RequestURI())
	}
}

func checkLiteral(t *testing.T, u urlpolicy.URL) {
	t.Helper()
	ip, err := netip.ParseAddr(u.Host())
	if (err == nil) != u.Addr().IsValid() || err == nil && ip != u.Addr() {
		t.Fatalf("%q: host %q, literal %v", u, u.Host(), u.Addr())
	}
	if err != nil {
		return
	}
	if err := public.CheckAddr(netip.AddrPortFrom(ip, u.Port())); err != nil {
		t.Fatalf("Parse accepted %q: %v", u, err)
	}
}
