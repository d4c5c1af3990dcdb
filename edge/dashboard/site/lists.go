package site

import (
	"time"

	"verifyd/edge/places"
)

// ListTimeout is how long one page looks back for sessions that a filter lets through.
const ListTimeout = 4 * time.Second

// slots are for the pages that search the store. Those of the operators are apart.
type slots struct{ accounts, operators *places.Places }

// InSlot calls read, which searches the store for a page, in one of the slots for that. The slot is free
// again before the page is drawn: its client may be slow. If there is none, it returns the error of
// places.Places.Acquire. Fail answers its errors.
func (s slots) InSlot(v Visit, read func() error) error {
	return inSlot(s.accounts, read, v.Asks())
}

// InOperatorSlot is InSlot for the operators' pages.
func (s slots) InOperatorSlot(read func() error) error {
	return inSlot(s.operators, read, places.Request{})
}

func inSlot(of *places.Places, read func() error, who places.Request) error {
	release, err := of.Acquire(who)
	if err != nil {
		return err
	}
	defer release()
	return read()
}
