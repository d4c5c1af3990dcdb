package dispatcher_test

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// isolation is how many sessions hang and how many are healthy: go test ./dispatcher -run TestIsolation -v
// -isolation 1000
var isolation = flag.Int("isolation", 300, "sessions to hanging receivers, and as many to healthy ones")

const (
	// isolationHosts is how many receivers hang, and how many are healthy. Each hanging one gets more than
	// one session and, in the long run, more than its actor sends concurrently.
	isolationHosts = 10
	// isolationPace is the interval between two completions: a load that leaves the machine idle time, so
	// that waiting shows and queueing does not.
	isolationPace = 4 * time.Millisecond
	// isolationTimeout is longer than the test: so that so that a hanging delivery that ends by itself is a
	// failure.
	isolationTimeout = 5 * time.Minute

	// What one held delivery may cost this process, which is dispatcher, receiver and store at once: a
	// delivery, a connection's two ends with TLS, and the receiver's goroutines and buffers. Measured: 3
	// goroutines, 2 descriptors, 66 KiB.
	goroutinesPerHeld = 4
	filesPerHeld      = 2
	bytesPerHeld      = 96 << 10
	bytesPerWaiting   = 8 << 10 // one that waits at a destination of its own
	// And the costs that do not depend on the load: the actors, the healthy connections of the moment, the
	// store's caches.
	goroutinesBase = 100
	filesBase      = 100
	bytesBase      = 16 << 20
)

// occupancy is a set of https receivers, on addresses of their own, that record when each callback arrived.
type occupancy struct {
	urls []string
	gate chan struct{} // receivers wait for it before they answer

	mu       sync.Mutex
	received map[string][]time.Time // by webhook-id
	more     chan struct{}
}

func (h *fixture) crowd(t *testing.T, network int, gate chan struct{}) *occupancy {
	t.Helper()
	c := &occupancy{gate: gate, received: map[string][]time.Time{}, more: make(chan struct{}, 1)}
	var hosts []string
	for i := range isolationHosts {
		hosts = append(hosts, fmt.Sprintf("127.0.%d.%d", network, i+1))
	}
	cert, err := h.ca.Issue(localca.Certificate{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(c.receive))
		_ = s.Listener.Close()
		s.Listener, s.TLS = l, &tls.Config{
			Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
		}
		s.StartTLS()
		t.Cleanup(s.Close)
		c.urls = append(c.urls, s.URL)
	}
	return c
}

func (c *occupancy) receive(w http.ResponseWriter, q *http.Request) {
	at := time.Now()
	_, _ = io.Copy(io.Discard, q.Body)
	id := q.Header.Get("webhook-id")
	c.mu.Lock()
	c.received[id] = append(c.received[id], at)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
	<-c.gate
	w.WriteHeader(http.StatusNoContent)
}

// until waits for n callbacks to have arrived.
func (c *occupancy) until(t *testing.T, n int) {
	t.Helper()
	for timeout := time.After(natstest.TestTimeout); ; {
		c.mu.Lock()
		got := len(c.received)
		c.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-c.more:
		case <-timeout:
			t.Fatalf("%d callbacks have arrived, want %d", got, n)
		}
	}
}

func (c *occupancy) posts(id sessions.ID) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received["cb_"+string(id)]
}

// prepare starts n sessions, spread over the receivers.
func (h *fixture) prepare(t *testing.T, to *occupancy, n int) []sessions.ID {
	t.Helper()
	return h.prepareFor(t, "acc_a", to, n)
}

func (h *fixture) prepareFor(t *testing.T, account string, to *occupancy, n int) []sessions.ID {
	t.Helper()
	ids := make([]sessions.ID, n)
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := worker; i < n; i += 16 {
				s, _, err := h.store.Create(t.Context(), sessions.Request{
					Account: account, Platform: "p", PlatformUserID: "u",
					CallbackURL: to.urls[i%len(to.urls)],
				})
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = s.ID
			}
		})
	}
	wg.Wait()
	return ids
}

// readAndComplete completes a session as the sign-in does: it is read first.
func (h *fixture) readAndComplete(t *testing.T, id sessions.ID) {
	t.Helper()
	s, err := h.store.ReadOpen(t.Context(), id)
	if err == nil {
		_, err = h.store.Complete(t.Context(), s, verified)
	}
	if err != nil {
		t.Error(err)
	}
}

// completeAtPace completes one session of each list in turn, one at each beat, and returns when each
// completion began. A nil list lets its beats pass, so that the others keep their pace.
func (h *fixture) completeAtPace(t *testing.T, first, second []sessions.ID) map[sessions.ID]time.Time {
	t.Helper()
	at := make(map[sessions.ID]time.Time)
	beat := time.NewTicker(isolationPace)
	defer beat.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range first {
		for _, ids := range [][]sessions.ID{first, second} {
			<-beat.C
			if ids == nil {
				continue
			}
			id := ids[i]
			at[id] = time.Now()
			wg.Go(func() { h.readAndComplete(t, id) })
		}
	}
	return at
}

// receipts returns the times from completion to receipt, ascending.
func (c *occupancy) receipts(t *testing.T, ids []sessions.ID,
	began map[sessions.ID]time.Time) []time.Duration {
	t.Helper()
	var took []time.Duration
	for _, id := range ids {
		posts := c.posts(id)
		if len(posts) != 1 {
			t.Fatalf("%d POSTs for a healthy session", len(posts))
		}
		took = append(took, posts[0].Sub(began[id]))
	}
	slices.Sort(took)
	return took
}

func percentile(sorted []time.Duration, p int) time.Duration { return sorted[(len(sorted)-1)*p/100] }

