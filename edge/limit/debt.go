package limit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
)

const (
	// payWithin bounds one try to give units back, on a context of its own: the caller may be gone by then.
	payWithin = 2 * time.Second
	// owedFor is how long a message that was not answered is sent again. It is below the two minutes for
	// which the servers recognize a message's id, so that no try counts twice. What was certainly not stored
	// has all the time that the store takes to come back.
	owedFor = 90 * time.Second
	// maxDebts bounds the debts that wait for another try; beyond it, units are lost to their accounts, as
	// after a crash.
	maxDebts = 10_000
)

// debt is units that an account is to get back.
type debt struct {
	account string
	at      time.Time // an instant of the month that they belong to
	n       int64
	// counted is the id of the message that counted them, if it was not answered: the same message, sent once
	// more, first settles whether it did. Empty: they are counted.
	counted string
	id      string // of the message that gives them back
	// unsure is when the message that is under way was first not answered, by the process's own clock; zero:
	// it was not, or was certainly not stored
	unsure time.Time
	// free reports whether they are to be given back, after all; nil: they are
	free func(context.Context) (bool, error)
}

func newDebt(account string, n int64, at time.Time) debt {
	return debt{account: account, at: at, n: n, id: rand.Text()}
}

// giveBack returns units to an account. If it fails, Serve tries again.
func (q *Quota) giveBack(ctx context.Context, account string, n int64, now time.Time) error {
	return q.payOrOwe(ctx, newDebt(account, n, now))
}

func (q *Quota) payOrOwe(ctx context.Context, d debt) error {
	err := q.pay(ctx, &d)
	if err != nil {
		q.owe(d)
	}
	return err
}

// pay tries once. A repeat of a message without an answer is harmless.
func (q *Quota) pay(ctx context.Context, d *debt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), payWithin)
	defer cancel()
	if d.free != nil {
		if free, err := d.free(ctx); err != nil || !free {
			return err
		}
		d.free = nil
	}
	if d.counted != "" {
		if err := q.publish(ctx, d, d.n, d.counted); err != nil {
			return fmt.Errorf("count %d units of quota: %w", d.n, err)
		}
		d.counted, d.unsure = "", time.Time{}
	}
	if err := q.publish(ctx, d, -d.n, d.id); err != nil {
		return fmt.Errorf("give back %d units of quota: %w", d.n, err)
	}
	return nil
}

func (q *Quota) publish(ctx context.Context, d *debt, n int64, id string) error {
	_, err := q.counter.Publish(ctx, identified(d.account, d.at, n, id))
	d.heard(err)
	return err
}

// heard notes the answer to the message that is under way.
func (d *debt) heard(err error) {
	if errors.Is(err, natsconf.ErrUncertain) && d.unsure.IsZero() {
		d.unsure = time.Now()
	}
}

// identified is a message that counts once, however often it is sent.
func identified(account string, now time.Time, n int64, id string) *nats.Msg {
	sign := ""
	if n > 0 {
		sign = "+"
	}
	m := message(account, now, sign+strconv.FormatInt(n, 10))
	m.Header[nats.MsgIdHdr] = []string{id}
	return m
}

// owe keeps debts for Serve.
func (q *Quota) owe(all ...debt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range all {
		if len(q.debts) < maxDebts && (d.unsure.IsZero() || time.Since(d.unsure) < owedFor) {
			q.debts = append(q.debts, d)
		}
	}
}

// settle pays debts, and units that were not used for a while. If one try fails, the others wait, too, and
// come before it the next time.
func (q *Quota) settle(ctx context.Context, idle time.Duration) {
	all := q.due(idle)
	for i := range all {
		if q.pay(ctx, &all[i]) != nil {
			q.owe(append(all[i+1:], all[i])...)
			return
		}
	}
}

// due takes out the debts, and from the leases the units that were not touched for a while.
func (q *Quota) due(idle time.Duration) []debt {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.debts
	q.debts = nil
	for account, l := range q.leases {
		since := time.Since(l.used)
		if l.left > 0 && since >= idle {
			all = append(all, newDebt(account, l.left, l.at))
			l.total, l.left = l.total-l.left, 0
		}
		if l.left == 0 && l.filling == nil && since >= leaseForget {
			delete(q.leases, account)
		}
	}
	return all
}
