package dispatcher

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"verifyd/dispatcher/callback"
)

const (
	// addressHosts is how many receiver hosts' connections an account may have to one address. A name costs
	// nothing, so whoever has all names of a domain lead to one machine has as many hosts as they like
	// there; but machines that carry many honest hosts are common, and one host that hangs must leave room
	// for others beside it.
	addressHosts = 4
	// addressWait is how long a dial waits for room at its address. It is part of the dial's own time, of
	// which connecting needs the rest.
	addressWait = time.Second
	// addressBits of an IPv6 address tell one machine from another: the rest is the machine's own to choose.
	addressBits = 64
)

// addresses bounds the connections of an account that callbacks are under way on to one address, whatever
// the names that lead there.
type addresses struct {
	limit int

	mu       sync.Mutex
	occupied map[addressKey]*occupancy
}

type addressKey struct {
	account string
	at      netip.Prefix
}

// occupancy is how many connections there are to one address, and who waits for one.
type occupancy struct {
	n       int
	waiting []chan struct{}
}

func newAddresses(limit int) *addresses {
	return &addresses{limit: limit, occupied: map[addressKey]*occupancy{}}
}

func addressKeyOf(account string, to netip.Addr) addressKey {
	bits := to.BitLen()
	if to.Is6() && !to.Is4In6() {
		bits = addressBits
	}
	at, _ := to.Prefix(bits) // fails for no such length
	return addressKey{account, at}
}

// acquireNow returns a function that releases the place; not ok: none is free.
func (a *addresses) acquireNow(account string, to netip.Addr) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := addressKeyOf(account, to)
	return a.releaser(s), a.tryAcquire(s)
}

// acquire waits for a place, for a while. The error is callback.ErrAddressBusy.
func (a *addresses) acquire(ctx context.Context, account string, to netip.Addr) (leave func(), err error) {
	s := addressKeyOf(account, to)
	a.mu.Lock()
	if a.tryAcquire(s) {
		a.mu.Unlock()
		return a.releaser(s), nil
	}
	freed := make(chan struct{})
	a.occupied[s].waiting = append(a.occupied[s].waiting, freed)
	a.mu.Unlock()
	timeout := time.NewTimer(addressWait)
	defer timeout.Stop()
	select {
	case <-freed:
		return a.releaser(s), nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	if a.cancelWait(s, freed) {
		return nil, callback.ErrAddressBusy
	}
	return a.releaser(s), nil // it was given just then
}

func (a *addresses) releaser(s addressKey) (leave func()) {
	return sync.OnceFunc(func() { a.release(s) })
}

func (a *addresses) tryAcquire(s addressKey) bool {
	c := a.occupied[s]
	if c == nil {
		c = &occupancy{}
		a.occupied[s] = c
	}
	if c.n >= a.limit {
		return false
	}
	c.n++
	return true
}

// release passes the place to who has waited longest.
func (a *addresses) release(s addressKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.occupied[s]
	if len(c.waiting) > 0 {
		close(c.waiting[0])
		c.waiting = c.waiting[1:]
		return
	}
	if c.n--; c.n == 0 {
		delete(a.occupied, s)
	}
}

// cancelWait ends a wait, unless it was answered meanwhile.
func (a *addresses) cancelWait(s addressKey, freed chan struct{}) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.occupied[s]
	if c == nil {
		return false
	}
	i := slices.Index(c.waiting, freed)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}
