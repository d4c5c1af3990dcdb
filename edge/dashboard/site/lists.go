package site

import (
	"net/http"
	"time"

	"verifyd/edge/limit"
)

// ListTimeout is how long one page looks back for sessions that a filter lets through.
const ListTimeout = 4 * time.Second

// maxLists bounds the pages that search the store at once, and maxListsEach those of one account, or of the
// operators: as many as api.Config.MaxListing allows the API's lists by default.
const (
	maxLists     = 32
	maxListsEach = maxLists / 4
)

// OperatorLists owns the operators' lists.
const OperatorLists = "operators"

// AcquireList reserves a slot for a page that searches the store. If none is free it answers the request, and
// ok is false.
func (s *Site) AcquireList(w http.ResponseWriter, v Visit, whose string) (release func(), ok bool) {
	release, err := s.lists.Acquire(limit.Share{Of: whose, Max: maxListsEach})
	if err != nil {
		w.Header().Set("Retry-After", "1")
		shown := &v
		if whose == OperatorLists {
			shown = nil
		}
		s.DrawProblem(w, shown, problemTooManyLists)
		return nil, false
	}
	return release, true
}
