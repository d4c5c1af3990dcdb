package site

import (
	"time"

	"verifyd/edge/limit"
)

// ListTimeout is how long one page looks back for sessions that a filter lets through.
const ListTimeout = 4 * time.Second

// maxLists bounds the pages that search the store at once for accounts, and maxListsEach those of one
// owner, of one person, or of the operators: as many as api.Config.MaxListing allows the API's lists by
// default.
const (
	maxLists     = 32
	maxListsEach = maxLists / 4
)

// slots are for the pages that search the store. Those of the operators are apart: they look for the reason
// when all others are taken.
type slots struct{ accounts, operators *limit.Places }

func newSlots() slots { return slots{limit.NewPlaces(maxLists), limit.NewPlaces(maxListsEach)} }

// InSlot calls read, which searches the store for a page, in one of the slots for that. The slot is free
// again before the page is drawn: its client may be slow. If there is none, it returns the error of
// limit.Places.Acquire. Fail answers its errors.
func (s slots) InSlot(v Visit, read func() error) error {
	return inSlot(s.accounts, read, v.shares(maxListsEach)...)
}

// InOperatorSlot is InSlot for the operators' pages.
func (s slots) InOperatorSlot(read func() error) error { return inSlot(s.operators, read) }

func inSlot(places *limit.Places, read func() error, shares ...limit.Share) error {
	release, err := places.Acquire(shares...)
	if err != nil {
		return err
	}
	defer release()
	return read()
}
