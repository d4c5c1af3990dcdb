package limit

import (
	"errors"
	"fmt"
	"sync"
)

// ErrNoPlace is returned by Places.Acquire when all places are taken, or those that are free are kept for
// others.
var ErrNoPlace = errors.New("no place is free")

// Share is the part of the places that one owner, key or visitor may hold, so that none of them keeps the
// others out. Neither do many of them together: who holds a place already gets none of the last quarter,
// unless the share is all of the places.
type Share struct {
	Of  string // ids of different kinds must not be equal
	Max int
}

// ShareError is returned by Places.Acquire when a share is used up.
type ShareError struct{ Share }

func (e *ShareError) Error() string { return fmt.Sprintf("all %d places of a share are taken", e.Max) }

// Places bounds the operations under way at once in this process. Its methods are safe for concurrent use.
type Places struct {
	max int

	mu    sync.Mutex
	all   int
	taken map[string]int // by Share.Of
}

// NewPlaces returns the given number of free places.
func NewPlaces(maxPlaces int) *Places { return &Places{max: maxPlaces, taken: map[string]int{}} }

// Acquire takes a place, counted towards each of the shares, until release is called. Its errors are a
// *ShareError with the first share that is used up, and ErrNoPlace.
func (p *Places) Acquire(shares ...Share) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	places := p.max
	for _, s := range shares {
		if p.taken[s.Of] >= s.Max {
			return nil, &ShareError{s}
		}
		if p.taken[s.Of] > 0 && s.Max < p.max {
			places = p.max - p.max/4
		}
	}
	if p.all >= places {
		return nil, ErrNoPlace
	}
	p.count(shares, 1)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count(shares, -1)
	}, nil
}

func (p *Places) count(shares []Share, by int) {
	p.all += by
	for _, s := range shares {
		if p.taken[s.Of] += by; p.taken[s.Of] == 0 {
			delete(p.taken, s.Of)
		}
	}
}
