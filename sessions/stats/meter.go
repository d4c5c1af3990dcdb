package stats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/sessions"
)

const (
	// meterEvery is how often counts are stored. A crash loses the counts since the last time.
	meterEvery = 5 * time.Second
	// meterDrain bounds the last storing at a stop.
	meterDrain = 5 * time.Second
	// meterWidth is how many counts are stored at once. A synced counter takes a quarter of a millisecond,
	// and the quota's counters share the stream.
	meterWidth = 16
	// expirySlot is the resolution with which ends of lifetimes are kept in memory: an account has at most
	// Lifetime/expirySlot of them.
	expirySlot = 10 * time.Second
)

// Meter is the actor that gathers statistics in memory and adds them to the counters in StreamUsage every
// few seconds, and at its stop. They are for people: a crash loses the last seconds, and so does a counter
// whose acknowledgement does not come. The quota is counted elsewhere, exactly.
type Meter struct {
	// Now is the clock by which lifetimes end: that of the store that counts. It is set before Serve.
	Now func() time.Time

	usage *natsconf.Writer

	mu       sync.Mutex
	counts   map[counter]int64
	expiries map[expiryCount]int64
}

// counter is one counter.
type counter struct {
	account string
	test    bool
	day     int64 // since 1970, UTC
	what    Count
}

// NewMeter returns a meter on a writer of StreamUsage. It stores nothing until served.
func NewMeter(usage *natsconf.Writer) *Meter {
	return &Meter{Now: time.Now, usage: usage, counts: map[counter]int64{}, expiries: map[expiryCount]int64{}}
}

// expiryCount is a count of expired sessions that is due at the end of a slot.
type expiryCount struct {
	counter

	slot int64 // of expirySlot, since 1970
}

// String names the actor in the supervisor's log.
func (m *Meter) String() string { return "meter" }

// Count counts one event at an instant. On a nil meter it does nothing.
func (m *Meter) Count(account string, test bool, what Count, at time.Time) {
	if m == nil {
		return
	}
	key := counter{account: account, test: test, day: at.Unix() / secondsPerDay, what: what}
	m.mu.Lock()
	m.counts[key]++
	m.mu.Unlock()
}

const secondsPerDay = 24 * 60 * 60

// CountStarted counts a new session.
func (m *Meter) CountStarted(s sessions.Session) {
	m.CountOf(s, CountStarted)
	m.countExpiry(s, 1)
}

// CountOf counts something about a session, on the day on which it was started.
func (m *Meter) CountOf(s sessions.Session, what Count) {
	m.Count(s.Account, s.Test, what, s.CreatedAt)
}

// CountCompleted counts the end of a session.
func (m *Meter) CountCompleted(c sessions.Completion) {
	what := CountCanceled
	switch c.State {
	case sessions.Verified:
		what = CountVerified
	case sessions.Failed:
		what = Count("failed_" + string(c.Reason))
	case sessions.Canceled:
	case sessions.Pending, sessions.Expired: // no completion has these
		return
	}
	m.CountOf(c.Session, what)
	if c.Network != "" {
		m.CountOf(c.Session, what.Of(c.Network))
	}
	m.countExpiry(c.Session, -1)
}

// countExpiry counts a session as expired when its lifetime is over: by 1 when it is started, by -1 when it
// is completed, whichever processes do that. Nothing is kept of a session, and no search for sessions that
// simply expired is needed.
func (m *Meter) countExpiry(s sessions.Session, by int64) {
	if m == nil {
		return
	}
	key := expiryCount{
		counter: counter{
			account: s.Account, test: s.Test, day: s.CreatedAt.Unix() / secondsPerDay, what: CountExpired,
		},
		slot: s.ExpiresAt.UnixNano() / int64(expirySlot),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expiries[key] += by; m.expiries[key] == 0 {
		delete(m.expiries, key)
	}
}

// Serve stores counts until ctx ends, and then those that are left.
func (m *Meter) Serve(ctx context.Context) error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.FlushOnce(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), meterDrain)
			defer cancel()
			// This process is not there later to count the lifetimes that still run. Sessions that are
			// completed yet are subtracted again.
			m.flush(last, m.Now().Add(sessions.Lifetime+2*expirySlot))
			return ctx.Err()
		}
	}
}

// FlushOnce stores the counts until now.
func (m *Meter) FlushOnce(ctx context.Context) { m.flush(ctx, m.Now()) }

// flush adds the counts to the stored counters, and the lifetimes that end before an instant.
func (m *Meter) flush(ctx context.Context, before time.Time) {
	m.mu.Lock()
	for key, n := range m.expiries {
		if key.slot < before.UnixNano()/int64(expirySlot) {
			m.counts[key.counter] += n
			delete(m.expiries, key)
		}
	}
	counts := m.counts
	m.counts = make(map[counter]int64, len(counts))
	m.mu.Unlock()
	slots := make(chan struct{}, meterWidth)
	var wg sync.WaitGroup
	for key, n := range counts {
		if n == 0 {
			continue // as many began as ended
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			m.store(ctx, key, n)
		})
	}
	wg.Wait()
}

func (m *Meter) store(ctx context.Context, key counter, n int64) {
	_, err := m.usage.Publish(ctx, &nats.Msg{
		Subject: key.subject(), Header: nats.Header{"Nats-Incr": {fmt.Sprintf("%+d", n)}},
	})
	if errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrStoreFull) {
		m.mu.Lock()
		m.counts[key] += n // certainly not stored: with the next ones
		m.mu.Unlock()
	}
}

func (k counter) subject() string {
	return statSubject(k.account, time.Unix(k.day*secondsPerDay, 0), kindOf(k.test)+string(k.what))
}

// kindOf opens the last word of a counter's subject.
func kindOf(test bool) string {
	if test {
		return "test_"
	}
	return "live_"
}

// statSubject is the subject of a count of one account and day.
func statSubject(account string, day time.Time, what string) string {
	return "stat." + account + "." + day.UTC().Format("20060102") + "." + what
}

// QuotaSubject is the subject on which an account's sessions of a UTC month are counted towards its quota
// (natsconf has the table).
func QuotaSubject(account string, at time.Time) string {
	return "usage." + account + "." + at.UTC().Format("200601")
}
