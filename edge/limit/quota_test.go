package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions/stats"
)

var june = time.Date(2030, time.June, 15, 12, 0, 0, 0, time.UTC)

const acme = "acc_acme"

func newQuota(t *testing.T, standard int64) (*Quota, *natsconf.Conn) {
	t.Helper()
	conn := natstest.Start(t)
	return NewQuota(natstest.Writer(t, conn, topology.StreamUsage), standard), conn
}

// fill uses n units at once, by a counter message of that size.
func fill(t *testing.T, q *Quota, account string, now time.Time, n int) {
	t.Helper()
	if _, err := q.counter.Publish(t.Context(), message(account, now, fmt.Sprintf("%+d", n))); err != nil {
		t.Fatal(err)
	}
}

// used reads the total from the stream: an increment of nothing could be wrong itself.
func used(t *testing.T, conn *natsconf.Conn, account string, now time.Time) string {
	t.Helper()
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout) // its leader may be a new one
	defer cancel()
	m, err := conn.Last(ctx, topology.StreamUsage, stats.QuotaSubject(account, now))
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Data)
}

func TestTakeCountsUpToTheQuota(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 2)
	want := Usage{Limit: 2, ResetAt: time.Date(2030, time.July, 1, 0, 0, 0, 0, time.UTC)}
	for want.Used = 1; want.Used <= 2; want.Used++ {
		if u, err := q.Take(t.Context(), acme, 0, june); err != nil || u != want {
			t.Fatalf("usage = %+v, %v; want %+v", u, err, want)
		}
	}
	want.Used = 2
	for range 2 { // requested, then remembered
		if u, err := q.Take(t.Context(), acme, 0, june); !errors.Is(err, ErrQuotaExceeded) || u != want {
			t.Fatalf("usage = %+v, %v; want %+v and ErrQuotaExceeded", u, err, want)
		}
	}
	if u, err := q.Take(t.Context(), "acc_other", 0, june); err != nil || u.Used != 1 {
		t.Errorf("another account: %+v, %v", u, err)
	}
	natstest.Serve(t, q) // it returns the units that could not be returned at once
	natstest.Await(t, "refusals give their unit back", func() bool {
		return used(t, conn, acme, june) == `{"val":"2"}`
	})
}

// Two edges share a counter. Of 100 callers at the last unit exactly one gets it.
func TestTheLastUnitIsGivenOnce(t *testing.T) {
	t.Parallel()
	const quota = 1000
	one, conn := newQuota(t, quota)
	other := NewQuota(natstest.Writer(t, conn, topology.StreamUsage), quota)
	natstest.Serve(t, one)
	natstest.Serve(t, other)
	fill(t, one, acme, june, quota-1)
	var wg sync.WaitGroup
	fates := make(chan error, 100)
	for i := range 100 {
		q := []*Quota{one, other}[i%2]
		wg.Go(func() {
			_, err := q.Take(t.Context(), acme, 0, june)
			fates <- err
		})
	}
	wg.Wait()
	close(fates)
	granted := 0
	for err := range fates {
		if err == nil {
			granted++
		} else if !errors.Is(err, ErrQuotaExceeded) {
			t.Error(err)
		}
	}
	if granted != 1 {
		t.Errorf("%d callers got the last unit, want 1", granted)
	}
	natstest.Await(t, "the refused callers' units are given back", func() bool { // on a slow disk by Serve
		return used(t, conn, acme, june) == `{"val":"1000"}`
	})
}

