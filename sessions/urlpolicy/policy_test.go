package urlpolicy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"verifyd/sessions/urlpolicy"
)

// special holds every block of IANA's special-purpose registries (IPv4 and IPv6, as of 2025), multicast, and
// what embeds IPv4.
var special = []string{
	"0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12", "192.0.0.0/24",
	"192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/31", "192.0.2.0/24",
	"192.31.196.0/24",
	"192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "233.252.0.0/24", "240.0.0.0/4", "255.255.255.255/32", "168.63.129.16/32",
	"169.254.169.254/32", "100.100.100.200/32",
	"::1/128", "::/128", "::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48",
	"100::/64", "100:0:0:1::/64",
	"2001::/23", "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32",
	"2001:4:112::/48",
	"2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48",
	"3fff::/20", "5f00::/16",
	"fc00::/7", "fd00:ec2::254/128", "fe80::/10", "fec0::/10", "ff00::/8", "4000::/3", "8000::/1",
	"2606:4700::5efe:7f00:1/128", "2606:4700::200:5efe:7f00:1/128",
}

func TestPublicPolicyRefusesEverySpecialRange(t *testing.T) {
	for _, s := range special {
		prefix := netip.MustParsePrefix(s)
		for _, ip := range []netip.Addr{prefix.Masked().Addr(), prefix.Addr(), last(prefix)} {
			err := public.CheckAddr(netip.AddrPortFrom(ip, 443))
			if !errors.Is(err, urlpolicy.ErrRefusedAddress) {
				t.Errorf("%s of %s: %v", ip, s, err)
			} else if !strings.Contains(err.Error(), " is ") {
				t.Errorf("%s of %s: %q does not name the kind", ip, s, err)
			}
		}
	}
}

func TestPublicPolicyAcceptsPublicAddresses(t *testing.T) {
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "168.63.129.15",
		"168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
		"192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
		"2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700:4700::1111", "2a00:1450::1",
		"2606:4700::5efe:0:0:1",
	} {
		if err := public.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(s), 443)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestKindsAreNamed(t *testing.T) {
	for s, want := range map[string]string{
		"127.0.0.1": "loopback", "10.1.2.3": "private", "169.254.169.254": "link-local",
		"168.63.129.16": "cloud provider",
		"100.64.0.1":    "provider's NAT", "::1": "loopback", "::ffff:8.8.8.8": "write 8.8.8.8",
		"2002:7f00:1::": "6to4",
		"64:ff9b::1":    "NAT64", "2001:0:1::": "Teredo", "fd00::1": "private",
		"2606::5efe:1.2.3.4": "ISATAP",
		"5f00::1":            "outside IPv6",
		"192.175.48.1":       "special-purpose", "ff02::1": "multicast", "255.255.255.255": "broadcast",
	} {
		err := public.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(s), 443))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want it called %q", s, err, want)
		}
	}
}

func TestCheckAddrOddities(t *testing.T) {
	everything := urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"),
		netip.MustParsePrefix("::/0")}, nil)
	mapped := netip.MustParseAddr("::ffff:127.0.0.1")
	for name, ap := range map[string]netip.AddrPort{
		"no address": {},
		"port 0":     netip.AddrPortFrom(netip.MustParseAddr("8.8.8.8"), 0),
		"a zone":     netip.AddrPortFrom(netip.MustParseAddr("fe80::1%eth0"), 443),
		"mapped":     netip.AddrPortFrom(mapped, 443),
	} {
		if err := everything.CheckAddr(ap); !errors.Is(err, urlpolicy.ErrRefusedAddress) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := everything.CheckAddr(netip.MustParseAddrPort("[64:ff9b::808:808]:443")); err != nil {
		t.Errorf("the allow-list does not cover NAT64: %v", err)
	}
}

func TestControlJudgesWhatIsDialled(t *testing.T) {
	p := urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, []uint16{443, 8443})
	for _, row := range []struct {
		network, address string
		want             bool
	}{
		{"tcp4", "8.8.8.8:443", true},
		{"tcp6", "[2606:4700:4700::1111]:8443", true},
		{"tcp4", "127.0.0.1:443", true},
		{"tcp6", "[::1]:443", false},
		{"tcp4", "10.0.0.1:443", false},
		{"tcp4", "8.8.8.8:22", false},
		{"tcp4", "127.0.0.1:22", false},
		{"tcp6", "[fe80::1%eth0]:443", false},
		{"tcp6", "[::ffff:8.8.8.8]:443", false},
		{"udp4", "8.8.8.8:443", false},
		{"tcp", "8.8.8.8:443", false},
		{"unix", "/run/x.sock", false},
		{"tcp4", "h.example:443", false},
		{"tcp4", "", false},
	} {
		err := p.Control(row.network, row.address, nil)
		if (err == nil) != row.want || err != nil && !errors.Is(err, urlpolicy.ErrRefusedAddress) {
			t.Errorf("Control(%s, %s): %v", row.network, row.address, err)
		}
	}
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

// What an operator refuses is refused as an address and as a name, whatever else is allowed, and nothing else
// is.
func TestRefusals(t *testing.T) {
	policy := urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, nil)
	for _, entry := range []string{
		"8.8.0.0/16", "10.1.0.0/16", "::ffff:9.9.9.9", "2001:4860::/32", "Bot.Example.com.",
		" *.example.net ",
	} {
		var err error
		if policy, err = policy.Refusing(entry); err != nil {
			t.Fatalf("%q: %v", entry, err)
		}
	}
	for host, code := range map[string]string{
		"8.8.8.8": urlpolicy.CodeAddress, "10.1.2.3": urlpolicy.CodeAddress,
		"9.9.9.9": urlpolicy.CodeAddress, "[2001:4860::1]": urlpolicy.CodeAddress,
		"bot.example.com": urlpolicy.CodeHost, "BOT.example.com.": urlpolicy.CodeHost,
		"a.example.net": urlpolicy.CodeHost, "a.b.example.net": urlpolicy.CodeHost,
		"10.2.2.3": "", "9.9.9.8": "", "1.1.1.1": "", "example.net": "", "xexample.net": "",
		"example.com": "", "my.bot.example.com": "", "bot.example.com.evil.example": "",
	} {
		_, err := policy.Parse("https://" + host + "/verified")
		fault, _ := errors.AsType[*urlpolicy.Fault](err)
		switch {
		case code == "" && err != nil:
			t.Errorf("%s: %v", host, err)
		case code != "" && (fault == nil || fault.Code != code ||
			!strings.Contains(fault.Detail, "the operator of this service refuses")):
			t.Errorf("%s: %v, want %s", host, err, code)
		}
	}
	for address, ok := range map[string]bool{
		"8.8.8.8:443": false, "10.1.2.3:443": false, "10.2.2.3:443": true,
	} {
		err := policy.Control("tcp4", address, nil)
		if (err == nil) != ok || !ok && !errors.Is(err, urlpolicy.ErrRefusedAddress) {
			t.Errorf("dialled after DNS, %s: %v", address, err)
		}
	}
	for _, entry := range []string{
		"", "*", "*.", "10.0.0.0/33", "::ffff:9.9.9.0/120", "a b", "fe80::1%eth0", "https://x.example", "-",
	} {
		if _, err := policy.Refusing(entry); err == nil {
			t.Errorf("%q is taken", entry)
		}
	}
}
