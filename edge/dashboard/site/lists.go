package site

import (
	"net/http"
	"time"

	"verifyd/edge/limit"
)

// ListTimeout is how long one page looks back for sessions that a filter lets through.
const ListTimeout = 4 * time.Second

// maxLists bounds the pages that look through the store at once, and maxListsEach those of one account, or of
// the operators, among them: as many as api.Config.MaxListing allows the API's lists by default.
const (
	maxLists     = 32
	maxListsEach = maxLists / 4
)

// OperatorLists is whose the operators' lists are.
const OperatorLists = "operators"

// AcquireList makes a page one of those that look through the store. If too many are made already it answers,
// and ok is false.
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
