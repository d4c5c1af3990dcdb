package limit

import (
	"errors"
	"fmt"
	"sync"
)

// ErrNoPlace is returned by Places.Acquire when all places are taken.
var ErrNoPlace = errors.New("all places are taken")

// Share is the part of the places that one account, key or visitor may hold, so that none of them keeps the
// others out.
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
	for _, s := range shares {
		if p.taken[s.Of] >= s.Max {
			return nil, &ShareError{s}
		}
	}
	if p.all >= p.max {
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
