package bounds

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"verifyd/dispatcher/callback"
)

const (
	// addressWait is how long a dial waits for room at its address. It is part of the dial's own time;
	// connecting needs the rest.
	addressWait = time.Second
	// addressBits of an IPv6 address distinguish one machine from another: the machine itself may choose the
	// rest.
	addressBits = 64
)

// Addresses bounds how many of an account's connections carry callbacks to one address, whatever names lead
// there.
type Addresses struct {
	limit int

	mu       sync.Mutex
	occupied map[addressKey]*occupancy
}

type addressKey struct {
	account string
	at      netip.Prefix
}

// occupancy is how many connections there are to one address, and which dials wait for one.
type occupancy struct {
	n       int
	waiting []chan struct{}
}

// NewAddresses returns Addresses at each of which an account has at most the given number of connections.
func NewAddresses(limit int) *Addresses {
	return &Addresses{limit: limit, occupied: map[addressKey]*occupancy{}}
}

func addressKeyOf(account string, to netip.Addr) addressKey {
	bits := to.BitLen()
	if to.Is6() && !to.Is4In6() {
		bits = addressBits
	}
	at, _ := to.Prefix(bits) // fails for no such length
	return addressKey{account, at}
}

// AcquireNow returns a function that releases the place; not ok: none is free.
func (a *Addresses) AcquireNow(account string, to netip.Addr) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := addressKeyOf(account, to)
	return a.releaser(s), a.tryAcquire(s)
}

// Acquire waits for a place, for a while. The error is callback.ErrAddressBusy.
func (a *Addresses) Acquire(ctx context.Context, account string, to netip.Addr) (leave func(), err error) {
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
	return a.releaser(s), nil // it was granted just then
}

func (a *Addresses) releaser(s addressKey) (leave func()) {
	return sync.OnceFunc(func() { a.release(s) })
}

func (a *Addresses) tryAcquire(s addressKey) bool {
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

// release passes the place to the dial that has waited longest.
func (a *Addresses) release(s addressKey) {
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
func (a *Addresses) cancelWait(s addressKey, freed chan struct{}) bool {
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
