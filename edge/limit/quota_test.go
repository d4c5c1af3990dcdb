package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

var june = time.Date(2030, time.June, 15, 12, 0, 0, 0, time.UTC)

const acme = "acc_acme"

func newQuota(t *testing.T, standard int64) (*Quota, *natsconf.Conn) {
	t.Helper()
	conn := natstest.Start(t)
	return NewQuota(natstest.Writer(t, conn, natsconf.StreamUsage), standard), conn
}

// fill uses n units at once, by a counter message of that size.
func fill(t *testing.T, q *Quota, account string, now time.Time, n int) {
	t.Helper()
	if _, err := q.counter.Publish(t.Context(), message(account, now, fmt.Sprintf("%+d", n))); err != nil {
		t.Fatal(err)
	}
}

// used reads the total from the stream: one more increment of nothing would be a way of its own to be wrong.
func used(t *testing.T, conn *natsconf.Conn, account string, now time.Time) string {
	t.Helper()
	m, err := conn.Last(t.Context(), natsconf.StreamUsage, usageSubject(account, now))
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Data)
}

func TestTakeCountsUpToTheQuota(t *testing.T) {
	q, conn := newQuota(t, 2)
	want := Usage{Limit: 2, ResetAt: time.Date(2030, time.July, 1, 0, 0, 0, 0, time.UTC)}
	for want.Used = 1; want.Used <= 2; want.Used++ {
		if u, err := q.Take(t.Context(), acme, 0, june); err != nil || u != want {
			t.Fatalf("usage = %+v, %v; want %+v", u, err, want)
		}
	}
	want.Used = 2
	for range 2 { // asked, then remembered
		if u, err := q.Take(t.Context(), acme, 0, june); !errors.Is(err, ErrQuotaExceeded) || u != want {
			t.Fatalf("usage = %+v, %v; want %+v and ErrQuotaExceeded", u, err, want)
		}
	}
	if u, err := q.Take(t.Context(), "acc_other", 0, june); err != nil || u.Used != 1 {
		t.Errorf("another account: %+v, %v", u, err)
	}
	if got := used(t, conn, acme, june); got != `{"val":"2"}` {
		t.Errorf("the counter is %s, want 2: refusals give their unit back", got)
	}
}

// Two edges share a counter. Of 100 callers at the last unit exactly one gets it.
func TestTheLastUnitIsGivenOnce(t *testing.T) {
	const quota = 1000
	one, conn := newQuota(t, quota)
	other := NewQuota(natstest.Writer(t, conn, natsconf.StreamUsage), quota)
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
	if got := used(t, conn, acme, june); got != `{"val":"1000"}` {
		t.Errorf("the counter is %s, want 1000", got)
	}
}

func TestTheMonthTurnsAtMidnightUTC(t *testing.T) {
	q, _ := newQuota(t, 1)
	last := time.Date(2030, time.December, 31, 23, 59, 59, 999_999_999, time.UTC)
	first := last.Add(1)
	east := time.FixedZone("east", 14*3600) // where it is January for 14 hours already
	if _, err := q.Take(t.Context(), acme, 0, last.In(east)); err != nil {
		t.Fatal(err)
	}
	u, err := q.Take(t.Context(), acme, 0, last)
	if !errors.Is(err, ErrQuotaExceeded) || !u.ResetAt.Equal(first) {
		t.Fatalf("in the last nanosecond: %+v, %v", u, err)
	}
	// The refusal is remembered for a second, but not into the next month.
	if u, err := q.Take(t.Context(), acme, 0, first); err != nil || u.Used != 1 || u.ResetAt.Month() != time.February {
		t.Errorf("in the new month: %+v, %v", u, err)
	}
}

func TestGiveBackReturnsTheUnitToItsMonth(t *testing.T) {
	q, conn := newQuota(t, 1)
	last := time.Date(2030, time.June, 30, 23, 59, 59, 0, time.UTC)
	if _, err := q.Take(t.Context(), acme, 0, last); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Take(t.Context(), acme, 0, last); !errors.Is(err, ErrQuotaExceeded) {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the client has left; the unit is the account's all the same
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

	n int
}

func (c *counting) Publish(ctx context.Context, m *nats.Msg) (natsconf.Ack, error) {
	c.n++
	return c.publisher.Publish(ctx, m)
}

func TestRefusalsAreCheapForOneSecond(t *testing.T) {
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
	if wire.n != 3 { // the unit, the one too many, and that one's give-back
		t.Errorf("%d messages for one unit and 50 refusals, want 3", wire.n)
	}
	// Another edge gives a unit back: it is seen a second later.
	if err := NewQuota(natstest.Writer(t, conn, natsconf.StreamUsage), 1).GiveBack(t.Context(), acme, june); err != nil {
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
	dir := t.TempDir()
	conn, stop := natstest.StartIn(t, dir)
	q := NewQuota(natstest.Writer(t, conn, natsconf.StreamUsage), 10)
	if _, err := q.Take(t.Context(), acme, 0, june); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	idle := NewQuota(natsconf.NewSingleWriter(conn, natsconf.StreamUsage), 10) // a writer that nobody serves
	if u, err := idle.Take(gone, acme, 0, june); !errors.Is(err, natsconf.ErrUncertain) || u != (Usage{}) {
		t.Errorf("without an answer: %+v, %v", u, err)
	}
	stop()
	if u, err := q.Take(t.Context(), acme, 0, june); err == nil || errors.Is(err, ErrQuotaExceeded) || u != (Usage{}) {
		t.Errorf("without a server: %+v, %v", u, err)
	}
}

// A stream that does not count acknowledges without a total. That must not read as "nothing used yet".
func TestAnAcknowledgementWithoutTotalGrantsNothing(t *testing.T) {
	q := NewQuota(natstest.Writer(t, natstest.Start(t), natsconf.StreamEvents), 10)
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
