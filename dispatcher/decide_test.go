package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"pgregory.net/rapid"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

func TestDecide(t *testing.T) {
	now := time.Now()
	open := func(settleAfter time.Time, giveUp bool) facts.Attempt {
		return facts.Attempt{Claim: facts.Claim{Number: 1, SettleAfter: settleAfter, GiveUp: giveUp}}
	}
	ended := func(v facts.Verdict) facts.Attempt {
		return facts.Attempt{Claim: facts.Claim{Number: 1}, Result: &facts.Result{Verdict: v}}
	}
	next := func(at time.Time) facts.Attempt {
		return facts.Attempt{
			Claim: facts.Claim{Number: 1}, Result: &facts.Result{
				Verdict: facts.VerdictUnknown, Next: at,
			},
		}
	}
	for name, c := range map[string]struct {
		state    sessions.State
		attempts []facts.Attempt
		want     decision
	}{
		"fresh":          {sessions.Verified, nil, decision{do: doSend, attempt: 1}},
		"failed is sent": {sessions.Failed, nil, decision{do: doSend, attempt: 1}},
		"canceled":       {sessions.Canceled, nil, decision{do: doDrop}},
		"owner at work": {
			sessions.Verified, []facts.Attempt{open(now.Add(time.Second), false)}, decision{
				do: doWait, wait: time.Second + settleLook,
			},
		},
		"owner vanished": {
			sessions.Verified, []facts.Attempt{open(now, false)}, decision{do: doSettle, attempt: 1},
		},
		"vanished, gave up": {
			sessions.Verified, []facts.Attempt{open(now, true)}, decision{
				do: doSettle, attempt: 1, giveUp: true,
			},
		},
		"released": {
			sessions.Verified, []facts.Attempt{ended(facts.VerdictReleased)}, decision{
				do: doSend, attempt: 2,
			},
		},
		"delivered": {
			sessions.Verified, []facts.Attempt{ended(facts.VerdictDelivered)}, decision{do: doDrop},
		},
		"rejected": {
			sessions.Verified, []facts.Attempt{ended(facts.VerdictRejected)}, decision{do: doDrop},
		},
		"unknown": {
			sessions.Verified, []facts.Attempt{ended(facts.VerdictUnknown)}, decision{do: doDrop},
		},
		"undeliverable": {
			sessions.Verified, []facts.Attempt{ended(facts.VerdictUndeliverable)},
			decision{do: doDrop},
		},
		"next is due": {
			sessions.Verified, []facts.Attempt{next(now)}, decision{do: doSend, attempt: 2},
		},
		"next is later": {
			sessions.Verified, []facts.Attempt{next(now.Add(time.Minute))}, decision{
				do: doWait, wait: time.Minute,
			},
		},
		"a newer verdict": {sessions.Verified, []facts.Attempt{ended("quantum")}, decision{do: doDrop}},
	} {
		completion := sessions.Completion{Outcome: sessions.Outcome{State: c.state}}
		if got := decide(completion, c.attempts, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A probe that ended without a dial, since its delivery was over already, must neither close the breaker nor
// delay the next probe.
func TestProbeWithoutADialDecidesNothing(t *testing.T) {
	b := newBreaker(&shared{
		c: Config{BreakerOpen: time.Millisecond, Now: time.Now}.withDefaults(), metrics: newMetrics(nil),
	})
	for range breakerTrips {
		passed, _ := b.allow()
		passed(errMissed)
	}
	probe := func() (passed func(error)) {
		natstest.Await(t, "a probe is let through", func() bool {
			passed, _ = b.allow()
			return passed != nil
		})
		return passed
	}
	probe()(errUntried)
	if got := b.circuit.State(); got != gobreaker.StateHalfOpen {
		t.Errorf("the breaker is %s after a probe that says nothing", got)
	}
	probe()(nil)
	if got := b.circuit.State(); got != gobreaker.StateClosed {
		t.Errorf("the breaker is %s after a probe that reached somebody", got)
	}
}

// Each dial that succeeds allows one more, also if no connection stays: a receiver may close each after its
// answer. One that fails resets that, and while the breaker is not closed, dials that are allowed do not wait
// for each other.
func TestDialsGrowWithSuccess(t *testing.T) {
	d := &shared{
		c: Config{Now: time.Now, Connections: 16, BreakerOpen: time.Hour}, metrics: newMetrics(nil),
	}
	s := newConnections(d.c.Connections, newBreaker(d), make(chan struct{}, 1))
	dials := func() (n int) {
		for s.canStart("a") {
			s.start("a", nil)
			n++
		}
		s.active, s.slots, s.dialing = 0, 0, 0
		return n
	}
	if got := dials(); got != minDials {
		t.Errorf("%d dials at once to begin with", got)
	}
	for range 3 {
		s.dialing++
		(&connSlot{of: s, dials: true}).dialEnded(true)
	}
	if got := dials(); got != minDials+3 {
		t.Errorf("%d dials at once after three that succeeded", got)
	}
	for range 100 {
		s.dialing++
		(&connSlot{of: s, dials: true}).dialEnded(true)
	}
	if got := dials(); got != 16 {
		t.Errorf("%d dials at once at most", got)
	}
	s.dialing++
	(&connSlot{of: s, dials: true}).dialEnded(false)
	if got := dials(); got != minDials {
		t.Errorf("%d dials at once after a failure", got)
	}
	for range breakerTrips {
		passed, _ := s.breaker.allow()
		passed(errMissed)
	}
	if got := dials(); got != 16 {
		t.Errorf("%d dials at once while the breaker is open", got)
	}
}

// While the store is slow, only a bounded number of a destination's deliveries may have returned their
// connection; when one ends the next may begin.
func TestWhatIsStoringIsBounded(t *testing.T) {
	d := &shared{
		c: Config{Now: time.Now, Connections: 16, BreakerOpen: time.Hour}, metrics: newMetrics(nil),
	}
	s := newConnections(d.c.Connections, newBreaker(d), make(chan struct{}, 1))
	storing := 0
	for storing < 2*maxStoring && s.canStart("a") {
		s.start("a", nil).release(nil)
		storing++
	}
	if storing != 16+maxStoring {
		t.Errorf("%d deliveries are storing their result, want %d", storing, 16+maxStoring)
	}
	s.ended()
	if !s.canStart("a") {
		t.Error("one has ended, and no other may begin")
	}
}

// A receiver that closes each connection has a rate, from which the time of the next free slot follows, as
// one that keeps them.
func TestEveryPOSTCountsTowardsThePace(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &shared{
				c: Config{Now: time.Now, Connections: 16, BreakerOpen: time.Hour}, metrics: newMetrics(nil),
			}
			s := newConnections(d.c.Connections, newBreaker(d), make(chan struct{}, 1))
			for range 200 {
				slot := &connSlot{of: s, account: "a", held: true}
				if keeps {
					slot.conn = &callback.Conn{}
				}
				s.slots++
				slot.release(nil)
				time.Sleep(time.Millisecond) // of the bubble: it costs no time
			}
			if rate := s.rate(); rate < 500 || rate > 1500 {
				t.Errorf("keeps %v: %d a second, one came each millisecond", keeps, rate)
			}
		})
	}
}

func TestBackoffStaysBetweenOneSecondAndItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 1<<20).Draw(t, "try")
		got := backoff(n, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		most := time.Minute
		if n <= 5 {
			most = time.Second << n
		}
		if got < time.Second || got > most {
			t.Fatalf("try %d: %s, want 1s to %s", n, got, most)
		}
	})
}
