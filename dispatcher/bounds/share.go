package bounds

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
