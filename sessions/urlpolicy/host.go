package urlpolicy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	maxNameBytes  = 253 // RFC 1035 §2.3.4: 255 on the wire, less the first length and the root label
	maxLabelBytes = 63  // RFC 1035 §2.3.4
)

// splitAuthority splits an authority into its host, with brackets if it has them, and ":port", "" if there is
// none.
func splitAuthority(authority string) (host, port string, err error) {
	if strings.Contains(authority, "@") {
		return "", "", fault(CodeUserinfo,
			"there is a user name or password before the host; remove it, callbacks are signed")
	}
	if strings.HasPrefix(authority, "[") {
		i := strings.IndexByte(authority, ']')
		if i < 0 {
			return "", "", fault(CodeHost, "the bracket around the IPv6 address is not closed")
		}
		host, port = authority[:i+1], authority[i+1:]
		if port != "" && port[0] != ':' {
			return "", "", fault(CodeHost,
				"after an IPv6 address in brackets only a port may follow, as in https://[2001:db8::1]:8443/")
		}
		return host, port, nil
	}
	host = authority
	if i := strings.IndexByte(authority, ':'); i >= 0 {
		host, port = authority[:i], authority[i:]
	}
	if strings.Count(port, ":") > 1 {
		return "", "", fault(CodeHost,
			"more than one colon in the host; an IPv6 address is written in brackets, as in "+
				"https://[2001:db8::1]/")
	}
	return host, port, nil
}

// parsePort reads ":port" in its one canonical spelling and asks the policy.
func (p *Policy) parsePort(s string) (uint16, error) {
	port := uint64(defaultPort)
	if s != "" {
		var err error
		port, err = strconv.ParseUint(s[1:], 10, 16)
		if err != nil || port == 0 || strconv.FormatUint(port, 10) != s[1:] {
			return 0, fault(CodePort,
				"the port must be a number from 1 to 65535 without leading zeros, or absent together "+
					"with its colon")
		}
	}
	if p.checkPort(uint16(port)) != nil {
		return 0, fault(CodePort, "callbacks may not reach port %d; allowed are %s", port, p.portList())
	}
	return uint16(port), nil
}

// parseHost reads a host: an address literal in its one canonical notation, or a name.
func (p *Policy) parseHost(host string) (string, netip.Addr, error) {
	if host == "" {
		return "", netip.Addr{}, fault(CodeHost, "the host is missing; give one as in %s", example)
	}
	if literal, ok := strings.CutPrefix(host, "["); ok {
		ip, err := netip.ParseAddr(strings.TrimSuffix(literal, "]"))
		if err != nil || !ip.Is6() || ip.Zone() != "" || strings.Contains(host, "%") {
			return "", netip.Addr{},
				fault(CodeHost, "the text between the brackets is no IPv6 address, or one with a zone")
		}
		return p.literal(ip)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return p.literal(ip)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return name, netip.Addr{}, p.checkName(name)
}

func (p *Policy) literal(ip netip.Addr) (string, netip.Addr, error) {
	if p.refused.address(ip) {
		return "", netip.Addr{},
			fault(CodeAddress, "the operator of this service refuses callbacks to %s", ip)
	}
	// CheckIP and not CheckAddr: the port has been judged, and its fault has a code of its own.
	if p.CheckIP(ip) != nil {
		return "", netip.Addr{},
			fault(CodeAddress, "%s is %s; callbacks go to public addresses only", ip, kindOf(ip))
	}
	return ip.String(), ip, nil
}

// checkName applies RFC 1035 §2.3.1 and RFC 1123 §2.1, with underscores, to a name in lower case without its
// final dot.
func (p *Policy) checkName(name string) error {
	if len(name) > maxNameBytes {
		return fault(CodeHost, "the host name is %d bytes long; at most %d are allowed", len(name),
			maxNameBytes)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if err := checkLabel(label); err != nil {
			return err
		}
	}
	last := labels[len(labels)-1]
	switch {
	case p.refused.name(name):
		return fault(CodeHost, "the operator of this service refuses callbacks to %s", name)
	case looksNumeric(last):
		return fault(CodeHost, "the host ends in a number, which some programs read as an address; "+
			"write a name, or four decimal numbers from 0 to 255 without leading zeros")
	case last == "localhost" && !p.allowsLoopback():
		return fault(CodeHost, "localhost is this machine, not the receiver; give a public host name")
	case len(labels) == 1 && len(p.allow) == 0:
		return fault(CodeHost, "a name of a single label is not public; give the full host name, as in %s",
			example)
	}
	return nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return fault(CodeHost, "the host name has an empty label: two dots in a row, or one in front")
	case len(label) > maxLabelBytes:
		return fault(CodeHost, "a label of the host name is %d bytes long; at most %d are allowed",
			len(label), maxLabelBytes)
	case label[0] == '-' || label[len(label)-1] == '-':
		return fault(CodeHost, "a label of the host name starts or ends with a hyphen")
	}
	for i := range len(label) {
		if b := label[i]; !isLetter(b) && !isDigit(b) && b != '-' && b != '_' {
			return fault(CodeHost, "the host name holds %q; it may hold letters, digits, hyphens and dots", b)
		}
	}
	return nil
}

// looksNumeric recognizes the last label that makes the WHATWG URL standard ("ends in a number") and
// inet_aton take the whole host for an IPv4 address: all digits, or 0x and any number of hexadecimal digits,
// also none.
func looksNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return !slices.ContainsFunc([]byte(hex), func(b byte) bool { return !isHex(b) })
	}
	return !slices.ContainsFunc([]byte(label), func(b byte) bool { return !isDigit(b) })
}

// allowsLoopback reports whether the allow-list reaches this machine, which makes localhost a name like any
// other. It need not be exact: the address that is dialled decides.
func (p *Policy) allowsLoopback() bool {
	return p.allows(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || p.allows(netip.IPv6Loopback())
}