// use is the resource usage of this process.
type use struct {
	goroutines, files int
	bytes             int64 // live heap and stacks
}

func usage(t *testing.T) use {
	t.Helper()
	runtime.GC()
	runtime.GC() // the first moves pools' contents aside, the second frees them
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := use{goroutines: runtime.NumGoroutine(), bytes: int64(m.HeapAlloc + m.StackInuse)}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil { // they are only counted on Linux
		u.files = len(fds)
	}
	return u
}

func (u use) minus(v use) use {
	return use{u.goroutines - v.goroutines, u.files - v.files, u.bytes - v.bytes}
}

func (u use) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB", u.goroutines, u.files, float64(u.bytes)/1e6)
}

// TestIsolation completes as many sessions for receivers that hang as for healthy ones, at the same time:
// every healthy one is delivered while all the others still hang, and what hangs costs a bounded amount. The
// times are reported, not judged: they are the machine's as much as ours.
func TestIsolation(t *testing.T) {
	n := *isolation
	h := start(t)
	open, gate := make(chan struct{}), make(chan struct{})
	close(open)
	release := sync.OnceFunc(func() { close(gate) })
	healthy, hanging := h.crowd(t, 4, open), h.crowd(t, 5, gate)
	t.Cleanup(release)
	h.timeout = isolationTimeout
	h.dispatch(t, h.config())

	warm, alone, beside := h.prepare(t, healthy, isolationHosts), h.prepare(t, healthy, n),
		h.prepare(t, healthy, n)
	stuck := h.prepare(t, hanging, n)
	h.completeAtPace(t, warm, nil)
	healthy.until(t, len(warm))
	began := h.completeAtPace(t, alone, nil)
	healthy.until(t, len(warm)+n)
	before := healthy.receipts(t, alone, began)
	quiet := usage(t)

	began = h.completeAtPace(t, beside, stuck)
	healthy.until(t, len(warm)+2*n)
	for _, id := range beside {
		h.until(t, id, facts.DeliveryDelivered)
	}
	for _, id := range stuck {
		if v, err := h.store.Read(t.Context(), id); err != nil ||
			v.Delivery.State != facts.DeliveryClaimed && v.Delivery.State != facts.DeliveryDue {
			t.Fatalf("a hanging delivery has ended before the healthy ones: %s, %v", v.Delivery.State, err)
		}
	}
	held := min(n, isolationHosts*64) // Config.Connections' default, for each host
	hanging.until(t, held)
	cost := usage(t).minus(quiet)
	with := healthy.receipts(t, beside, began)
	t.Logf("figures: %d sessions to %d hanging hosts, %d to %d healthy ones", n, isolationHosts, n,
		isolationHosts)
	for _, p := range []int{50, 99, 100} {
		a, b := percentile(before, p), percentile(with, p)
		t.Logf("figures: p%d from completion to receipt: %v without the hanging, %v with them, ratio %.2f", p,
			a.Round(time.Microsecond), b.Round(time.Microsecond), float64(b)/float64(a))
	}
	t.Logf("figures: %d hanging deliveries cost %v", held, cost)
	most := use{
		goroutinesBase + goroutinesPerHeld*held, filesBase + filesPerHeld*held,
		int64(bytesBase + bytesPerHeld*held),
	}
	if cost.goroutines > most.goroutines || cost.files > most.files || cost.bytes > most.bytes {
		t.Errorf("hanging deliveries cost %v; at most %v are allowed", cost, most)
	}

	release()
	for _, id := range stuck {
		h.until(t, id, facts.DeliveryDelivered)
		if posts := hanging.posts(id); len(posts) != 1 {
			t.Errorf("%d POSTs", len(posts))
		}
	}
}

const (
	manyHosts = 10_000
	// manyHostsBytes is the maximum memory of that many destinations.
	manyHostsBytes = 100_000_000
)

// TestTenThousandHosts creates a destination for each of ten thousand hosts and measures their memory. It is
// what stopping the dispatcher frees: the facts that they leave in the store, which shares this process,
// stay.
func TestTenThousandHosts(t *testing.T) {
	prove.Only(t, "weights", "it weighs this process, and ten thousand sessions take long to begin")
	if underRaceDetector() {
		t.Skip("the race detector makes every stack and every lock heavier: it would be weighed with the " +
			"hosts")
	}
	h := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port on which nothing listens from now on
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	hosts := &occupancy{}
	for i := range manyHosts {
		hosts.urls = append(hosts.urls,
			fmt.Sprintf("https://127.%d.%d.%d:%d/", 64+i/10_000, i/200%50, i%200+1, port))
	}
	ids := h.prepare(t, hosts, manyHosts)
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			for i := worker; i < len(ids); i += 64 {
				h.readAndComplete(t, ids[i])
			}
		})
	}
	wg.Wait()
	before := usage(t)
	config := h.config()
	config.Idle = time.Hour            // none retires while the test runs
	config.RetryFor = time.Millisecond // each is dialled once, refused, and given up
	stop := h.dispatch(t, config)
	for _, id := range ids {
		h.until(t, id, facts.DeliveryUndeliverable)
	}
	known := usage(t)
	stop()
	after := usage(t)
	cost := known.minus(after)
	t.Logf("figures: %d hosts cost %v; before %v, all known %v, stopped %v", manyHosts, cost, before, known,
		after)
	if cost.goroutines < manyHosts {
		t.Fatalf("%d goroutines for %d hosts: they were not all known at once", cost.goroutines, manyHosts)
	}
	if cost.bytes > manyHostsBytes {
		t.Errorf("%d hosts cost %v; at most %d MB are allowed", manyHosts, cost, manyHostsBytes/1_000_000)
	}
}

func underRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
