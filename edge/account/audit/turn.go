package audit

import (
	"context"
	"fmt"
	"sync"

	"verifyd/natsconf"
)

// turns are the accounts that this process changes, or wants to.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// turn is one account's.
type turn struct {
	taken chan struct{} // holds one: the caller that has the turn
	asked int           // callers that have the turn or wait for it
}

// Turn waits until this process has no other change of an account under way. Changes of other processes meet
// in the compare-and-set; without turns, hundreds at once here would race for each number of an account's
// audit log. What takes a right away takes no turn: it is among the few that race, and waits for nobody.
func (l *Log) Turn(ctx context.Context, account string) (done func(), err error) {
	t := l.turns.ask(account)
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; l.turns.leave(account) }, nil
	case <-ctx.Done():
		l.turns.leave(account)
		return nil, fmt.Errorf("wait for another change: %w: %w", natsconf.ErrUnavailable, ctx.Err())
	}
}

func (ts *turns) ask(account string) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.of[account]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		ts.of[account] = t
	}
	t.asked++
	return t
}

func (ts *turns) leave(account string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.of[account].asked--; ts.of[account].asked == 0 {
		delete(ts.of, account)
	}
}
