package limit

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/wait"
)

// troubled is a counter whose next messages are stored and not answered, or not stored.
type troubled struct {
	publisher

	mu sync.Mutex
	// results of the next messages: ErrUncertain, which are stored, errLost and ErrUnavailable, which are
	// not, and errResent
	results []error
}

// errLost is a message on its way to a dead server: it is unknown that it is not stored.
var errLost = errors.New("lost on its way")

// errResent is a message that the writer itself sent again: its answer has no total.
var errResent = errors.New("sent again")

func (p *troubled) Publish(ctx context.Context, m *nats.Msg) (natsconf.Ack, error) {
	p.mu.Lock()
	var result error
	if len(p.results) > 0 {
		result, p.results = p.results[0], p.results[1:]
	}
	p.mu.Unlock()
	switch {
	case result == nil:
		return p.publisher.Publish(ctx, m)
	case errors.Is(result, errLost):
		return natsconf.Ack{}, natsconf.ErrUncertain
	case errors.Is(result, errResent):
		if _, err := p.publisher.Publish(ctx, m); err != nil {
			return natsconf.Ack{}, err
		}
		return p.publisher.Publish(ctx, m)
	case errors.Is(result, natsconf.ErrUncertain):
		if _, err := p.publisher.Publish(ctx, m); err != nil {
			return natsconf.Ack{}, err
		}
	}
	return natsconf.Ack{}, result
}

// While the counter has no leader, units are counted that no caller gets, and others cannot be given back. In
// the end the counter has the used units, whatever was stored meanwhile.
func TestUnitsAreGivenBackInTheEnd(t *testing.T) {
	t.Parallel()
	stored, lost, refused := natsconf.ErrUncertain, errLost, natsconf.ErrUnavailable
	for name, results := range map[string][]error{
		"the count is stored":              {stored},
		"the count is lost":                {lost},
		"the count is refused":             {refused},
		"it is stored, and asked for":      {stored, stored, stored},
		"it is lost, and asked for":        {lost, stored, lost, refused},
		"it is stored, and the total not":  {errResent, refused},
		"its return is stored":             {nil, stored},
		"its return is lost":               {nil, lost},
		"its return is refused for long":   {nil, refused, refused, refused, lost, stored, stored},
		"its return is stored and refused": {nil, stored, refused, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, conn := newQuota(t, 10)
			if _, err := q.Take(t.Context(), acme, 0, june); err != nil { // somebody else's
				t.Fatal(err)
			}
			p := &troubled{publisher: q.counter, results: results}
			q.counter = p
			if _, err := q.Take(t.Context(), acme, 0, june); err == nil {
				_ = q.GiveBack(t.Context(), acme, june)
			}
			natstest.Serve(t, q)
			natstest.Await(t, "all is tried, and nothing owed", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				q.mu.Lock()
				defer q.mu.Unlock()
				return len(p.results) == 0 && len(q.debts) == 0 && used(t, conn, acme, june) == `{"val":"1"}`
			})
		})
	}
}

// The store is away for longer than it would recognize a message. What it has refused is tried for as long as
// that takes; what may be stored is not sent again after that.
func TestDebtsOutlastAStoreThatRefuses(t *testing.T) {
	t.Parallel()
	q, conn := newQuota(t, 10)
	for range 2 {
		if _, err := q.Take(t.Context(), acme, 0, june); err != nil {
			t.Fatal(err)
		}
	}
	p := &troubled{publisher: q.counter}
	q.counter = p
	for result, want := range map[error]int{
		natsconf.ErrUnavailable: 1, natsconf.ErrStoreFull: 1, errLost: 0,
	} {
		p.results = []error{result, result}
		if err := q.GiveBack(t.Context(), acme, june); err == nil || len(q.debts) != 1 {
			t.Fatalf("%v: given back, %d owed: %v", result, len(q.debts), err)
		}
		if unsure := &q.debts[0].unsure; !unsure.IsZero() {
			*unsure = unsure.Add(-owedFor)
		}
		if q.settle(t.Context(), leaseIdle); len(q.debts) != want {
			t.Errorf("%v for long: %d owed, want %d", result, len(q.debts), want)
		}
		q.settle(t.Context(), leaseIdle)
		q.debts = nil
	}
	if u := used(t, conn, acme, june); u != `{"val":"0"}` {
		t.Errorf("used = %s; the two that were refused are given back", u)
	}
}

// A unit of which it is not known yet whether it is used is asked for again, and given back only if it is
// not. Others do not wait for it.
func TestUnitIsGivenBackOnceItIsKnownToBeFree(t *testing.T) {
	t.Parallel()
	for _, free := range []bool{false, true} {
		q, conn := newQuota(t, 10)
		for range 3 {
			if _, err := q.Take(t.Context(), acme, 0, june); err != nil {
				t.Fatal(err)
			}
		}
		known := false
		ask := func(context.Context) (bool, error) {
			if !known {
				return true, natsconf.ErrUnavailable
			}
			return free, nil
		}
		if err := q.GiveBackIf(t.Context(), acme, june, ask); !errors.Is(err, natsconf.ErrUnavailable) {
			t.Errorf("given back: %v", err)
		}
		p := &troubled{publisher: q.counter, results: []error{natsconf.ErrUnavailable}}
		q.counter = p
		_ = q.GiveBack(t.Context(), acme, june) // it is owed, too
		for range 2 {
			q.settle(t.Context(), leaseIdle)
		}
		if u := used(t, conn, acme, june); len(q.debts) != 1 || u != `{"val":"2"}` {
			t.Errorf("%d owed, used %s; want the one that is not known yet", len(q.debts), u)
		}
		known = true
		q.settle(t.Context(), leaseIdle)
		if u := used(t, conn, acme, june); len(q.debts) != 0 || (u == `{"val":"1"}`) != free {
			t.Errorf("free %t: %d owed, used %s", free, len(q.debts), u)
		}
	}
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
