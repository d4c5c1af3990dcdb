// Package bounds keeps deliveries out of each other's way: how many places an account may hold, what waits
// for each account, and what waits for a place. It knows accounts by their names, and nothing of deliveries.
//
// Its law: places are divided among accounts, so that no account can use up what another needs, and nothing
// has to be removed from its holder. Nothing here starts a goroutine; a waiter is signalled by a token in a
// channel of one.
package bounds

import (
	"context"
	"sync/atomic"
)

// Signal leaves a token, unless there is one.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Share divides a number of slots among accounts. An account may have one more while it has fewer than are
// free, and fewer than each account may have at most. So a single account gets at most half, two get a third
// each, and there are always some left for an account that has none yet: nothing has to be removed from those
// that hold it. Its user holds a lock.
type Share struct {
	total, each int
	used        int
	of          map[string]int // by account; those that have none are not in it
}

// NewShare returns a share of total places, of which one account has at most each.
func NewShare(total, each int) Share { return Share{total: total, each: each, of: map[string]int{}} }

// Allows reports whether the account may have one more.
func (s *Share) Allows(account string) bool { return s.of[account] < min(s.each, s.total-s.used) }

// Add records that the account has one more.
func (s *Share) Add(account string) {
	s.used++
	s.of[account]++
}

// Drop records that the account has one less.
func (s *Share) Drop(account string) {
	s.used--
	if s.of[account]--; s.of[account] == 0 {
		delete(s.of, account)
	}
}

// Used returns how many all accounts have.
func (s *Share) Used() int { return s.used }

// largest returns how many the account with the most has.
func (s *Share) largest() int {
	largest := 0
	for _, n := range s.of {
		largest = max(largest, n)
	}
	return largest
}

// Gate keeps a process from starting more work than the part behind it can keep up with. Work that is inside
// counts. None is refused, but a caller that starts more waits until little enough is inside.
type Gate struct {
	limit  int64
	inside atomic.Int64
	relief chan struct{} // a token when there is room again
}

// NewGate returns a gate that lets more start while at most the given number are inside.
func NewGate(limit int) *Gate { return &Gate{limit: int64(limit), relief: make(chan struct{}, 1)} }

// Enter records that one more is inside.
func (g *Gate) Enter() { g.inside.Add(1) }

// Leave records that one is no longer inside.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == g.limit {
		Signal(g.relief)
	}
}

// Wait returns when there is room, or ctx has ended.
func (g *Gate) Wait(ctx context.Context) {
	for g.inside.Load() > g.limit {
		select {
		case <-g.relief:
		case <-ctx.Done():
			return
		}
	}
	Signal(g.relief) // there may be others who wait
}
