package limit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/sessions/stats"
)

const (
	// exhaustedFor is how long an account that is over its quota is refused without a look-up. A unit given
	// back by another edge, or a quota raised there, is seen after at most this time.
	exhaustedFor = time.Second
	// incrHeader is the header of a counter stream's message; the stream adds its value to the subject's
	// total.
	incrHeader = "Nats-Incr"
)

// ErrQuotaExceeded is returned if the account has started as many sessions this month as it may.
var ErrQuotaExceeded = errors.New("the monthly quota is used up")

// Usage is an account's use of its monthly quota.
type Usage struct {
	// sessions started this month as far as is known here, this one included if it was granted
	Used    int64
	Limit   int64     // the quota that binds the account
	ResetAt time.Time // when the next month begins, 00:00 UTC
}

// publisher is a natsconf.Writer of StreamUsage, made by NewSingleWriter: a batch's acknowledgement would
// carry one total for all its messages.
type publisher interface {
	Publish(ctx context.Context, msg *nats.Msg) (natsconf.Ack, error)
}

// Quota counts sessions per account and UTC month, exactly, over any number of edges. An account that starts
// many gets its units in blocks, so that the common session pays for no counter; Serve gives back unused
// units. Its methods are safe for concurrent use.
type Quota struct {
	counter  publisher
	standard int64

	mu        sync.Mutex
	exhausted map[string]refusal // by account
	sweepAt   int
	leases    map[string]*lease // by account
	debts     []debt            // units that could not be given back yet, and leases of past months
}

// lease is a block of an account's units that are counted and not used yet, with the account's recent rate.
type lease struct {
	at      time.Time // an instant of the month that the units belong to
	left    int64
	total   int64         // the counter, as last heard
	quota   int64         // that bound the account when a unit was last requested; 0: none was
	used    time.Time     // when a unit was last taken or counted, by the process's own clock
	filling chan struct{} // closed when the block under way is counted; nil: none is

	window      time.Time // when the window began
	count, last int64     // units given in this window, and in the one before it
}

// refusal is what is remembered about an account that is over its quota.
type refusal struct {
	until time.Time
	usage Usage
}

// NewQuota returns a quota on a writer of StreamUsage; it works without being served, but then keeps the
// units that it does not use. standard is the quota of accounts that have none of their own.
func NewQuota(counter *natsconf.Writer, standard int64) *Quota {
	return &Quota{
		counter: counter, standard: standard, exhausted: map[string]refusal{}, leases: map[string]*lease{},
		sweepAt: sweepFrom,
	}
}

// Limit returns the quota that binds an account: its own, or the service's if that is 0.
func (q *Quota) Limit(own int64) int64 {
	if own == 0 {
		return q.standard
	}
	return own
}

// Take uses one unit of the account's quota for the UTC month of now; a quota of 0 means the service's. It
// returns nil only if the account has the unit. ErrQuotaExceeded comes with the usage; the unit is given back
// by then. The other errors are natsconf's ErrUnavailable and ErrStoreFull, if nothing was counted, and
// ErrUncertain, if the unit may be counted until Serve has given it back.
//
// While another edge holds units that it may not use, this one may refuse within a second or two of the
// quota's end: blocks are at most 1/128 of the units left, and single units near the end.
//
// At the very end of a quota, a unit that another caller is about to give back may still be counted: a caller
// is then refused although a moment later it would not be. It is never granted a unit that it should not get.
func (q *Quota) Take(ctx context.Context, account string, quota int64, now time.Time) (Usage, error) {
	quota = q.Limit(quota)
	if u, known := q.remembered(account, quota, now); known {
		return u, ErrQuotaExceeded
	}
	for {
		m := q.next(account, quota, now)
		switch {
		case m.granted:
			return m.usage, nil
		case m.wait != nil:
			select {
			case <-m.wait:
			case <-ctx.Done():
				return Usage{}, fmt.Errorf("count session: %w: %w", natsconf.ErrUnavailable, ctx.Err())
			}
		case m.block == 1:
			return q.single(ctx, account, quota, now)
		default:
			if u, err := q.fill(ctx, account, quota, m.block, now); err != nil {
				return u, err
			}
		}
	}
}

// single counts one unit by itself.
func (q *Quota) single(ctx context.Context, account string, quota int64, now time.Time) (Usage, error) {
	total, err := q.count(ctx, account, 1, now)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Used: total, Limit: quota, ResetAt: nextMonth(now)}
	if u.Used <= quota {
		q.mu.Lock()
		l := q.lease(account, now)
		l.total = max(l.total, total)
		l.give(now)
		q.mu.Unlock()
		return u, nil
	}
	u.Used--
	q.remember(account, u, now)
	// Until this succeeds the total is one too high, which refuses and never grants.
	_ = q.giveBack(ctx, account, 1, now)
	return u, ErrQuotaExceeded
}

// GiveBack returns a unit that Take granted at now, for a session that could not be created. It outlasts the
// caller's context. Its errors are those of natsconf; then Serve tries again.
func (q *Quota) GiveBack(ctx context.Context, account string, now time.Time) error {
	return q.GiveBackIf(ctx, account, now, nil)
}

// GiveBackIf is GiveBack for a unit that is used after all unless free reports that it is not. If free does
// not know it yet, and returns an error, Serve asks again.
func (q *Quota) GiveBackIf(ctx context.Context, account string, now time.Time,
	free func(context.Context) (bool, error)) error {
	d := newDebt(account, 1, now)
	d.free = free
	err := q.payOrOwe(ctx, d)
	q.mu.Lock()
	delete(q.exhausted, account)
	q.mu.Unlock()
	return err
}

// remembered reports whether the account was found over this quota, or a higher one, within the last second
// of the same month.
func (q *Quota) remembered(account string, quota int64, now time.Time) (Usage, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, known := q.exhausted[account]
	if !known || !now.Before(r.until) || !nextMonth(now).Equal(r.usage.ResetAt) || quota > r.usage.Limit {
		return Usage{}, false
	}
	r.usage.Limit = quota
	return r.usage, true
}

func (q *Quota) remember(account string, u Usage, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.exhausted) >= q.sweepAt {
		maps.DeleteFunc(q.exhausted, func(_ string, r refusal) bool { return !now.Before(r.until) })
		q.sweepAt = max(sweepFrom, 2*len(q.exhausted))
	}
	q.exhausted[account] = refusal{until: now.Add(exhaustedFor), usage: u}
}

func message(account string, now time.Time, incr string) *nats.Msg {
	return &nats.Msg{Subject: stats.QuotaSubject(account, now), Header: nats.Header{incrHeader: {incr}}}
}

func nextMonth(now time.Time) time.Time {
	year, month, _ := now.UTC().Date()
	return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
}
