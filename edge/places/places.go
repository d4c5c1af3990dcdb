// Package places has the bounded places of an edge: of requests that wait for the store, lists that are read,
// exports, connections that stay open, and others.
//
// The law: they are one mechanism (Places), and their figures one table (Pools). They are counted by owner:
// what one person's accounts use counts together, and always leaves a place for who has none. The package
// knows no accounts.
package places

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrNoPlace is returned for a place that cannot be had: all are taken, or those that are free are kept for
// others. A *ShareError is one, too.
var ErrNoPlace = errors.New("no place is free")

// Share is the part of a pool's places that somebody may hold.
type Share struct {
	Of  string
	Max int
}

// ShareError is returned if a share is used up.
type ShareError struct{ Share }

func (e *ShareError) Error() string { return fmt.Sprintf("all %d places of a share are taken", e.Max) }

// Unwrap returns ErrNoPlace.
func (e *ShareError) Unwrap() error { return ErrNoPlace }

// Request is who asks for a place.
type Request struct {
	Of     string        // whose it is: an account's owner, or an address (SiteOf); empty: nobody's
	And    string        // who acts there, if that is another person; counts as Of does
	Part   string        // what of theirs it is: a key, an account, a person; empty: they are not counted
	Must   bool          // it passes where others no longer do: a start, a return, a change
	Waited time.Duration // how much of its time to wait for the store is over
}

// Places are those of a pool, in this process. Its methods are safe for concurrent use.
//
// Who holds a place gets another while they have fewer than their share and fewer than are free, and not one
// of the last, which are for those who hold none. So one who is alone has half of them at most, two have a
// third each, and there is always one for a newcomer, without anything being taken from its holder. Who may
// have all places is not bound by that.
type Places struct {
	Pool

	mu    sync.Mutex
	all   int
	of    map[Share]int
	queue []*waiter // in the order in which they came
}

// waiter waits for a place.
type waiter struct {
	who Request
	got chan func() // the release of the place that it was given
}

// New returns a pool's places, all of them free.
func New(p Pool) *Places { return &Places{Pool: p, of: map[Share]int{}} }

// Acquire takes a place until release is called, once. Its errors are ErrNoPlace and, of it, a *ShareError
// with the first share that is used up; release does nothing then.
func (p *Places) Acquire(r Request) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(r)
}

// Wait is Acquire for a request that waits until it gets a place, in the order in which they came among those
// who may have one. Its error is that of ctx, if that ends before.
func (p *Places) Wait(ctx context.Context, r Request) (release func(), err error) {
	w := &waiter{r, make(chan func(), 1)}
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.grant()
	p.mu.Unlock()
	select {
	case release = <-w.got:
		return release, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(other *waiter) bool { return other == w })
	select {
	case release = <-w.got: // just then
		return release, nil
	default:
		return nil, ctx.Err()
	}
}

// grant hands places to those who wait. p.mu is held.
func (p *Places) grant() {
	p.queue = slices.DeleteFunc(p.queue, func(w *waiter) bool {
		release, err := p.take(w.who)
		if err == nil {
			w.got <- release
		}
		return err == nil
	})
}

// take is Acquire. p.mu is held.
func (p *Places) take(r Request) (release func(), err error) {
	shares := p.shares(r)
	if err := p.admits(r, shares); err != nil {
		return func() {}, err
	}
	if p.Aged == 0 {
		p.add(shares, 1)
		return func() { p.count(shares, -1) }, nil
	}
	young := time.AfterFunc(p.Aged, func() { p.count(shares, 1) })
	return func() {
		if !young.Stop() {
			p.count(shares, -1)
		}
	}, nil
}

// shares returns those that a request counts towards.
func (p *Places) shares(r Request) (all []Share) {
	for _, s := range []Share{{r.Part, p.Part}, {r.Of, p.Each}, {r.And, p.Each}} {
		if s.Of != "" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// admits returns nil if a request may have a place. p.mu is held.
func (p *Places) admits(r Request, shares []Share) (err error) {
	free := p.free()
	if !r.Must {
		free -= p.Kept
	}
	if free <= 0 {
		err = ErrNoPlace
	}
	for _, s := range shares {
		switch own := p.of[s]; {
		case own >= s.Max:
			return &ShareError{s}
		case own > 0 && s.Max < p.Size && (own >= free || free <= p.Last):
			err = ErrNoPlace
		}
	}
	return err
}

// free returns how many places are free. What somebody holds beyond their share, since it all came before any
// of it counted, is not taken from others. p.mu is held.
func (p *Places) free() int {
	free := p.Size - p.all
	if p.Aged > 0 && p.all > 0 {
		for s, n := range p.of {
			free += max(n-s.Max, 0)
		}
	}
	return free
}

// count records that a place counts from now on, or is free again.
func (p *Places) count(shares []Share, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(shares, n)
	p.grant()
}

// add is count for what makes nothing free. p.mu is held.
func (p *Places) add(shares []Share, n int) {
	p.all += n
	for _, s := range shares {
		if p.of[s] += n; p.of[s] == 0 {
			delete(p.of, s)
		}
	}
}
