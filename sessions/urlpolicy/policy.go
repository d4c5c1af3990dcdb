package urlpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrRefusedAddress is returned, wrapped with the kind of address, for an address that callbacks may not
// reach. A repeat returns the same.
var ErrRefusedAddress = errors.New("refused address")

// Policy decides which addresses and ports callbacks may reach. It is immutable and safe for concurrent use.
type Policy struct {
	guard *ssrf.Guardian
	allow []netip.Prefix // wins over every refusal of an address, not over ports
	ports []uint16       // empty: every port

	refused refusals // by the operator; they win over allow
}

// NewPolicy returns the policy "public addresses only". allowCIDRs are the non-public addresses that may be
// reached as well; they bind as written, so 127.0.0.0/8 covers neither ::1 nor ::ffff:127.0.0.1. allowPorts
// are the only ports that may be reached; without any, every port may.
//
// On a network that has IPv6 only, with DNS64 and NAT64, the operator must list 64:ff9b::/96: the gateway,
// not this policy, then decides what happens to an embedded private address.
func NewPolicy(allowCIDRs []netip.Prefix, allowPorts []uint16) *Policy {
	p := &Policy{
		// Ports and networks are judged here, with our own words; the guardian judges addresses only.
		guard: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
			ssrf.WithDeniedV4Prefixes(azureWireServer)),
		ports: slices.Clone(allowPorts),
	}
	for _, prefix := range allowCIDRs {
		p.allow = append(p.allow, prefix.Masked())
	}
	return p
}

// CheckAddr returns an error unless a callback may be dialled to ap. It wraps ErrRefusedAddress and names the
// kind of address.
func (p *Policy) CheckAddr(ap netip.AddrPort) error {
	if err := p.checkPort(ap.Port()); err != nil {
		return err
	}
	return p.CheckIP(ap.Addr())
}

// Control is the net.Dialer.Control that lets only permitted addresses through. It runs after DNS, once for
// each address, on the socket that is about to connect: no name can be resolved again between the check and
// the connection.
func (p *Policy) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: callbacks go over TCP, not %s", ErrRefusedAddress, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not an address and a port", ErrRefusedAddress, address)
	}
	return p.CheckAddr(ap)
}

func (p *Policy) checkPort(port uint16) error {
	switch {
	case port == 0:
		return fmt.Errorf("%w: port 0 is not a port", ErrRefusedAddress)
	case len(p.ports) > 0 && !slices.Contains(p.ports, port):
		return fmt.Errorf("%w: port %d is not one that callbacks may reach (%s)", ErrRefusedAddress, port,
			p.portList())
	}
	return nil
}

// CheckIP is CheckAddr whatever the port.
func (p *Policy) CheckIP(ip netip.Addr) error {
	switch {
	case !ip.IsValid():
		return fmt.Errorf("%w: no address", ErrRefusedAddress)
	case ip.Zone() != "":
		return fmt.Errorf("%w: %s carries a zone, which only link-local addresses do", ErrRefusedAddress,
			ip.WithZone(""))
	case ip.Is4In6():
		// The system would connect to the embedded address, and an IPv6 entry of the allow-list must not
		// decide about that.
		return fmt.Errorf("%w: %s is %s; write %s", ErrRefusedAddress, ip, kindOf(ip), ip.Unmap())
	case p.refused.address(ip):
		return fmt.Errorf("%w: %s is one that the operator refuses", ErrRefusedAddress, ip)
	case p.allows(ip):
		return nil
	case isISATAP(ip), p.guard.SafeAddr(ip) != nil:
		return fmt.Errorf("%w: %s is %s", ErrRefusedAddress, ip, kindOf(ip))
	}
	return nil
}

// allows reports whether the operator's allow-list covers ip.
func (p *Policy) allows(ip netip.Addr) bool {
	return slices.ContainsFunc(p.allow, func(prefix netip.Prefix) bool { return prefix.Contains(ip) })
}

func (p *Policy) portList() string {
	words := make([]string, len(p.ports))
	for i, port := range p.ports {
		words[i] = strconv.Itoa(int(port))
	}
	return strings.Join(words, ", ")
}
