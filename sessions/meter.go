package sessions

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
)

const (
	// meterEvery is how often counts are stored. A crash loses what was counted since.
	meterEvery = 5 * time.Second
	// meterDrain bounds the last storing at a stop.
	meterDrain = 5 * time.Second
	// meterWidth is how many counts are stored at once. A synced counter takes a quarter of a millisecond, and the quota's counters
	// share the stream.
	meterWidth = 16
)

// Count names what is counted of an account, per UTC day, live and test sessions apart.
type Count string

// What is counted. Failed sessions are counted by reason, ended callbacks by verdict, one for each attempt that is final.
const (
	CountStarted       Count = "started"
	CountVerified      Count = "verified"
	CountDeclined      Count = "failed_declined"
	CountRefused       Count = "failed_refused"
	CountCanceled      Count = "canceled"
	CountDelivered     Count = "callback_delivered"
	CountRejected      Count = "callback_rejected"
	CountUnknown       Count = "callback_unknown"
	CountUndeliverable Count = "callback_undeliverable"
	CountRateLimited   Count = "rate_limited"
	CountQuotaExceeded Count = "quota_exceeded"
	CountReplayed      Count = "replayed" // repeats of a start under an idempotency key
)

// Meter is the actor that gathers statistics in memory and adds them to the counters in StreamUsage every few seconds, and at its
// stop. They are for people: a crash loses the last seconds, and so does a counter whose acknowledgement does not come. The quota
// is counted elsewhere, exactly.
type Meter struct {
	usage *natsconf.Writer

	mu     sync.Mutex
	counts map[metered]int64
}

// metered is one counter.
type metered struct {
	account string
	test    bool
	day     int64 // since 1970, UTC
	what    Count
}

// NewMeter makes a meter on a writer of StreamUsage. It stores nothing until served.
func NewMeter(usage *natsconf.Writer) *Meter {
	return &Meter{usage: usage, counts: map[metered]int64{}}
}

// String names the actor in the supervisor's log.
func (m *Meter) String() string { return "meter" }

// Count counts one thing that happened at an instant. On a nil meter it does nothing.
func (m *Meter) Count(account string, test bool, what Count, at time.Time) {
	if m == nil {
		return
	}
	key := metered{account: account, test: test, day: at.Unix() / secondsPerDay, what: what}
	m.mu.Lock()
	m.counts[key]++
	m.mu.Unlock()
}

const secondsPerDay = 24 * 60 * 60

// Serve stores counts until ctx ends, and then those that are left.
func (m *Meter) Serve(ctx context.Context) error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), meterDrain)
			defer cancel()
			m.flush(last)
			return ctx.Err()
		}
	}
}

// flush adds what was counted to the stored counters.
func (m *Meter) flush(ctx context.Context) {
	m.mu.Lock()
	counts := m.counts
	m.counts = make(map[metered]int64, len(counts))
	m.mu.Unlock()
	places := make(chan struct{}, meterWidth)
	var wg sync.WaitGroup
	for key, n := range counts {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			m.store(ctx, key, n)
		})
	}
	wg.Wait()
}

func (m *Meter) store(ctx context.Context, key metered, n int64) {
	_, err := m.usage.Publish(ctx, &nats.Msg{
		Subject: key.subject(), Header: nats.Header{"Nats-Incr": {"+" + strconv.FormatInt(n, 10)}},
	})
	if errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrStoreFull) {
		m.mu.Lock()
		m.counts[key] += n // certainly not stored: with the next ones
		m.mu.Unlock()
	}
}

func (k metered) subject() string {
	return statSubject(k.account, time.Unix(k.day*secondsPerDay, 0), kindOf(k.test)+string(k.what))
}

// kindOf opens the last word of a counter's subject.
func kindOf(test bool) string {
	if test {
		return "test_"
	}
	return "live_"
}

// statSubject is where a count of one account and day stands.
func statSubject(account string, day time.Time, what string) string {
	return "stat." + account + "." + day.UTC().Format("20060102") + "." + what
}

// QuotaSubject is where an account's sessions of a UTC month are counted towards its quota (natsconf has the table).
func QuotaSubject(account string, at time.Time) string {
	return "usage." + account + "." + at.UTC().Format("200601")
}

// Count counts something about an account on the store's meter, now.
func (st *Store) Count(account string, test bool, what Count) {
	st.meter.Count(account, test, what, st.now())
}

// CountSettled counts the end of an attempt, unless it is to be followed by another one.
func (st *Store) CountSettled(s Session, r Result) {
	what, counted := map[Verdict]Count{
		VerdictDelivered: CountDelivered, VerdictRejected: CountRejected, VerdictUnknown: CountUnknown, VerdictUndeliverable: CountUndeliverable,
	}[r.Verdict]
	if counted && r.Next.IsZero() {
		st.Count(s.Account, s.Test, what)
	}
}

func (st *Store) countCompleted(c Completion) {
	switch c.State {
	case Verified:
		st.Count(c.Account, c.Test, CountVerified)
	case Failed:
		st.Count(c.Account, c.Test, Count("failed_"+string(c.Reason)))
	case Canceled:
		st.Count(c.Account, c.Test, CountCanceled)
	case Pending, Expired: // no completion has these
	}
}
