package dispatcher_test

import (
	"crypto/tls"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// gauge reads a metric by its name. If it has a label, the sum over the given values is read.
func gauge(t *testing.T, g prometheus.Gatherer, name string, values ...string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		found = true
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 0 || slices.Contains(values, m.GetLabel()[0].GetValue()) {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	if !found {
		t.Fatalf("no metric %s", name)
	}
	return sum
}

// troubled counts the destinations whose breaker is open or half-open.
func troubled(t *testing.T, g prometheus.Gatherer) float64 {
	t.Helper()
	return gauge(t, g, "verifyd_delivery_breakers", "open", "half-open")
}

// A receiver that does not answer is left alone: while the breaker is open its deliveries cost no dial, and
// when the receiver is back, one probe detects that and all of them are delivered.
func TestBreakerLeavesADeadReceiverAlone(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, alone(), status(204))
		address, handler, conf := r.Listener.Addr().String(), r.Config.Handler, r.TLS
		r.Close()

		var dials atomic.Int64
		dead := h.listen(t, address) // accepts connections and closes them: no TLS
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				conn, err := dead.Accept()
				if err != nil {
					return
				}
				dials.Add(1)
				_ = conn.Close()
			}
		})
		t.Cleanup(func() { _ = dead.Close(); wg.Wait() })
		config := h.config()
		registry := prometheus.NewRegistry()
		config.Metrics, config.Connections, config.BreakerOpen = registry, 1, 3*time.Second
		const n = 40
		ids := make([]sessions.ID, n)
		for i := range ids {
			ids[i] = h.complete(t, "https://"+address, "u", verified).ID
		}
		h.dispatch(t, config)
		natstest.Await(t, "a destination is made", func() bool {
			return gauge(t, registry, "verifyd_destinations") == 1
		})
		natstest.Await(t, "the breaker opens", func() bool {
			return troubled(t, registry) == 1 && gauge(t, registry, "verifyd_deliveries_held") == 0
		})
		// All forty were handed out, five were dialled, the rest were returned without a dial; probes may
		// have followed.
		if got := dials.Load(); got < 5 || got > 8 {
			t.Errorf("%d dials for %d deliveries", got, n)
		}
		_ = dead.Close()
		wg.Wait()
		back := httptest.NewUnstartedServer(handler)
		_ = back.Listener.Close()
		back.Listener = h.listen(t, address)
		back.TLS = &tls.Config{Certificates: conf.Certificates, MinVersion: tls.VersionTLS12}
		back.StartTLS()
		t.Cleanup(back.Close)
		for _, id := range ids {
			h.until(t, id, facts.DeliveryDelivered)
			if got := r.count(id); got != 1 {
				t.Errorf("%d POSTs", got)
			}
		}
		if open := troubled(t, registry); open != 0 {
			t.Errorf("%v breakers stay open", open)
		}
	})
}

// A dead receiver without deliveries is forgotten, with its open breaker.
func TestDeadDestinationRetires(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, alone(), status(204))
		url := r.URL
		r.Close()
		config := h.config()
		registry := prometheus.NewRegistry()
		config.Metrics, config.RetryFor, config.BreakerOpen, config.Idle = registry, time.Second,
			500*time.Millisecond, 100*time.Millisecond
		var ids []sessions.ID
		for range 12 {
			ids = append(ids, h.complete(t, url, "u", verified).ID)
		}
		h.dispatch(t, config)
		for _, id := range ids {
			h.until(t, id, facts.DeliveryUndeliverable)
		}
		natstest.Await(t, "the destination retires", func() bool {
			return gauge(t, registry, "verifyd_destinations") == 0 && troubled(t, registry) == 0
		})
	})
}
