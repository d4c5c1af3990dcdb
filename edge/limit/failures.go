package limit

import (
	"net/netip"
	"sync"
	"time"

	"verifyd/edge/account"
)

const (
	// ipv6Network is the part of an IPv6 address that one customer gets at least: the rest is theirs to choose.
	ipv6Network = 64
	// failuresMost bounds the addresses that are remembered, at about 100 bytes each. Beyond it some are forgotten, which favours them.
	failuresMost = 1 << 16
	// failuresRoom is how many are forgotten at once then: looking through all of them is for thousands of failures, not for each.
	failuresRoom = failuresMost / 8
)

// Failures limits how often an address may come with a key that is not valid. Its methods are safe for concurrent use.
type Failures struct {
	rate  account.Rate
	epoch time.Time

	mu      sync.Mutex
	states  map[netip.Prefix]State
	sweepAt int
}

// NewFailures makes the limit. The error is ErrRate.
func NewFailures(rate account.Rate) (*Failures, error) {
	if err := Valid(rate); err != nil {
		return nil, err
	}
	return &Failures{rate: rate, epoch: time.Now(), states: map[netip.Prefix]State{}, sweepAt: sweepFrom}, nil
}

// Fail counts a failure of an address at now. Decision.Allowed is false where it had too many.
func (f *Failures) Fail(address netip.Addr, now time.Time) Decision {
	at := now.Sub(f.epoch)
	who := networkOf(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	state, known := f.states[who]
	if !known {
		state = State(at)
		f.makeRoom(at)
	}
	state, d := Decide(state, f.rate, at)
	f.states[who] = state
	return d
}

// makeRoom drops addresses whose allowance is whole again, when the map has doubled, and any others where it is full all the same.
func (f *Failures) makeRoom(at time.Duration) {
	if len(f.states) < f.sweepAt {
		return
	}
	for who, state := range f.states {
		if state.full(at) {
			delete(f.states, who)
		}
	}
	for who := range f.states {
		if len(f.states) <= failuresMost-failuresRoom {
			break
		}
		delete(f.states, who)
	}
	f.sweepAt = min(max(sweepFrom, 2*len(f.states)), failuresMost)
}

// networkOf gives what counts as one address: an IPv4 address, or an IPv6 network of 64 bits.
func networkOf(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() && !address.Is4In6() {
		bits = ipv6Network
	}
	p, err := address.Unmap().Prefix(min(bits, address.Unmap().BitLen()))
	if err != nil {
		return netip.Prefix{} // no address: all of those share one allowance
	}
	return p
}
