package limit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/wait"
)

// New requests are not counted, however many; waiting ones keep their slots until they release them, and no
// further request gets one.
func TestPlacesToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		w := NewWaiting(12*time.Second, limit)
		var leave []func()
		for range 2 * limit {
			ctx, done, err := w.Begin(t.Context(), 0)
			if err != nil {
				t.Fatalf("a crowd without faults is refused: %v", err)
			}
			if end, _ := ctx.Deadline(); !wait.Is(ctx) || time.Until(end) != 12*time.Second {
				t.Errorf("it waits until %s", end)
			}
			leave = append(leave, done)
		}
		ctx, done, err := w.Begin(t.Context(), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if end, _ := ctx.Deadline(); time.Until(end) != 7*time.Second {
			t.Errorf("after 5 s it waits until %s", end)
		}
		done()
		time.Sleep(2 * waitsAfter) // of the bubble
		if _, _, err := w.Begin(t.Context(), 0); !errors.Is(err, ErrNoPlace) {
			t.Errorf("beside %d who wait: %v", len(leave), err)
		}
		for _, done := range leave[:limit+1] {
			done()
		}
		ctx, done, err = w.Begin(t.Context(), 0)
		if err != nil {
			t.Fatalf("beside %d who wait: %v", limit-1, err)
		}
		done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error("what asks the store goes on when its request has ended")
		}
		for _, done := range leave[limit+1:] {
			done()
		}
		if w.all != 0 || len(w.began) != 0 {
			t.Errorf("%d are left, in %v", w.all, w.began)
		}
	})
}

// deaf loses every third answer.
type deaf struct {
	publisher

	sent int
}

func (d *deaf) Publish(ctx context.Context, m *nats.Msg) (natsconf.Ack, error) {
	ack, err := d.publisher.Publish(ctx, m)
	if d.sent++; err == nil && d.sent%3 == 1 {
		return natsconf.Ack{}, natsconf.ErrUncertain
	}
	return ack, err
}

// A caller that waits counts each unit once, even if the answers are lost. One that does not wait learns that
// the result is unknown.
func TestLostAnswersCountOnce(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 3)
	q.counter = &deaf{publisher: q.counter}
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
	defer cancel()
	for n := range int64(3) {
		if u, err := q.Take(ctx, acme, 0, june); err != nil || u.Used != n+1 {
			t.Errorf("unit %d: %+v, %v", n+1, u, err)
		}
	}
	if got := used(t, conn, acme, june); got != `{"val":"3"}` {
		t.Errorf("the counter is %s", got)
	}
	if _, err := q.Take(ctx, acme, 0, june); !errors.Is(err, ErrQuotaExceeded) {
		t.Errorf("beyond the quota: %v", err)
	}
	q.counter.(*deaf).sent = 0
	if _, err := q.Take(t.Context(), "acc_other", 0, june); !errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("without waiting: %v", err)
	}
}
