package limit

import (
	"net/netip"
	"sync"
	"time"

	"verifyd/edge/account"
)

const (
	// ipv6Network is the length of the longest prefix that a customer is assigned: they may choose the rest.
	ipv6Network = 64
	// ipv6Site is the part that a hosting provider or a tunnel assigns to anybody who asks, with 65,536
	// networks in it.
	ipv6Site = 48
)

// bound is one rate for many keys, each with an allowance of its own, in bounded memory. Its methods are safe
// for concurrent use.
type bound[K comparable] struct {
	rate account.Rate
	// carries a monotonic reading, so that setting the clock does not change any allowance
	epoch time.Time

	mu sync.Mutex
	table[K]
}

// newBound returns a bound. The error is ErrRate.
func newBound[K comparable](rate account.Rate, maxEntries int) (*bound[K], error) {
	if err := Valid(rate); err != nil {
		return nil, err
	}
	return &bound[K]{rate: rate, epoch: time.Now(), table: newTable[K](maxEntries)}, nil
}

// take asks for one unit of a key's allowance.
func (b *bound[K]) take(key K, now time.Time) Decision {
	at := now.Sub(b.epoch)
	b.mu.Lock()
	defer b.mu.Unlock()
	state, d := Decide(b.state(key, at), b.rate, at)
	b.states[key] = state
	return d
}

// giveBack returns a unit that was taken. If the key was forgotten meanwhile, there is nothing to return.
func (b *bound[K]) giveBack(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, known := b.states[key]; known {
		b.states[key] = state - State(interval(b.rate))
	}
}

// networkOf returns the prefix that counts as one address: an IPv4 address, or an IPv6 network of the given
// number of bits.
func networkOf(address netip.Addr, ipv6Bits int) netip.Prefix {
	address = address.Unmap()
	bits := address.BitLen()
	if address.Is6() {
		bits = ipv6Bits
	}
	p, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address: all of those share one allowance
	}
	return p
}

// SiteOf names whom an address belongs to, as far as that can be seen: an IPv4 address, or an IPv6 site, all
// of whose addresses one person may have.
func SiteOf(address netip.Addr) string { return networkOf(address, ipv6Site).String() }

// siteShare is how many times the allowance of one IPv6 network all networks of a site have together: the
// many networks of a school or a carrier are not one person's, and the many of one person are not 65,536
// allowances.
const siteShare = 8

// addresses bounds clients by their address: IPv4 by the address, IPv6 by its network, and by its site.
type addresses struct{ networks, sites *bound[netip.Prefix] }

// newAddresses returns a bound by address. The error is ErrRate.
func newAddresses(rate account.Rate, maxEntries int) (addresses, error) {
	networks, err := newBound[netip.Prefix](rate, maxEntries)
	if err != nil {
		return addresses{}, err
	}
	rate.Count, rate.Burst = min(rate.Count*siteShare, maxCount), min(rate.Burst*siteShare, maxCount)
	sites, err := newBound[netip.Prefix](rate, maxEntries)
	return addresses{networks, sites}, err
}

// take asks for one unit of an address's allowance.
func (a addresses) take(address netip.Addr, now time.Time) Decision {
	if !isIPv6(address) {
		return a.networks.take(networkOf(address, ipv6Network), now)
	}
	d := a.sites.take(networkOf(address, ipv6Site), now)
	if !d.Allowed {
		return d
	}
	if d = a.networks.take(networkOf(address, ipv6Network), now); !d.Allowed {
		a.sites.giveBack(networkOf(address, ipv6Site))
	}
	return d
}

// giveBack returns a unit that was taken.
func (a addresses) giveBack(address netip.Addr) {
	if isIPv6(address) {
		a.sites.giveBack(networkOf(address, ipv6Site))
	}
	a.networks.giveBack(networkOf(address, ipv6Network))
}

func isIPv6(address netip.Addr) bool { return address.Unmap().Is6() }

// maxFailures bounds the addresses that are remembered. Beyond it some are forgotten, which favours them.
const maxFailures = 1 << 16

// Failures limits how often an address may come with a key that is not valid. Its methods are safe for
// concurrent use.
type Failures struct{ *bound[netip.Prefix] }

// NewFailures returns the limit. The error is ErrRate.
func NewFailures(rate account.Rate) (*Failures, error) {
	b, err := newBound[netip.Prefix](rate, maxFailures)
	return &Failures{b}, err
}

// Fail counts a failure of an address at now. Decision.Allowed is false if it had too many.
func (f *Failures) Fail(address netip.Addr, now time.Time) Decision {
	return f.take(networkOf(address, ipv6Network), now)
}