// crowd makes n callers take units concurrently, and counts those that got one.
func crowd(t *testing.T, callers, n int, take func(i int) error) (granted int64) {
	t.Helper()
	var got atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				switch err := take(i); {
				case err == nil:
					got.Add(1)
				case !errors.Is(err, ErrQuotaExceeded):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return got.Load()
}

// An account that starts many sessions causes few counter messages, never gets more than its quota over two
// edges, and gets all of it: what one edge held is given back, also when that edge stops.
func TestBlocksAreExactOverTwoEdges(t *testing.T) {
	t.Parallel()
	const quota = 5000
	one, conn := newQuota(t, quota)
	wire := &counting{publisher: one.counter}
	one.counter = wire
	two := NewQuota(natstest.Writer(t, conn, topology.StreamUsage), quota)
	stopOne := natstest.Serve(t, one)
	natstest.Serve(t, two)
	edges := []*Quota{one, two}
	var clock atomic.Int64 // each session comes a millisecond after the one before
	take := func(i int) error {
		_, err := edges[i%2].Take(t.Context(), acme, 0,
			june.Add(time.Duration(clock.Add(1))*time.Millisecond))
		return err
	}
	var granted int64
	for range 4000 / 32 { // so that none is far behind the others, however busy the machine is
		granted += crowd(t, 32, 32, take)
	}
	if n := wire.count(); granted != 4000 || n > 1000 {
		t.Errorf("%d of 4000 sessions, %d counter messages at one edge, for 2000", granted, n)
	}
	stopOne()
	edges[0] = two
	deadline := time.Now().Add(natstest.TestTimeout)
	// refused meanwhile: two holds units for a second at most
	for granted < quota && time.Now().Before(deadline) {
		granted += crowd(t, 8, 100, take)
		clock.Add(1000) // a refusal is remembered for a second
	}
	if granted != quota {
		t.Errorf("%d sessions were granted, want %d", granted, quota)
	}
	if got := used(t, conn, acme, june); got != `{"val":"5000"}` {
		t.Errorf("the counter is %s, want %d", got, quota)
	}
}

// The units that an edge holds when it stops, or when the month ends, are given back to the month they were
// counted in.
func TestUnspentUnitsGoBack(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 1_000_000)
	last := time.Date(2030, time.June, 30, 23, 59, 59, 0, time.UTC)
	for i := range 200 {
		if _, err := q.Take(t.Context(), acme, 0, last.Add(4*time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if got := used(t, conn, acme, last); got == `{"val":"200"}` {
		t.Error("nothing was counted ahead: this test is about nothing")
	}
	stop := natstest.Serve(t, q) // only now: it gives back what is not taken for a second
	if u, err := q.Take(t.Context(), acme, 0, last.Add(time.Second)); err != nil || u.Used != 1 {
		t.Errorf("in July: %+v, %v", u, err)
	}
	stop()
	for at, want := range map[time.Time]string{last: `{"val":"200"}`, last.Add(time.Second): `{"val":"1"}`} {
		if got := used(t, conn, acme, at); got != want {
			t.Errorf("%s: the counter is %s, want %s", at.Month(), got, want)
		}
	}
}

// An idle edge gives back what it holds while it runs, so that others can have it.
func TestIdleUnitsGoBack(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 1_000_000)
	for i := range 200 {
		if _, err := q.Take(t.Context(), acme, 0, june.Add(2*time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	ahead := used(t, conn, acme, june)
	if ahead == `{"val":"200"}` {
		t.Error("nothing was counted ahead: this test is about nothing")
	}
	natstest.Serve(t, q) // only now: it gives back what is not taken for a second
	natstest.Await(t, "what was counted ahead is given back", func() bool {
		return used(t, conn, acme, june) == `{"val":"200"}`
	})
	if u, err := q.Take(t.Context(), acme, 0, june.Add(time.Hour)); err != nil || u.Used != 201 {
		t.Errorf("afterwards: %+v, %v", u, err)
	}
}

func TestTheMonthTurnsAtMidnightUTC(t *testing.T) {
	t.Parallel()
	q, _ := newQuota(t, 1)
	last := time.Date(2030, time.December, 31, 23, 59, 59, 999_999_999, time.UTC)
	first := last.Add(1)
	east := time.FixedZone("east", 14*3600) // in a zone where it has been January for 14 hours
	if _, err := q.Take(t.Context(), acme, 0, last.In(east)); err != nil {
		t.Fatal(err)
	}
	u, err := q.Take(t.Context(), acme, 0, last)
	if !errors.Is(err, ErrQuotaExceeded) || !u.ResetAt.Equal(first) {
		t.Fatalf("in the last nanosecond: %+v, %v", u, err)
	}
	// The refusal is remembered for a second, but not into the next month.
	if u, err := q.Take(t.Context(), acme, 0, first); err != nil || u.Used != 1 ||
		u.ResetAt.Month() != time.February {
		t.Errorf("in the new month: %+v, %v", u, err)
	}
}

func TestGiveBackReturnsTheUnitToItsMonth(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 1)
	last := time.Date(2030, time.June, 30, 23, 59, 59, 0, time.UTC)
	if _, err := q.Take(t.Context(), acme, 0, last); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Take(t.Context(), acme, 0, last); !errors.Is(err, ErrQuotaExceeded) {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the client has left; the unit counts anyway
	if err := q.GiveBack(gone, acme, last); err != nil {
		t.Fatal(err)
	}
	if got := used(t, conn, acme, last); got != `{"val":"0"}` {
		t.Errorf("June's counter is %s, want 0", got)
	}
	if _, err := q.Take(t.Context(), acme, 0, last); err != nil {
		t.Errorf("after the give-back: %v; the refusal should be forgotten", err)
	}
}

func TestARaisedQuotaCountsAtOnce(t *testing.T) {
	t.Parallel()
	q, _ := newQuota(t, 1)
	for _, row := range []struct {
		quota int64
		want  error
	}{{1, nil}, {1, ErrQuotaExceeded}, {2, nil}, {2, ErrQuotaExceeded}, {1, ErrQuotaExceeded}, {3, nil}} {
		u, err := q.Take(t.Context(), acme, row.quota, june)
		if !errors.Is(err, row.want) || u.Limit != row.quota {
			t.Fatalf("quota %d: %+v, %v; want %v", row.quota, u, err, row.want)
		}
	}
}

// counting counts what reaches the stream.
type counting struct {
	publisher

	n atomic.Int64
}

func (c *counting) count() int { return int(c.n.Load()) }

func (c *counting) Publish(ctx context.Context, m *nats.Msg) (natsconf.Ack, error) {
	c.n.Add(1)
	return c.publisher.Publish(ctx, m)
}

func TestRefusalsAreCheapForOneSecond(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 1)
	wire := &counting{publisher: q.counter}
	q.counter = wire
	if _, err := q.Take(t.Context(), acme, 0, june); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := q.Take(t.Context(), acme, 0, june); !errors.Is(err, ErrQuotaExceeded) {
			t.Fatal(err)
		}
	}
	if wire.count() != 3 { // the unit, the one too many, and that one's give-back
		t.Errorf("%d messages for one unit and 50 refusals, want 3", wire.count())
	}
	// Another edge gives a unit back: it is seen a second later.
	if err := NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 1).
		GiveBack(t.Context(), acme, june); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Take(t.Context(), acme, 0, june.Add(exhaustedFor-1)); !errors.Is(err, ErrQuotaExceeded) {
		t.Errorf("within the second: %v", err)
	}
	if _, err := q.Take(t.Context(), acme, 0, june.Add(exhaustedFor)); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

func TestExhaustedAccountsAreForgotten(t *testing.T) {
	q := NewQuota(nil, 1)
	now := june
	for i := range 10_000 {
		now = now.Add(10 * time.Millisecond)
		q.remember(fmt.Sprint("acc_", i), Usage{}, now)
	}
	if n := len(q.exhausted); n > 3*sweepFrom+100 {
		t.Errorf("%d refusals are remembered; 100 are younger than a second", n)
	}
}

func TestNothingIsGrantedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn, stop := natstest.StartIn(t, dir)
	q := NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 10)
	if _, err := q.Take(t.Context(), acme, 0, june); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	idle := NewQuota(natsconf.NewSingleWriter(conn, topology.StreamUsage), 10) // a writer that is not served
	if u, err := idle.Take(gone, acme, 0, june); !errors.Is(err, natsconf.ErrUncertain) || u != (Usage{}) {
		t.Errorf("without an answer: %+v, %v", u, err)
	}
	stop()
	if u, err := q.Take(t.Context(), acme, 0, june); err == nil || errors.Is(err, ErrQuotaExceeded) ||
		u != (Usage{}) {
		t.Errorf("without a server: %+v, %v", u, err)
	}
}

// A stream that does not count acknowledges without a total. That must not read as "nothing used yet".
func TestAnAcknowledgementWithoutTotalGrantsNothing(t *testing.T) {
	t.Parallel()
	q := NewQuota(natstest.Writer(t, natstest.Start(t), topology.StreamEvents), 10)
	q.counter = elsewhere{q.counter}
	if _, err := q.Take(t.Context(), acme, 0, june); !errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("err = %v, want ErrUncertain", err)
	}
}

// elsewhere sends counter messages to a stream that does not count.
type elsewhere struct{ publisher }

func (e elsewhere) Publish(ctx context.Context, m *nats.Msg) (natsconf.Ack, error) {
	return e.publisher.Publish(ctx, nats.NewMsg("session.counted."+acme))
}
