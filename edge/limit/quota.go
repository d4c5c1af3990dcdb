package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
)

const (
	// DefaultQuota is how many sessions an account may start in a UTC month when it has no quota of its own.
	DefaultQuota = 100_000
	// exhaustedFor is how long an account that is over its quota is refused without asking. A unit given back by another edge,
	// or a quota raised there, is seen after at most this.
	exhaustedFor = time.Second
	// giveBackTimeout bounds giving a unit back, on a context of its own: the caller may be gone by then.
	giveBackTimeout = 2 * time.Second
	// incrHeader is the header of a counter stream's message; the stream adds its value to the subject's total.
	incrHeader = "Nats-Incr"
)

// ErrQuotaExceeded says that the account has started as many sessions this month as it may.
var ErrQuotaExceeded = errors.New("the monthly quota is used up")

// Usage is where an account stands in its month.
type Usage struct {
	Used    int64     // sessions started this month, this one included where it was granted
	Limit   int64     // the quota that binds the account
	ResetAt time.Time // when the next month begins, 00:00 UTC
}

// publisher is a natsconf.Writer of StreamUsage, made by NewSingleWriter: a batch's acknowledgement would carry one total for
// all its messages.
type publisher interface {
	Publish(ctx context.Context, msg *nats.Msg) (natsconf.Ack, error)
}

// Quota counts sessions per account and UTC month, exactly, over any number of edges. Its methods are safe for concurrent use.
type Quota struct {
	counter  publisher
	standard int64

	mu        sync.Mutex
	exhausted map[string]refusal // by account
	sweepAt   int
}

// refusal is what is remembered of an account that is over its quota.
type refusal struct {
	until time.Time
	usage Usage
}

// NewQuota makes a quota on a writer of StreamUsage. standard is the quota of accounts that have none of their own.
func NewQuota(counter *natsconf.Writer, standard int64) *Quota {
	return &Quota{counter: counter, standard: standard, exhausted: map[string]refusal{}, sweepAt: sweepFrom}
}

// Take uses one unit of the account's quota for the UTC month of now; a quota of 0 means the service's. It returns nil only
// where the unit is the account's. ErrQuotaExceeded comes with the usage; the unit is given back by then. The other errors are
// natsconf's ErrUnavailable and ErrStoreFull, where nothing was counted, and ErrUncertain, where the unit may be counted and
// stays so.
//
// At the very end of a quota, a unit that another caller is about to give back may still be counted: such a caller is refused
// although a moment later it would not be. The other way round it never is.
func (q *Quota) Take(ctx context.Context, account string, quota int64, now time.Time) (Usage, error) {
	if quota == 0 {
		quota = q.standard
	}
	if u, known := q.remembered(account, quota, now); known {
		return u, ErrQuotaExceeded
	}
	crashpoint.Reach(crashpoint.BeforeCount)
	ack, err := q.counter.Publish(ctx, message(account, now, "+1"))
	crashpoint.Reach(crashpoint.AfterCount)
	if err != nil {
		return Usage{}, fmt.Errorf("count session: %w", err)
	}
	if ack.Total == 0 { // an increment's total is at least 1; without a total nobody knows whose the unit is
		return Usage{}, fmt.Errorf("count session: %w: the acknowledgement carries no total", natsconf.ErrUncertain)
	}
	u := Usage{Used: int64(min(ack.Total, 1<<62)), Limit: quota, ResetAt: nextMonth(now)}
	if u.Used <= quota {
		return u, nil
	}
	u.Used--
	q.remember(account, u, now)
	// Where this fails the total stays one too high, which refuses and never grants.
	_ = q.giveBack(ctx, account, now)
	return u, ErrQuotaExceeded
}

// GiveBack returns a unit that Take gave at now, for a session that could not be created. It outlasts the caller's context.
// Its errors are those of natsconf; the unit is then lost to the account, and a repeat after ErrUncertain might return it
// twice.
func (q *Quota) GiveBack(ctx context.Context, account string, now time.Time) error {
	err := q.giveBack(ctx, account, now)
	q.mu.Lock()
	delete(q.exhausted, account)
	q.mu.Unlock()
	return err
}

func (q *Quota) giveBack(ctx context.Context, account string, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if _, err := q.counter.Publish(ctx, message(account, now, "-1")); err != nil {
		return fmt.Errorf("give back a unit of quota: %w", err)
	}
	return nil
}

// remembered says whether the account was found over this quota, or a higher one, within the last second of the same month.
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
		for id, r := range q.exhausted {
			if !now.Before(r.until) {
				delete(q.exhausted, id)
			}
		}
		q.sweepAt = max(sweepFrom, 2*len(q.exhausted))
	}
	q.exhausted[account] = refusal{until: now.Add(exhaustedFor), usage: u}
}

func message(account string, now time.Time, incr string) *nats.Msg {
	return &nats.Msg{Subject: usageSubject(account, now), Header: nats.Header{incrHeader: {incr}}}
}

// usageSubject is where an account's sessions of a month are counted (natsconf has the table).
func usageSubject(account string, now time.Time) string {
	return "usage." + account + "." + now.UTC().Format("200601")
}

func nextMonth(now time.Time) time.Time {
	year, month, _ := now.UTC().Date()
	return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
}
