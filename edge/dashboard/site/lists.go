package site

import (
	"time"

	"verifyd/edge/limit"
)

// ListTimeout is how long one page looks back for sessions that a filter lets through.
const ListTimeout = 4 * time.Second

// maxLists bounds the pages that search the store at once for accounts, and maxListsEach those of one
// account, or of the operators: as many as api.Config.MaxListing allows the API's lists by default.
const (
	maxLists     = 32
	maxListsEach = maxLists / 4
)

// OperatorLists owns the operators' lists.
const OperatorLists = "operators"

// slots are for the pages that search the store. Those of the operators are apart: they look for the reason
// when all others are taken.
type slots struct{ accounts, operators *limit.Places }

func newSlots() slots { return slots{limit.NewPlaces(maxLists), limit.NewPlaces(maxListsEach)} }

// InSlot calls read, which searches the store for a page, in one of the slots for that. The slot is free
// again before the page is drawn: its client may be slow. If there is none, it returns the error of
// limit.Places.Acquire. Fail answers its errors.
func (s slots) InSlot(whose string, read func() error) error {
	places := s.accounts
	if whose == OperatorLists {
		places = s.operators
	}
	release, err := places.Acquire(limit.Share{Of: whose, Max: maxListsEach})
	if err != nil {
		return err
	}
	defer release()
	return read()
}
