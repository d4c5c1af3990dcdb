package sessions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// meterWidth is how many counts are stored at once. A synced counter takes a quarter of a millisecond,
	// and the quota's counters share the stream.
	meterWidth = 16
	// expirySlot is the resolution with which ends of lifetimes are kept in memory: an account has at most
	// Lifetime/expirySlot of them.
	expirySlot = 10 * time.Second
)

// Count names what is counted of an account, per UTC day, live and test sessions apart.
type Count string

// What is counted of sessions, on the day on which the session was started, so that a day's numbers add up:
// each started session is verified, declined, refused, canceled, expired or still open. The steps count each
// session once.
const (
	CountStarted  Count = "started"
	CountOpened   Count = Count(EventOpened)
	CountSignIn   Count = Count(EventSignIn)
	CountReturned Count = Count(EventReturned)
	CountFinished Count = Count(EventFinished)
	CountVerified Count = "verified"
	CountDeclined Count = "failed_declined"
	CountRefused  Count = "failed_refused"
	CountCanceled Count = "canceled"
	CountExpired  Count = "expired"
)

// CountNetworkError is counted of networks alone (Count.Of), as are tries with CountSignIn and CountReturned
// there: each of them, however many a session has.
const CountNetworkError Count = Count(EventNetworkError)

// What is counted on the day on which it happened. Ended callbacks are counted by verdict, one for each
// attempt that is final.
const (
	CountDelivered     Count = "callback_delivered"
	CountRejected      Count = "callback_rejected"
	CountUnknown       Count = "callback_unknown"
	CountUndeliverable Count = "callback_undeliverable"
	CountRateLimited   Count = "rate_limited"
	CountQuotaExceeded Count = "quota_exceeded"
	CountReplayed      Count = "replayed" // repeats of a start under an idempotency key
)

// Of is a count of the sign-ins at one identity network alone.
func (c Count) Of(network string) Count { return c + networkMark + Count(network) }

// networkMark stands between a count and the id of a network, and in neither.
const networkMark = ":"

// Networks returns the ids of the networks that counts tell of, in their order.
func Networks(counts map[Count]int64) []string {
	seen := map[string]bool{}
	for c := range counts {
		if _, network, ok := strings.Cut(string(c), networkMark); ok {
			seen[network] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Meter is the actor that gathers statistics in memory and adds them to the counters in StreamUsage every
// few seconds, and at its stop. They are for people: a crash loses the last seconds, and so does a counter
// whose acknowledgement does not come. The quota is counted elsewhere, exactly.
type Meter struct {
	// Now is the clock by which lifetimes end, which is that of the store that counts. It is set before
	// Serve.
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

// NewMeter makes a meter on a writer of StreamUsage. It stores nothing until served.
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

// Count counts one thing that happened at an instant. On a nil meter it does nothing.
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

// countExpiry counts a session as expired when its lifetime is over: by 1 when it is started, by -1 when it
// is completed, whichever processes do that. Nothing is kept of a session, and nobody has to search for
// sessions that simply expired.
func (m *Meter) countExpiry(s Session, by int64) {
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
			m.flush(ctx, m.Now())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), meterDrain)
			defer cancel()
			// Nobody is here later to count the lifetimes that still run. Those sessions that are completed
			// yet are taken out again.
			m.flush(last, m.Now().Add(Lifetime+2*expirySlot))
			return ctx.Err()
		}
	}
}

// flush adds what was counted to the stored counters, and the lifetimes that end before an instant.
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

// QuotaSubject is where an account's sessions of a UTC month are counted towards its quota (natsconf has the
// table).
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
		VerdictDelivered: CountDelivered, VerdictRejected: CountRejected, VerdictUnknown: CountUnknown,
		VerdictUndeliverable: CountUndeliverable,
	}[r.Verdict]
	if counted && r.Next.IsZero() {
		st.Count(s.Account, s.Test, what)
	}
}

// countStarted counts a new session.
func (st *Store) countStarted(s Session) {
	st.countOf(s, CountStarted)
	st.meter.countExpiry(s, 1)
}

// countOf counts something about a session, on the day on which it was started.
func (st *Store) countOf(s Session, what Count) { st.meter.Count(s.Account, s.Test, what, s.CreatedAt) }

func (st *Store) countCompleted(c Completion) {
	what := CountCanceled
	switch c.State {
	case Verified:
		what = CountVerified
	case Failed:
		what = Count("failed_" + string(c.Reason))
	case Canceled:
	case Pending, Expired: // no completion has these
		return
	}
	st.countOf(c.Session, what)
	if c.Network != "" {
		st.countOf(c.Session, what.Of(c.Network))
	}
	st.meter.countExpiry(c.Session, -1)
}
