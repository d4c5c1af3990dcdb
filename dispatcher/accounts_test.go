package dispatcher_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/dispatcher"
	"verifyd/dispatcher/callback"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// completeFor makes a session of the account for the receiver and completes it.
func (h *fixture) completeFor(t *testing.T, account, url string) sessions.ID {
	t.Helper()
	s, _, err := h.store.Create(natstest.Patient(t), sessions.Request{
		Account: account, Key: "key_k", Platform: "p", PlatformUserID: account, CallbackURL: url,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Complete(natstest.Patient(t), s, verified); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// patient is a configuration whose attempts last as long as the test.
func (h *fixture) patient() (dispatcher.Config, *prometheus.Registry) {
	config, registry := h.config(), prometheus.NewRegistry()
	config.Timeout, config.Client, config.Metrics = isolationTimeout, h.client(isolationTimeout), registry
	return config, registry
}

// Callbacks of two accounts to one receiver, more from one than from the other: each connection carries only
// those of one account, and is reused for them.
func TestAccountsShareNoConnection(t *testing.T) {
	t.Parallel()
	h := start(t)
	var mu sync.Mutex
	carried := map[string][]string{} // by the dispatcher's address
	accounts := map[string]string{}  // by webhook-id
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		carried[q.RemoteAddr] = append(carried[q.RemoteAddr], q.Header.Get("webhook-id"))
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	var ids []sessions.ID
	for i := range 20 {
		account := fmt.Sprintf("acc_%d", min(i%4, 1))
		id := h.completeFor(t, account, r.URL)
		ids, accounts["cb_"+string(id)] = append(ids, id), account
	}
	config := h.config()
	config.Connections = 2
	h.dispatch(t, config)
	for _, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
	}
	most := 0
	for at, hooks := range carried {
		most = max(most, len(hooks))
		if slices.ContainsFunc(hooks, func(hook string) bool {
			return accounts[hook] != accounts[hooks[0]]
		}) {
			t.Errorf("the connection from %s carried callbacks of both accounts", at)
		}
	}
	if most < 2 {
		t.Error("no connection was used again: this test is about nothing")
	}
}

// A receiver that once answers twice gets a connection for each callback from then on: late data cannot be
// read as the answer to the next one.
func TestHostThatAnswersUnaskedKeepsNoConnection(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	var mu sync.Mutex
	carried := map[string]int{} // by the dispatcher's address
	first := true
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		twice := first
		carried[q.RemoteAddr]++
		first = false
		mu.Unlock()
		if !twice {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = out.WriteString("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
		_ = out.Flush()
		_, _ = conn.Read(make([]byte, 1)) // until the other side closes
		_ = conn.Close()
	})
	config := h.config()
	config.Connections = 1
	h.dispatch(t, config)
	const n = 6
	for range n {
		h.until(t, h.complete(t, r.URL, "u", verified).ID, facts.DeliveryDelivered)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(carried) != n {
		t.Errorf("%d connections for %d callbacks", len(carried), n)
	}
}

// An account whose receivers hang uses its share of callbacks, and only its own others wait: those of other
// accounts arrive, even at the same host, and when its receivers answer, each of its own arrives once.
func TestAccountAtItsShareWaitsByItself(t *testing.T) {
	t.Parallel()
	h := start(t)
	const share, hosts = 4, 12
	var seen atOnce
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	hang := func(w http.ResponseWriter, q *http.Request) {
		defer seen.one()()
		select {
		case <-gate:
		case <-q.Context().Done():
		}
		w.WriteHeader(http.StatusNoContent)
	}
	shared := h.receive(t, "127.0.0.2", status(http.StatusNoContent))
	var waiting []sessions.ID
	var crowd []*receiver
	for i := range hosts {
		crowd = append(crowd, h.receive(t, fmt.Sprintf("127.0.8.%d", i+1), hang))
		waiting = append(waiting, h.completeFor(t, "acc_crowd", crowd[i].URL),
			h.completeFor(t, "acc_crowd", crowd[i].URL))
	}
	t.Cleanup(release)
	config, registry := h.patient()
	config.Attempts, config.AccountAttempts = 3*share, share
	h.dispatch(t, config)
	natstest.Await(t, "the account is at its share", func() bool {
		return seen.now.Load() == share && gauge(t, registry, "verifyd_deliveries_held") == 2*hosts
	})
	waiting = append(waiting, h.completeFor(t, "acc_crowd", shared.URL))
	natstest.Await(t, "one more waits", func() bool {
		return gauge(t, registry, "verifyd_deliveries_held") == 2*hosts+1
	})
	for range 20 {
		h.until(t, h.completeFor(t, "acc_other", shared.URL), facts.DeliveryDelivered)
	}
	if n := shared.count(waiting[2*hosts]); n != 0 {
		t.Errorf("the account at its share sent %d", n)
	}
	for name, want := range map[string]float64{
		"verifyd_delivery_account_in_flight": share, "verifyd_delivery_accounts_waiting": 1,
	} {
		if got := gauge(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := gauge(t, registry, "verifyd_delivery_attempts_limit", "account"); got != share {
		t.Errorf("the account's limit is shown as %v", got)
	}
	release()
	for i, id := range waiting {
		h.until(t, id, facts.DeliveryDelivered)
		if n := append(crowd, shared)[i/2].count(id); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
	if most := seen.most.Load(); most != share {
		t.Errorf("%d callbacks of the account were under way at once, want %d", most, share)
	}
	natstest.Await(t, "nobody waits", func() bool {
		return gauge(t, registry, "verifyd_delivery_accounts_waiting") == 0 &&
			gauge(t, registry, "verifyd_delivery_account_in_flight") == 0
	})
}

// If a dispatcher stops while an account waits for its share, it returns what has not begun, and the next
// start sends it.
func TestStopWhileAnAccountWaits(t *testing.T) {
	t.Parallel()
	h := start(t)
	gate := make(chan struct{})
	var ids []sessions.ID
	var all []*receiver
	for range 6 {
		r := h.receive(t, alone(), func(w http.ResponseWriter, q *http.Request) {
			select {
			case <-gate:
			case <-q.Context().Done():
			}
			w.WriteHeader(http.StatusNoContent)
		})
		all, ids = append(all, r), append(ids, h.completeFor(t, "acc_a", r.URL))
	}
	config, registry := h.patient()
	config.Attempts, config.AccountAttempts = 2, 1
	stop := h.dispatch(t, config)
	natstest.Await(t, "one is under way and the others wait", func() bool {
		return gauge(t, registry, "verifyd_deliveries_in_flight") == 1 &&
			gauge(t, registry, "verifyd_deliveries_held") == 6 &&
			gauge(t, registry, "verifyd_delivery_accounts_waiting") == 1
	})
	close(gate)
	stop()
	h.dispatch(t, h.config())
	for i, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
		if n := all[i].count(id); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
}

// wildcard resolves every name to one address.
func wildcard(t *testing.T, to [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		for b := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(addressOf(b[:n], to), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// addressOf answers a DNS query (RFC 1035 §4) with an address, or with none if another type is asked for.
func addressOf(query []byte, to [4]byte) []byte {
	const header = 12
	end := header
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	question, answers := query[header:end+5], byte(0)
	if query[end+2] == 1 {
		answers = 1
	}
	b := slices.Concat(query[:2], []byte{0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0}, question)
	if answers == 1 {
		b = append(b, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, to[0], to[1], to[2], to[3])
	}
	return b
}

// All names of a domain resolve to one machine that hangs: an account has no more connections there than a
// few hosts may have, another account's callbacks get there, and what waits arrives once when it answers.
func TestManyNamesAtOneAddress(t *testing.T) {
	t.Parallel()
	h := start(t)
	const names, most = 10, 4 // as many as four hosts may have, of one connection each
	var seen atOnce
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	r := h.receiveAs(t, "*.wild.example", "127.0.9.1", func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/hang" {
			defer seen.one()()
			<-gate
		}
		w.WriteHeader(http.StatusNoContent)
	})
	t.Cleanup(release)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	config, registry := h.patient()
	config.Connections = 1
	config.Client = callback.New(callback.Config{
		RootCAs: h.ca.Pool(), Policy: h.policy, Timeout: isolationTimeout,
		UserAgent: "verifyd/test",
		Resolver:  wildcard(t, [4]byte{127, 0, 9, 1}),
	})
	h.dispatch(t, config)
	var ids []sessions.ID
	for i := range names {
		ids = append(ids, h.completeFor(t, "acc_a", fmt.Sprintf("https://n%d.wild.example:%s/hang", i, port)))
	}
	natstest.Await(t, "the address has as many as it may, and the others came too many", func() bool {
		return seen.now.Load() == most &&
			counter(t, registry, "verifyd_delivery_not_sent_total") >= names-most
	})
	h.until(t, h.completeFor(t, "acc_b", fmt.Sprintf("https://other.wild.example:%s/", port)),
		facts.DeliveryDelivered)
	if got := gauge(t, registry, "verifyd_delivery_breakers", "open") +
		gauge(t, registry, "verifyd_delivery_breakers", "half-open"); got != 0 {
		t.Errorf("%v breakers are open: the receiver was taken for unreachable", got)
	}
	release()
	for _, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
		if n := r.count(id); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
	if n := seen.most.Load(); n != most {
		t.Errorf("%d callbacks were under way at one address, want %d", n, most)
	}
}
