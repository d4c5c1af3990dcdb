package urlpolicy

import "net/netip"

// azureWireServer is Azure's platform channel: public by number, internal by nature, and reachable from
// every virtual machine there. No registry lists it, so the guardian does not know it.
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// kinds returns words for refused addresses; the guardian and CheckIP decide, this table only explains. The
// first entry that contains the address names it, so a narrower range comes before the wider one around it.
var kinds = []struct {
	prefix netip.Prefix
	words  string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), `an address of "this network" (RFC 791)`},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address (RFC 1918)"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a shared address behind a provider's NAT (RFC 6598)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address (RFC 3927)"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address (RFC 1918)"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a documentation address (RFC 5737)"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay address (RFC 7526)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address (RFC 1918)"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmarking address (RFC 2544)"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a documentation address (RFC 5737)"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a documentation address (RFC 5737)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address (RFC 1112)"},
	{azureWireServer, "a cloud provider's internal address"},

	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("::1/128"), "the loopback address"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address in IPv6 clothes"},
	{netip.MustParsePrefix("::/96"), "an IPv4-compatible address (RFC 4291)"},
	{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address behind NAT64 (RFC 6052)"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address behind a local NAT64 (RFC 8215)"},
	{netip.MustParsePrefix("100::/64"), "a discard-only address (RFC 6666)"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address (RFC 4380)"},
	{netip.MustParsePrefix("2001:db8::/32"), "a documentation address (RFC 3849)"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address (RFC 3056)"},
	{netip.MustParsePrefix("3fff::/20"), "a documentation address (RFC 9637)"},
	{netip.MustParsePrefix("fc00::/7"), "a private address (RFC 4193)"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address (RFC 4291)"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address (RFC 3879)"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// kindOf names the kind of a refused address.
func kindOf(ip netip.Addr) string {
	for _, k := range kinds {
		if k.prefix.Contains(ip) {
			return k.words
		}
	}
	switch {
	case isISATAP(ip):
		return "an ISATAP address, which embeds an IPv4 address (RFC 5214)"
	case ip.Is6() && !netip.MustParsePrefix("2000::/3").Contains(ip):
		return "outside IPv6 global unicast"
	}
	return "a special-purpose address (IANA registry)"
}

// isISATAP recognizes the interface identifiers 0000:5efe and 0200:5efe, whose last four bytes are an IPv4
// address (RFC 5214 §6.1). They may follow any prefix, which is why no table of ranges has them.
func isISATAP(ip netip.Addr) bool {
	if !ip.Is6() {
		return false
	}
	b := ip.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
