package dispatcher_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/sessions"
)

// waiting completes n sessions for a receiver, many at once.
func (h *house) waiting(t *testing.T, r *receiver, n int) []sessions.ID {
	t.Helper()
	ids := h.prepare(t, &crowd{urls: []string{r.URL}}, n)
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := worker; i < n; i += 32 {
				if _, err := h.store.Complete(t.Context(), ids[i], verified); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return ids
}

// burst is how many deliveries wait for one receiver.
func burst() int {
	if testing.Short() {
		return 1000
	}
	return 3000
}

// A burst to one receiver goes over few connections, never more than its limit, and each delivery is one POST and one claim.
func TestBurstSharesConnections(t *testing.T) {
	h := start(t)
	var conns sync.Map // by the dispatcher's address
	var busy, most atomic.Int64
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		conns.Store(q.RemoteAddr, true)
		now := busy.Add(1)
		defer busy.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			continue
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ids := h.waiting(t, r, burst())
	config := h.config()
	config.Concurrency = 16
	h.dispatch(t, config)
	for _, id := range ids {
		v := h.until(t, id, sessions.DeliveryDelivered)
		if n := r.count(id); n != 1 || len(v.Delivery.Attempts) != 1 {
			t.Fatalf("%d POSTs, attempts %+v", n, v.Delivery.Attempts)
		}
	}
	dialled := 0
	conns.Range(func(any, any) bool { dialled++; return true })
	if most.Load() > 16 || dialled > 64 {
		t.Errorf("%d POSTs at once over %d connections in all, for a limit of 16", most.Load(), dialled)
	}
}

// A receiver falls silent in the middle of a burst. What was claimed ahead and got no connection is released, sent later, and never
// twice; what was being sent is unknown.
func TestSilenceInABurst(t *testing.T) {
	h := start(t)
	var got atomic.Int64
	half := int64(burst() / 2)
	gate := make(chan struct{})
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		if got.Add(1) > half {
			select {
			case <-gate:
			case <-q.Context().Done():
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ids := h.waiting(t, r, burst())
	config := h.config()
	config.Concurrency = 8
	h.dispatch(t, config)
	for deadline := time.Now().Add(40 * time.Second); got.Load() <= half+8; { // the first who fell silent have timed out
		if time.Now().After(deadline) {
			t.Fatalf("%d POSTs", got.Load())
		}
		runtime.Gosched()
	}
	close(gate)
	released, unknown := 0, 0
	for _, id := range ids {
		v := h.settled(t, id)
		for _, a := range v.Delivery.Attempts {
			if a.Result.Verdict == sessions.VerdictReleased {
				released++
				if a.Result.Class != sessions.ClassLate {
					t.Errorf("released: %+v", a.Result)
				}
			}
		}
		if v.Delivery.State == sessions.DeliveryUnknown {
			unknown++
		}
		if n := r.count(id); n != 1 {
			t.Errorf("%d POSTs, delivery %s", n, v.Delivery.State)
		}
	}
	if released == 0 {
		t.Error("nothing was claimed ahead: this test is about nothing")
	}
	if unknown == 0 || unknown > 64 {
		t.Errorf("%d deliveries are unknown; 8 at a time were silent", unknown)
	}
}

// settled waits until a delivery has ended.
func (h *house) settled(t *testing.T, id sessions.ID) sessions.View {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		v, err := h.store.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if v.Delivery.State != sessions.DeliveryDue && v.Delivery.State != sessions.DeliveryClaimed {
			return v
		}
		if time.Now().After(deadline) {
			t.Fatalf("delivery stays %s: %+v", v.Delivery.State, v.Delivery.Attempts)
		}
	}
}

// A receiver takes connections and never does TLS. Deliveries whose time is over are given up together, not one dial after the other:
// with one second each that would be a minute and a half.
func TestDeliveriesToADeadReceiverAreGivenUpTogether(t *testing.T) {
	h := start(t)
	hang, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hang.Close() }()
	r := &receiver{Server: &httptest.Server{URL: "https://" + hang.Addr().String()}}
	ids := h.waiting(t, r, 90)
	config := h.config()
	config.RetryFor = time.Second
	h.dispatch(t, config)
	for _, id := range ids {
		h.until(t, id, sessions.DeliveryUndeliverable)
	}
}
