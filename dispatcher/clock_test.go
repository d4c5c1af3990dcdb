package dispatcher_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/dispatcher"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/sessions/facts"
)

// onWrongMachine returns the configuration of a dispatcher on a machine whose clock is 40 s ahead until it is
// set right, on the store of the rig.
func onWrongMachine(t *testing.T) (h *fixture, c dispatcher.Config, setRight func()) {
	t.Helper()
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	h = newFixture(t)
	h.open(t, conn)
	var ahead atomic.Int64
	ahead.Store(int64(40 * time.Second))
	c = h.config()
	c.Conn = natstest.ConnectTo(t, natstest.URL(t, dir), func(o *natsconf.ConnectOptions) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	return h, c, func() { ahead.Store(0) }
}

// A claim whose time is over is another process's: one whose clock is wrong leaves it to others, since its
// owner may be about to store a result.
func TestWrongClockSettlesNothing(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]facts.DeliveryState{
		"the owner stores its result": facts.DeliveryDelivered,
		"the clock is set":            facts.DeliveryUnknown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, config, setRight := onWrongMachine(t)
			log := newLogSignal()
			config.Log = zerolog.New(log)
			c := h.complete(t, "https://127.0.0.1:1/", "u", verified)
			at := h.now().Add(-time.Minute)
			if err := h.store.Claim(t.Context(), facts.Claim{
				Session: c.ID, Number: 1, Worker: "other", At: at, Deadline: at, SettleAfter: at,
			}); err != nil {
				t.Fatal(err)
			}
			h.offset.Store(int64(time.Minute)) // old enough for its facts to be read
			h.dispatch(t, config)
			log.wait(t, "40s ahead of the store's")
			if stored == facts.DeliveryDelivered {
				result := facts.Result{
					Session: c.ID, Number: 1, Verdict: facts.VerdictDelivered, Status: 204,
					By: "other", At: at,
				}
				if _, err := h.store.StoreResult(t.Context(), result.Of(c.Session)); err != nil {
					t.Fatal(err)
				}
			} else {
				setRight()
			}
			h.until(t, c.ID, stored)
		})
	}
}

// An outcome whose retry time is over, by the clock of a process that is wrong, is tried on.
func TestWrongClockGivesNothingUp(t *testing.T) {
	t.Parallel()
	h, config, setRight := onWrongMachine(t)
	config.RetryFor = time.Second
	h.offset.Store(int64(time.Hour))
	tried := make(chan dispatcher.AttemptEnd, 100)
	config.OnAttempt = func(e dispatcher.AttemptEnd) { tried <- e }
	c := h.complete(t, "https://"+natstest.Address(t)+"/", "u", verified)
	h.dispatch(t, config)
	for range 2 {
		if e := natstest.Receive(t, "a try", tried); !e.Again || e.Verdict != "" {
			t.Errorf("with a wrong clock: %+v", e)
		}
	}
	setRight()
	h.until(t, c.ID, facts.DeliveryUndeliverable)
}
