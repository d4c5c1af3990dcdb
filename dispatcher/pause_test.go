package dispatcher_test

import (
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/pauses"
)

// pausing returns an operator's pauses, and makes a configuration honour them.
func (h *fixture) pausing(t *testing.T) *pauses.Store {
	t.Helper()
	return pauses.NewStore(h.conn, h.now)
}

func (h *fixture) mirrored(t *testing.T) *pauses.Mirror {
	t.Helper()
	m := pauses.NewMirror(h.conn, zerolog.Nop())
	natstest.Serve(t, m)
	select {
	case <-m.Loaded():
	case <-time.After(natstest.TestTimeout):
		t.Fatal("the pauses are not loaded")
	}
	return m
}

// A paused host gets nothing, even after a restart of the dispatcher, while others get theirs; when it is
// resumed, everything arrives, once.
func TestPausedHostGetsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r, other := h.receive(t, "127.0.0.1", status(204)), h.receive(t, "127.0.0.1", status(204))
	operator := h.pausing(t)
	if _, err := operator.Begin(t.Context(), r.Listener.Addr().String(), "olga", "moving",
		time.Hour); err != nil {
		t.Fatal(err)
	}
	const n = 200 // more than may wait at a paused destination
	ids := make([]sessions.ID, n)
	for i := range ids {
		ids[i] = h.complete(t, "https://"+r.Listener.Addr().String(), "u", verified).ID
	}
	for range 2 { // the second time after a restart
		config := h.config()
		registry := prometheus.NewRegistry()
		config.Metrics, config.Pauses = registry, h.mirrored(t)
		stop := h.dispatch(t, config)
		natstest.Await(t, "deliveries wait at the paused host", func() bool {
			return gauge(t, registry, "verifyd_deliveries_held") >= 64
		})
		h.until(t, h.complete(t, "https://"+other.Listener.Addr().String(), "u", verified).ID,
			facts.DeliveryDelivered)
		// the other host's may just have been dropped
		if held := gauge(t, registry, "verifyd_deliveries_held"); held > 65 {
			t.Errorf("%v deliveries to the paused host are held", held)
		}
		stop()
	}
	if len(r.got) != 0 || len(other.got) != 2 {
		t.Fatalf("%d POSTs to the paused host, %d to the other", len(r.got), len(other.got))
	}
	config := h.config()
	config.Pauses = h.mirrored(t)
	h.dispatch(t, config)
	if _, err := operator.End(t.Context(), r.Listener.Addr().String(), "olga"); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
	}
	if len(r.got) != n {
		t.Errorf("%d POSTs for %d sessions", len(r.got), n)
	}
}

// A pause that begins during a burst stops it, and one that is not ended ends by itself.
func TestPauseWithinABurst(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(204))
	operator := h.pausing(t)
	config := h.config()
	mirror := h.mirrored(t)
	config.Pauses = mirror
	h.dispatch(t, config)
	address := "https://" + r.Listener.Addr().String()
	h.until(t, h.complete(t, address, "u", verified).ID, facts.DeliveryDelivered)
	if _, err := operator.Begin(t.Context(), r.Listener.Addr().String(), "olga", "", time.Hour); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the pause is known", func() bool {
		_, ok := mirror.Of(r.Listener.Addr().String())
		return ok
	})
	id := h.complete(t, address, "u", verified).ID
	// A later callback to another host, which takes the same path, arrives.
	other := h.receive(t, "127.0.0.1", status(204))
	h.until(t, h.complete(t, "https://"+other.Listener.Addr().String(), "u", verified).ID,
		facts.DeliveryDelivered)
	if len(r.got) != 1 {
		t.Errorf("%d POSTs, the pause began after the first", len(r.got))
	}
	h.offset.Add(int64(time.Hour)) // longer than the retry time
	v := h.until(t, id, facts.DeliveryDelivered)
	if len(v.Delivery.Attempts) != 1 || len(r.got) != 2 {
		t.Errorf("%d attempts, %d POSTs", len(v.Delivery.Attempts), len(r.got))
	}
}

// counter reads a counter by its name, over all its labels.
func counter(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// A pause does not shorten the retry time of a delivery: it restarts at the pause's end.
func TestPauseTakesNoRetryTime(t *testing.T) {
	t.Parallel()
	h := start(t)
	dead, err := net.Listen("tcp", alone()+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := dead.Addr().String()
	_ = dead.Close()
	operator := h.pausing(t)
	if _, err := operator.Begin(t.Context(), address, "olga", "", time.Hour); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	config := h.config()
	config.Pauses, config.Metrics, config.RetryFor = h.mirrored(t), registry, 15*time.Minute
	id := h.complete(t, "https://"+address, "u", verified).ID
	h.offset.Add(int64(30 * time.Minute)) // the dispatcher starts late, and the pause continues
	h.dispatch(t, config)
	natstest.Await(t, "the delivery waits", func() bool {
		return gauge(t, registry, "verifyd_deliveries_held") == 1
	})
	h.offset.Add(int64(2 * time.Minute)) // its patience after a start is over
	if _, err := operator.End(t.Context(), address, "olga"); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "a try after the pause", func() bool {
		return counter(t, registry, "verifyd_delivery_not_sent_total") >= 1
	})
	if v, err := h.store.Read(t.Context(), id); err != nil || v.Delivery.State != facts.DeliveryDue ||
		len(v.Delivery.Attempts) != 0 {
		t.Errorf("after the first try: %s, %d attempts, %v", v.Delivery.State, len(v.Delivery.Attempts), err)
	}
	h.offset.Add(int64(15 * time.Minute))
	h.until(t, id, facts.DeliveryUndeliverable)
}
