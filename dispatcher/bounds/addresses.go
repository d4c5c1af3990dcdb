package bounds

import (
	"context"
	"net/netip"
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

// occupancy is what there is of one address.
type occupancy struct {
	taken chan struct{} // a token for each connection; it has room for as many as there may be
	users int           // how many have a connection or wait for one; under the lock
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
	k := addressKeyOf(account, to)
	at := a.enter(k)
	select {
	case at.taken <- struct{}{}:
		return a.releaser(k, at), true
	default:
		a.exit(k, at)
		return nil, false
	}
}

// Acquire waits for a place, for a while; those that wait for one get it in turn. The error is
// callback.ErrAddressBusy.
func (a *Addresses) Acquire(ctx context.Context, account string, to netip.Addr) (leave func(), err error) {
	if leave, ok := a.AcquireNow(account, to); ok {
		return leave, nil
	}
	k := addressKeyOf(account, to)
	at := a.enter(k)
	timeout := time.NewTimer(addressWait)
	defer timeout.Stop()
	select {
	case at.taken <- struct{}{}:
		return a.releaser(k, at), nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	a.exit(k, at)
	return nil, callback.ErrAddressBusy
}

func (a *Addresses) releaser(k addressKey, at *occupancy) (leave func()) {
	return sync.OnceFunc(func() {
		<-at.taken
		a.exit(k, at)
	})
}

// enter counts one more user of an address.
func (a *Addresses) enter(k addressKey) *occupancy {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.occupied[k]
	if at == nil {
		at = &occupancy{taken: make(chan struct{}, a.limit)}
		a.occupied[k] = at
	}
	at.users++
	return at
}

// exit forgets an address with its last user.
func (a *Addresses) exit(k addressKey, at *occupancy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(a.occupied, k)
	}
}
