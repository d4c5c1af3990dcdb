package web

import (
	"net/netip"
	"slices"
	"strings"
)

// clientIP returns the address that a request came from, as far as it can be believed: the peer's, or if the
// peer is a trusted proxy, the rightmost address in X-Forwarded-For that is not one. The addresses further
// left were written by the client itself. An entry that is no address ends the search at the proxy that
// passed it on.
func clientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	ip, _ := parseHop(remote)
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= 0 && isTrusted(trusted, ip); i-- {
		hop, ok := parseHop(strings.TrimSpace(hops[i]))
		if !ok {
			break
		}
		ip = hop
	}
	return ip
}

func isTrusted(trusted []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// parseHop reads an address, with or without a port. An IPv4-mapped IPv6 address is the IPv4 address: on a
// listener for both, every peer looks like that.
func parseHop(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return ip.Unmap().WithZone(""), err == nil
}
