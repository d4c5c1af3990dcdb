package dispatcher_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

// silence is longer than a dispatcher waits for the acknowledgement of a claim, and shorter than another one
// waits before it settles that.
const silence = 6 * time.Second

// The acknowledgements of a dispatcher's claims do not arrive, and another dispatcher waits for work. Nothing
// was sent under them, which only the first knows: it keeps these deliveries until the store answers again,
// and none of them ends as unknown.
func TestLostAcknowledgementsOfClaims(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, lostAcknowledgementsOfClaims)
}

func lostAcknowledgementsOfClaims(t *testing.T) {
	const many = 10
	store := virtual.NewBroker(t)
	direct := store.Connect(t, nil)
	natstest.Ensure(t, direct)
	silent, answers, accepts := make(chan struct{}), make(chan struct{}), make(chan struct{})
	answer, accept := closes(answers), closes(accepts)
	second := newFixture(t)
	second.memory = newMemory()
	second.memory.accepts = accepts
	second.open(t, direct)
	r := second.receive(t, "127.0.0.1", status(http.StatusNoContent))
	first := &fixture{ca: second.ca, key: second.key, policy: second.policy, memory: second.memory}
	first.open(t, store.Connect(t, func() virtual.Pass {
		return func(toServer bool, _ []byte) bool {
			select {
			case <-silent:
				if !toServer {
					<-answers
				}
			default:
			}
			return true
		}
	}))
	t.Cleanup(func() { answer(); accept() })
	first.dispatch(t, first.config())
	var all []sessions.Completion
	for i := range many {
		all = append(all, second.complete(t, r.URL, fmt.Sprint(i), verified))
	}
	second.untilBacklog(t, func(b lists.Backlog) bool { return b.Given == many })
	synctest.Wait() // the first has them, and dials
	close(silent)
	accept()
	second.dispatch(t, second.config())
	natstest.Await(t, "a claim is stored", func() bool {
		return slices.ContainsFunc(all, func(c sessions.Completion) bool {
			attempts, err := second.store.Attempts(t.Context(), c.ID)
			return err == nil && len(attempts) > 0
		})
	})
	time.AfterFunc(silence, answer)
	lost := 0
	for _, c := range all {
		v := second.untilSettled(t, c.ID)
		if n := r.count(c.ID); n != 1 || v.Delivery.State != facts.DeliveryDelivered {
			t.Errorf("%d POSTs, %s: %+v", n, v.Delivery.State, v.Delivery.Attempts)
		}
		if len(v.Delivery.Attempts) > 1 {
			lost++
		}
	}
	if lost == 0 {
		t.Error("every claim was acknowledged in time: this test is about nothing")
	}
}

// closes returns a function that closes c once.
func closes(c chan struct{}) func() { return sync.OnceFunc(func() { close(c) }) }
