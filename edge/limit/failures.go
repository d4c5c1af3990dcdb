package limit

import (
	"net/netip"
	"time"

	"verifyd/edge/account"
)

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
