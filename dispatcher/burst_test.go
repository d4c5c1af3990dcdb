package dispatcher_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/dispatcher"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// waiting completes n sessions for a receiver, many concurrently.
func (h *fixture) waiting(t *testing.T, r *receiver, n int) []sessions.ID {
	t.Helper()
	ids := h.prepare(t, &occupancy{urls: []string{r.URL}}, n)
	h.completeAtOnce(t, ids)
	return ids
}

// completeAtOnce completes sessions, many concurrently.
func (h *fixture) completeAtOnce(t *testing.T, ids []sessions.ID) {
	t.Helper()
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := worker; i < len(ids); i += 32 {
				h.readAndComplete(t, ids[i])
			}
		})
	}
	wg.Wait()
}

// burst is how many deliveries wait for one receiver.
func burst() int { return prove.Size("weights", 1000, 3000) }

// atOnce counts the concurrent POSTs of a receiver.
type atOnce struct{ now, most atomic.Int64 }

// one records a POST that has begun. Its end must be recorded before it is answered: after the answer the
// next one may begin.
func (a *atOnce) one() (ended func()) {
	now := a.now.Add(1)
	for most := a.most.Load(); now > most && !a.most.CompareAndSwap(most, now); most = a.most.Load() {
		continue
	}
	return func() { a.now.Add(-1) }
}

// A slow receiver has as many concurrent POSTs as it may have connections, and never more, whatever waits and
// whatever else is sent meanwhile.
func TestConnectionsBoundWhatIsUnderWay(t *testing.T) {
	for _, bound := range []int{3, 80} { // below the default and above it
		t.Run(strconv.Itoa(bound), func(t *testing.T) {
			h := start(t)
			var seen atOnce
			gate := make(chan struct{})
			slow := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
				defer seen.one()()
				select {
				case <-gate:
				case <-q.Context().Done():
				}
				w.WriteHeader(http.StatusNoContent)
			})
			fast := h.receive(t, "127.0.0.2", status(http.StatusNoContent))
			ids := h.waiting(t, slow, 3*bound)
			config, registry := h.config(), prometheus.NewRegistry()
			config.Connections, config.Metrics = bound, registry
			h.dispatch(t, config)
			release := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(release)
			natstest.Await(t, "as many POSTs are under way as may be", func() bool {
				return seen.now.Load() >= int64(bound)
			})
			natstest.Await(t, "the others wait at their destination", func() bool {
				return gauge(t, registry, "verifyd_deliveries_held") >= float64(len(ids))
			})
			for range 20 { // a dispatcher without the bound would have exceeded it by the end of these
				h.until(t, h.complete(t, fast.URL, "u", verified).ID, facts.DeliveryDelivered)
			}
			release()
			for _, id := range ids {
				h.until(t, id, facts.DeliveryDelivered)
				if n := slow.count(id); n != 1 {
					t.Errorf("%d POSTs", n)
				}
			}
			if most := seen.most.Load(); most != int64(bound) {
				t.Errorf("%d POSTs were under way at once, want %d", most, bound)
			}
		})
	}
}

// More connections than deliveries may wait at a destination, or fewer than none, are refused.
func TestConnectionsOutOfRangeAreRefused(t *testing.T) {
	h := start(t)
	for _, connections := range []int{-1, dispatcher.MaxConnections + 1} {
		config := h.config()
		config.Connections = connections
		if _, err := dispatcher.New(config); err == nil || !strings.Contains(err.Error(), "use 1 to 1024") {
			t.Errorf("%d connections: %v", connections, err)
		}
	}
}

// A burst to one receiver goes over few connections, never more than its limit, and each delivery is one
// POST and one claim.
func TestBurstSharesConnections(t *testing.T) {
	h := start(t)
	var conns sync.Map // by the dispatcher's address
	var seen atOnce
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		conns.Store(q.RemoteAddr, true)
		defer seen.one()()
		w.WriteHeader(http.StatusNoContent)
	})
	ids := h.waiting(t, r, burst())
	config, _ := h.patient() // a busy machine makes no answer late
	config.Connections = 16
	h.dispatch(t, config)
	for _, id := range ids {
		v := h.until(t, id, facts.DeliveryDelivered)
		if n := r.count(id); n != 1 || len(v.Delivery.Attempts) != 1 {
			t.Fatalf("%d POSTs, attempts %+v", n, v.Delivery.Attempts)
		}
	}
	dialled := 0
	conns.Range(func(any, any) bool { dialled++; return true })
	if most := seen.most.Load(); most > 16 || dialled > 64 {
		t.Errorf("%d POSTs at once over %d connections in all, for a limit of 16", most, dialled)
	}
}

// A receiver stops answering in the middle of a burst. What was being sent is unknown; what waited for a
// connection has no claim, is sent later, and never twice: each delivery is one attempt.
func TestSilenceInABurst(t *testing.T) {
	h := start(t)
	h.stand()
	const connections = 8
	var got atomic.Int64
	half := int64(burst() / 2)
	ends, gate := make(chan struct{}), make(chan struct{})
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		n, silent := got.Add(1), gate
		if n <= half {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if n <= half+connections {
			silent = ends
		}
		select {
		case <-silent:
		case <-q.Context().Done():
		}
		if n <= half+connections {
			hangUp(w, q)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ids := h.waiting(t, r, burst())
	config := h.config()
	config.Connections = connections
	h.dispatch(t, config)
	arrived := func(n int64) {
		t.Helper()
		natstest.Await(t, fmt.Sprint(n, " POSTs"), func() bool { return got.Load() >= n })
	}
	arrived(half + connections) // each connection carries one that gets no answer
	close(ends)                 // the receiver ends those connections
	arrived(half + connections + 1)
	close(gate)
	unknown := 0
	for _, id := range ids {
		v := h.untilSettled(t, id)
		if len(v.Delivery.Attempts) != 1 {
			t.Errorf("attempts %+v", v.Delivery.Attempts)
		}
		switch v.Delivery.State {
		case facts.DeliveryDelivered:
		case facts.DeliveryUnknown:
			unknown++
		default:
			t.Errorf("delivery %s", v.Delivery.State)
		}
		if n := r.count(id); n != 1 {
			t.Errorf("%d POSTs, delivery %s", n, v.Delivery.State)
		}
	}
	if unknown != connections {
		t.Errorf("%d deliveries are unknown, and %d got no answer", unknown, connections)
	}
}

// A receiver accepts connections and never does TLS. Deliveries whose time is over are given up together, not
// one dial at a time: with one second each that would be a minute and a half.
func TestDeliveriesToADeadReceiverAreGivenUpTogether(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		hang := h.listen(t, "127.0.0.1:0")
		var accepting sync.WaitGroup
		accepting.Go(func() {
			for {
				if _, err := hang.Accept(); err != nil {
					return
				}
			}
		})
		t.Cleanup(func() { _ = hang.Close(); accepting.Wait() })
		r := &receiver{Server: &httptest.Server{URL: "https://" + hang.Addr().String()}}
		ids := h.waiting(t, r, 90)
		h.timeout = quick // half of it is each dial's
		config := h.config()
		config.RetryFor = time.Second
		began := time.Now()
		h.dispatch(t, config)
		for _, id := range ids {
			h.until(t, id, facts.DeliveryUndeliverable)
		}
		if took := time.Since(began); h.memory != nil && took > time.Minute {
			t.Errorf("it took %s", took) // of virtual time
		}
	})
}
