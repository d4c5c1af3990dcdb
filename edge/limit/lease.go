package limit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/wait"
)

const (
	// leaseWindow is the time over which an account's recent rate is counted; a block holds as much as it
	// used in the window before.
	leaseWindow = 250 * time.Millisecond
	// minLease and maxLease bound a block. Below minLease each unit is counted by itself.
	minLease, maxLease = 8, 1000
	// leaseShare is the part of the rest of a quota that one block may hold, so that blocks shrink towards
	// the end: within the last 1,024 units each is counted by itself.
	leaseShare = 128
	// leaseIdle is how long units stay unused before they go back to the account, and leasePoll how often
	// that is checked.
	leaseIdle = time.Second
	leasePoll = 250 * time.Millisecond
	// leaseForget is how long without a session until an account's rate is forgotten.
	leaseForget = time.Minute
	// fillTimeout bounds the counting of a block, which does not end with the caller that happened to find
	// the lease empty.
	fillTimeout = 5 * time.Second
)

// Standing is an account's use of its monthly quota, as far as this process knows.
type Standing struct {
	Account string
	Usage
}

// Standings returns every account that lately started sessions here.
func (q *Quota) Standings() []Standing {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Standing, 0, len(q.leases))
	for account, l := range q.leases {
		if l.quota > 0 {
			u := Usage{Used: l.total - l.left, Limit: l.quota, ResetAt: nextMonth(l.at)}
			all = append(all, Standing{Account: account, Usage: u})
		}
	}
	return all
}

// move is what a caller has to do next to get a unit.
type move struct {
	granted bool
	usage   Usage
	wait    <-chan struct{} // for the block that another caller is counting
	block   int64           // to count; 1: a single unit
}

// next takes a unit from the lease or returns what to do to get one.
func (q *Quota) next(account string, quota int64, now time.Time) move {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lease(account, now)
	l.quota = quota
	switch {
	case l.left > 0 && l.total-l.left < quota:
		l.left--
		l.give(now)
		return move{
			granted: true, usage: Usage{Used: l.total - l.left, Limit: quota, ResetAt: nextMonth(now)},
		}
	case l.filling != nil:
		return move{wait: l.filling}
	}
	block := min(l.recent(now), maxLease, (quota-l.total)/leaseShare)
	if l.left > 0 || block < minLease {
		return move{block: 1}
	}
	l.filling = make(chan struct{})
	return move{block: block}
}

// lease returns the account's lease for the month of now. Units of another month stay counted there: Serve
// gives them back.
func (q *Quota) lease(account string, now time.Time) *lease {
	l := q.leases[account]
	if l == nil || !nextMonth(l.at).Equal(nextMonth(now)) && l.filling == nil {
		if l != nil && l.left > 0 {
			q.debts = append(q.debts, newDebt(account, l.left, l.at))
		}
		l = &lease{at: now, used: time.Now()}
		q.leases[account] = l
	}
	return l
}

// give counts a unit towards the account's rate.
func (l *lease) give(now time.Time) {
	l.roll(now)
	l.count++
	l.used = time.Now()
}

// recent returns how many units the account used in the last whole window.
func (l *lease) recent(now time.Time) int64 {
	l.roll(now)
	return l.last
}

func (l *lease) roll(now time.Time) {
	switch since := now.Sub(l.window); {
	case since <= -leaseWindow, since >= 2*leaseWindow: // callers may come a little out of order
		l.window, l.last, l.count = now, 0, 0
	case since >= leaseWindow:
		l.window, l.last, l.count = now, l.count, 0
	}
}

// fill counts a block for the account and adds it to the lease. Its errors are Take's.
func (q *Quota) fill(ctx context.Context, account string, quota, block int64, now time.Time) (Usage, error) {
	ctx, cancel := wait.Outlasting(ctx, fillTimeout)
	defer cancel()
	total, err := q.count(ctx, account, block, now)
	over := min(max(total-quota, 0), block)

	q.mu.Lock()
	l := q.leases[account]
	close(l.filling)
	l.filling = nil
	if err == nil {
		l.left, l.total, l.used = l.left+block-over, total-over, time.Now()
	}
	q.mu.Unlock()

	if err != nil || over == 0 {
		return Usage{}, err
	}
	// Until this succeeds the total is too high, which refuses and never grants.
	_ = q.giveBack(ctx, account, over, now)
	if over < block {
		return Usage{}, nil
	}
	u := Usage{Used: total - block, Limit: quota, ResetAt: nextMonth(now)}
	q.remember(account, u, now)
	return u, ErrQuotaExceeded
}

// count adds n to the account's counter and returns the new total. The message has an id, so that one without
// an answer is sent again and counts once. If it is not answered in time, the units that it may have counted
// are given back.
func (q *Quota) count(ctx context.Context, account string, n int64, now time.Time) (int64, error) {
	crashpoint.Reach(crashpoint.BeforeCount)
	defer crashpoint.Reach(crashpoint.AfterCount)
	d := newDebt(account, n, now)
	d.counted = rand.Text()
	m := identified(account, now, n, d.counted)
	var uncertain error
	for range wait.Tries(ctx, 1) {
		ack, err := q.counter.Publish(ctx, m)
		counted := err == nil && ack.Duplicate
		if counted { // by an earlier try, perhaps one of the writer's own: the answer has no total
			ack, err = q.counter.Publish(ctx, message(account, now, "+0"))
		}
		switch {
		case err == nil && ack.Total > 0: // an increment's is at least 1
			return int64(min(ack.Total, 1<<62)), nil
		case err == nil: // it is not known whose the unit is
			return 0, fmt.Errorf("count session: %w: the acknowledgement carries no total",
				natsconf.ErrUncertain)
		case counted:
			uncertain = fmt.Errorf("count session: %w: its total: %w", natsconf.ErrUncertain, err)
		case errors.Is(err, natsconf.ErrUncertain):
			uncertain = fmt.Errorf("count session: %w", err)
		case uncertain == nil:
			return 0, fmt.Errorf("count session: %w", err)
		}
		d.heard(err)
	}
	q.owe(d)
	return 0, uncertain
}

// Serve returns unused units, and those that could not be given back before, until ctx ends, and then all
// that are left.
func (q *Quota) Serve(ctx context.Context) error {
	tick := time.NewTicker(leasePoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.settle(ctx, leaseIdle)
		case <-ctx.Done():
			q.settle(ctx, 0)
			return ctx.Err()
		}
	}
}

// String names the actor in the supervisor's log.
func (q *Quota) String() string { return "quota" }
