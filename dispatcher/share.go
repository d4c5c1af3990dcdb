package dispatcher

// share divides what there is of something among accounts. An account may have one more while it has fewer
// than are free, and fewer than each account may have at most. So one account alone gets half at most, two
// get a third each, and there is always some left for an account that has none yet: nobody has to take
// anything away again from those who hold it.
type share struct {
	total, each int
	used        int
	of          map[string]int // by account; those that have none are not in it
}

func newShare(total, each int) share { return share{total: total, each: each, of: map[string]int{}} }

// allows reports whether the account may have one more.
func (s *share) allows(account string) bool { return s.of[account] < min(s.each, s.total-s.used) }

func (s *share) add(account string) {
	s.used++
	s.of[account]++
}

func (s *share) drop(account string) {
	s.used--
	if s.of[account]--; s.of[account] == 0 {
		delete(s.of, account)
	}
}

// largest returns how many the account has that has most.
func (s *share) largest() int {
	largest := 0
	for _, n := range s.of {
		largest = max(largest, n)
	}
	return largest
}
