package edge

import (
	"errors"
	"sync"
)

// placesShare is the part of the places that one account may take, so that nobody keeps the others out.
const placesShare = 4

// Why there is no place.
var (
	errNoPlace = errors.New("all places are taken")
	errNoShare = errors.New("the account has taken all places that it may")
)

// places bounds how many requests of a kind are under way at once in this process, and how many of one account.
type places struct {
	most int

	mu      sync.Mutex
	all     int
	account map[string]int
}

func newPlaces(most int) *places { return &places{most: most, account: map[string]int{}} }

// take takes a place until leave is called. Its errors are errNoPlace and errNoShare.
func (p *places) take(account string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.account[account] >= max(p.most/placesShare, 1):
		return nil, errNoShare
	case p.all >= p.most:
		return nil, errNoPlace
	}
	p.all++
	p.account[account]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.account[account]--; p.account[account] == 0 {
			delete(p.account, account)
		}
	}, nil
}
