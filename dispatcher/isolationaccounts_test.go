package dispatcher_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest"
	"verifyd/sessions/facts"
)

// hangingHosts has n receivers that hang, each with an address and a certificate of its own, on one port.
func (h *fixture) hangingHosts(t *testing.T, n int, gate chan struct{}) *occupancy {
	t.Helper()
	c := &occupancy{gate: gate, received: map[string][]time.Time{}, more: make(chan struct{}, 1)}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]*tls.Config{}
	for i := range n {
		host := fmt.Sprintf("127.2.%d.%d", i/250, i%250+1)
		cert, err := h.ca.Issue(localca.Certificate{Hosts: []string{host}})
		if err != nil {
			t.Fatal(err)
		}
		configs[host] = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
		c.urls = append(c.urls, "https://"+net.JoinHostPort(host, port))
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(c.receive))
	_ = s.Listener.Close()
	s.Listener, s.TLS = l, &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return configs[hello.Conn.LocalAddr().(*net.TCPAddr).IP.String()], nil
		}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return c
}

// TestIsolationOfAccounts has an account with the number of hosts in the flag, all of which hang, and two
// callbacks for each, and another account with healthy ones. The first uses its share, and its other
// callbacks wait and cost no connection; meanwhile those of the other account arrive as before. In the long
// run the bounds are the defaults.
func TestIsolationOfAccounts(t *testing.T) {
	n := *isolation
	h := start(t)
	open, gate := make(chan struct{}), make(chan struct{})
	close(open)
	release := sync.OnceFunc(func() { close(gate) })
	healthy, hanging := h.crowd(t, 6, open), h.hangingHosts(t, n, gate)
	t.Cleanup(release)
	config, registry := h.patient()
	config.Attempts = 2048 * n / 1000
	share := config.Attempts / 2
	h.dispatch(t, config)

	warm, alone, beside := h.prepare(t, healthy, isolationHosts), h.prepare(t, healthy, n),
		h.prepare(t, healthy, n)
	stuck := h.prepareFor(t, "acc_crowd", hanging, 2*n)
	h.completeAtPace(t, warm, nil)
	healthy.until(t, len(warm))
	began := h.completeAtPace(t, alone, nil)
	healthy.until(t, len(warm)+n)
	before := healthy.receipts(t, alone, began)
	quiet := usage(t)

	h.completeAtOnce(t, stuck) // nothing is timed meanwhile
	natstest.Await(t, "the account has its share under way, and the others wait", func() bool {
		return gauge(t, registry, "verifyd_deliveries_held") == float64(len(stuck)) &&
			gauge(t, registry, "verifyd_delivery_account_in_flight") == float64(share)
	})
	hanging.until(t, share)
	cost := usage(t).minus(quiet)
	began = h.completeAtPace(t, beside, nil)
	healthy.until(t, len(warm)+2*n)
	with := healthy.receipts(t, beside, began)
	t.Logf("figures: %d callbacks of one account to %d hosts that hang, %d of another to %d healthy ones",
		len(stuck), n, n, isolationHosts)
	for _, p := range []int{50, 99, 100} {
		a, b := percentile(before, p), percentile(with, p)
		t.Logf("figures: p%d from completion to receipt: %v without the hanging, %v with them, ratio %.2f", p,
			a.Round(time.Microsecond), b.Round(time.Microsecond), float64(b)/float64(a))
	}
	t.Logf("figures: %d hanging deliveries and %d that wait cost %v", share, len(stuck)-share, cost)
	most := use{
		goroutinesBase + goroutinesPerHeld*share + n, filesBase + filesPerHeld*share,
		int64(bytesBase + bytesPerHeld*share + bytesPerWaiting*len(stuck)),
	}
	if cost.goroutines > most.goroutines || cost.files > most.files || cost.bytes > most.bytes {
		t.Errorf("hanging deliveries cost %v; at most %v are allowed", cost, most)
	}
	if got := gauge(t, registry, "verifyd_delivery_account_in_flight"); got != float64(share) {
		t.Errorf("%v callbacks of the account are under way, want %d", got, share)
	}

	release()
	hanging.until(t, len(stuck))
	for _, id := range stuck {
		h.until(t, id, facts.DeliveryDelivered)
		if posts := hanging.posts(id); len(posts) != 1 {
			t.Errorf("%d POSTs", len(posts))
		}
	}
}
