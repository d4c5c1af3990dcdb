package urlpolicy

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// refusals are the networks and hosts that an operator refuses.
type refusals struct {
	prefixes []netip.Prefix
	names    []string // in lower case; with a dot in front: all names below
}

var errRefusal = errors.New("not a network, an address or a host name")

// Refusing returns the policy with one more that an operator refuses, whatever else is allowed: a network
// (203.0.113.0/24), an address, a host (bot.example.com), or all hosts below one (*.example.net). The error
// says that it is none of these.
func (p *Policy) Refusing(entry string) (*Policy, error) {
	q := *p
	r := &q.refused
	entry = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(entry), "."))
	if prefix, err := netip.ParsePrefix(entry); err == nil && !prefix.Addr().Is4In6() {
		r.prefixes = append(slices.Clone(r.prefixes), prefix.Masked())
		return &q, nil
	}
	if ip, err := netip.ParseAddr(entry); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		r.prefixes = append(slices.Clone(r.prefixes), netip.PrefixFrom(ip, ip.BitLen()))
		return &q, nil
	}
	if anywhere.checkName(strings.TrimPrefix(entry, "*.")) != nil {
		return nil, errRefusal
	}
	r.names = append(slices.Clone(r.names), strings.TrimPrefix(entry, "*")) // keeps the dot
	return &q, nil
}

func (r refusals) address(ip netip.Addr) bool {
	return slices.ContainsFunc(r.prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func (r refusals) name(name string) bool {
	return slices.ContainsFunc(r.names, func(n string) bool {
		return n == name || n[0] == '.' && strings.HasSuffix(name, n)
	})
}
