package dispatcher_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"verifyd/dispatcher"
	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

const signingSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

type secrets struct{}

func (secrets) SigningSecrets(account string) ([]string, bool) {
	return []string{signingSecret}, account != "acc_unknown"
}

// fixture has a real JetStream, a store, and what dispatchers on them need.
type fixture struct {
	conn   *natsconf.Conn
	key    secretbox.Key
	store  *store.Store
	ca     *localca.Authority
	policy *urlpolicy.Policy
	offset atomic.Int64 // sets the dispatchers' clock
	stands time.Time    // where that clock stands; zero: it runs
	// timeout is an attempt's; zero: aMinute. Tests that wait for its end shorten it.
	timeout time.Duration
	// memory is the network of receivers in virtual time; nil: they have real sockets.
	memory *memory

	completions     *natsconf.Writer
	stopCompletions func() // the writer
}

const (
	// aMinute is the timeout of attempts that something else ends: on a slow machine a handshake, whose
	// share is half of it, and an answer may take long.
	aMinute = time.Minute
	// quick is the timeout of attempts in tests that wait for its end, and for nothing else that it ends.
	quick = 2 * time.Second
)

func start(t *testing.T) *fixture {
	t.Helper()
	h := newFixture(t)
	h.open(t, natstest.Start(t))
	return h
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ca, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{
		ca: ca, key: secretbox.NewKey(),
		policy: urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil),
	}
}

// open puts the rig on a JetStream; it may be opened again on another, or on the same one after its
// restart.
func (h *fixture) open(t *testing.T, conn *natsconf.Conn) {
	t.Helper()
	h.conn = conn
	h.completions = natsconf.NewWriter(conn, topology.StreamCompletions)
	h.stopCompletions = natstest.Serve(t, h.completions)
	h.store = store.New(store.Config{
		Conn: conn, Key: h.key, Completions: h.completions, Now: h.clock,
		Pending: natstest.Writer(t, conn, topology.BucketStream(topology.BucketSessions)),
		Retries: natstest.Writer(t, conn, topology.StreamRetries),
	})
}

// stand makes the clock of store and dispatchers stand still, where a test is not about time: no claim is
// too old when a slow machine gets from it to the first byte. Only offset moves it, the dispatchers'.
func (h *fixture) stand() { h.stands = time.Now() }

func (h *fixture) clock() time.Time {
	if h.stands.IsZero() {
		return time.Now()
	}
	return h.stands
}

// now is the dispatchers' clock.
func (h *fixture) now() time.Time { return h.clock().Add(time.Duration(h.offset.Load())) }

// client sends callbacks, each of which has a time.
func (h *fixture) client(timeout time.Duration) *callback.Client {
	config := callback.Config{
		RootCAs: h.ca.Pool(), Policy: h.policy, Timeout: timeout, UserAgent: "verifyd/test",
	}
	if h.memory != nil {
		config.Dial = h.memory.dial
	}
	return callback.New(config)
}

// listen listens for callbacks on an address.
func (h *fixture) listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listen := func(a string) (net.Listener, error) { return net.Listen("tcp", a) }
	if h.memory != nil {
		listen = h.memory.listen
	}
	l, err := listen(address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (h *fixture) config() dispatcher.Config {
	timeout := cmp.Or(h.timeout, aMinute)
	return dispatcher.Config{
		Conn: h.conn, Sessions: h.store, Secrets: secrets{}, Policy: h.policy, Log: zerolog.Nop(),
		Timeout: timeout, Client: h.client(timeout), Metrics: prometheus.NewRegistry(), Now: h.now,
	}
}

// dispatch runs a dispatcher until the test ends or stop is called.
func (h *fixture) dispatch(t *testing.T, c dispatcher.Config) (stop func()) {
	t.Helper()
	d, err := dispatcher.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return natstest.Serve(t, d)
}

// complete makes a session for the receiver and completes it.
func (h *fixture) complete(t *testing.T, url, user string, o sessions.Outcome) sessions.Completion {
	t.Helper()
	s, _, err := h.store.Create(natstest.Patient(t), sessions.Request{
		Account: "acc_a", Key: "key_k", Platform: "p", PlatformUserID: user, GuildID: "g", CallbackURL: url,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.store.Complete(natstest.Patient(t), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	verified = sessions.Outcome{State: sessions.Verified}
	failed   = sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
)

// until waits for a delivery to reach one of the states. One that ends in another fails the test: without a
// resend, which makes it due at once, it stays there. A presumed result is no end.
func (h *fixture) until(t *testing.T, id sessions.ID, want ...facts.DeliveryState) (v facts.View) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("delivery %s is %s: %+v", id, v.Delivery.State, v.Delivery.Attempts)
		}
	}()
	natstest.Await(t, fmt.Sprint("the delivery is one of ", want), func() bool {
		read, err := h.store.Read(t.Context(), id)
		if errors.Is(err, natsconf.ErrUnavailable) { // a leader is elected
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		v = read
		reached := slices.Contains(want, v.Delivery.State)
		presumed := slices.ContainsFunc(v.Delivery.Attempts, func(a facts.Attempt) bool { return a.Presumed })
		if _, err := v.Delivery.Again(); err == nil && !reached && !presumed {
			t.Fatalf("the delivery has ended as %s, want one of %s", v.Delivery.State, want)
		}
		return reached
	})
	return v
}

// untilSettled waits for a delivery to end, in whatever state.
func (h *fixture) untilSettled(t *testing.T, id sessions.ID) facts.View {
	t.Helper()
	return h.until(t, id, facts.DeliveryDelivered, facts.DeliveryRejected, facts.DeliveryUnknown,
		facts.DeliveryUndeliverable)
}

// receiver is a real https receiver that counts the POSTs of each callback.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	posts map[string]int // by webhook-id
	got   chan post
}

type post struct {
	header http.Header
	body   []byte
}

// alone returns an address of its own to a receiver that goes away: on a shared one, that of another test
// might get its port.
func alone() string {
	n := aloneBefore.Add(1)
	return fmt.Sprintf("127.0.%d.%d", 100+n/250, 1+n%250)
}

var aloneBefore atomic.Int64

func (h *fixture) receive(t *testing.T, host string, answer http.HandlerFunc) *receiver {
	t.Helper()
	return h.receiveAs(t, host, host, answer)
}

// receiveAs starts a receiver with a certificate for a name.
func (h *fixture) receiveAs(t *testing.T, name, host string, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{posts: map[string]int{}, got: make(chan post, 10_000)}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.posts[q.Header.Get("webhook-id")]++
		r.mu.Unlock()
		r.got <- post{q.Header, body}
		answer(w, q)
	}))
	cert, err := h.ca.Issue(localca.Certificate{Hosts: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Listener.Close()
	r.Listener = h.listen(t, net.JoinHostPort(host, "0"))
	r.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count(id sessions.ID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posts["cb_"+string(id)]
}

// logSignal lets a test wait for a log line, which is what an operator would wait for.
type logSignal struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newLogSignal() *logSignal { return &logSignal{more: make(chan struct{}, 1)} }

func (l *logSignal) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.lines = append(l.lines, string(b))
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (l *logSignal) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(natstest.TestTimeout)
	for {
		l.mu.Lock()
		found := slices.ContainsFunc(l.lines, func(s string) bool { return strings.Contains(s, text) })
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-l.more:
		case <-timeout:
			t.Fatalf("never logged: %s", text)
		}
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestOutcomeArrivesOnceSignedWithThreeMembers(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	h.dispatch(t, h.config())
	hook, err := standardwebhooks.NewWebhook(signingSecret)
	if err != nil {
		t.Fatal(err)
	}
	for want, outcome := range map[string]sessions.Outcome{
		`{"platform_user_id":"sailor \"42\" ⚓","guild_id":"g","verified":true}`:  verified,
		`{"platform_user_id":"sailor \"42\" ⚓","guild_id":"g","verified":false}`: failed,
	} {
		c := h.complete(t, r.URL+"/hook?a=b", `sailor "42" ⚓`, outcome)
		p := natstest.Receive(t, "a POST comes", r.got)
		if string(p.body) != want {
			t.Errorf("body = %s, want %s", p.body, want)
		}
		if err := hook.Verify(p.body, p.header); err != nil {
			t.Errorf("signature: %v", err)
		}
		v := h.until(t, c.ID, facts.DeliveryDelivered)
		if a := v.Delivery.Attempts; len(a) != 1 || a[0].Result.Status != 204 ||
			a[0].Result.Timing.Total <= 0 {
			t.Errorf("attempts = %+v", a)
		}
		if n := r.count(c.ID); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
}

func TestVerdictsAreFinal(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	h.dispatch(t, h.config())
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   facts.DeliveryState
		class  failure.Class
	}{
		"500": {status(500), facts.DeliveryRejected, failure.Status},
		"404": {status(404), facts.DeliveryRejected, failure.Status},
		"redirect": {
			http.RedirectHandler("https://127.0.0.1:1/", http.StatusTemporaryRedirect).ServeHTTP,
			facts.DeliveryRejected, failure.Status,
		},
		"hang up": {hangUp, facts.DeliveryUnknown, failure.Reset},
	} {
		r := h.receive(t, "127.0.0.1", c.answer)
		done := h.complete(t, r.URL, "u", verified)
		v := h.until(t, done.ID, c.want)
		if a := v.Delivery.Attempts; len(a) != 1 || a[0].Result.Class != c.class {
			t.Errorf("%s: attempts = %+v", name, a)
		}
		if n := r.count(done.ID); n != 1 {
			t.Errorf("%s: %d POSTs", name, n)
		}
	}
}

// A callback that was not answered has no time until its answer.
func TestOnlyAnswersAreMeasured(t *testing.T) {
	t.Parallel()
	h := start(t)
	config, metrics := h.config(), prometheus.NewRegistry()
	config.Metrics = metrics
	h.dispatch(t, config)
	silent := h.receive(t, "127.0.0.1", hangUp)
	h.until(t, h.complete(t, silent.URL, "u", verified).ID, facts.DeliveryUnknown)
	const name = "verifyd_delivery_receipt_seconds"
	if n := observed(t, metrics, name); n != 0 {
		t.Errorf("%d after a callback without an answer", n)
	}
	refusing := h.receive(t, "127.0.0.1", status(500))
	h.until(t, h.complete(t, refusing.URL, "u", verified).ID, facts.DeliveryRejected)
	if n := observed(t, metrics, name); n != 1 {
		t.Errorf("%d after an answer", n)
	}
}

// observed returns how many values a histogram without labels has.
func observed(t *testing.T, g prometheus.Gatherer, name string) uint64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestCanceledSendsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	h.dispatch(t, h.config())
	canceled := h.complete(t, r.URL, "u", sessions.Outcome{
		State: sessions.Canceled, Reason: sessions.CanceledReason,
	})
	after := h.complete(t, r.URL, "u", verified) // delivered after it, so it was read
	h.until(t, after.ID, facts.DeliveryDelivered)
	if n := r.count(canceled.ID); n != 0 {
		t.Errorf("%d POSTs for a canceled session", n)
	}
}

// What was provably not sent is tried again until it can be.
func TestNotSentIsRetried(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, alone(), status(204))
	address := r.Listener.Addr().String()
	handler, conf := r.Config.Handler, r.TLS
	r.Close()
	c := h.complete(t, "https://"+address, "u", verified)
	config := h.config()
	refused := newLogSignal()
	config.Log = zerolog.New(refused)
	h.dispatch(t, config)
	refused.wait(t, "callback not sent")

	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(handler)
	_ = again.Listener.Close()
	again.Listener, again.TLS = l, conf
	again.StartTLS()
	t.Cleanup(again.Close)
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	if n := r.count(c.ID); n != 1 || len(v.Delivery.Attempts) != 1 {
		t.Errorf("%d POSTs, %d claims", n, len(v.Delivery.Attempts))
	}
}

func TestClaimedDeliveryGivesUpAfterTheRetryDeadline(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, alone(), status(204))
	url := r.URL
	r.Close()
	c := h.complete(t, url, "u", verified)
	h.offset.Store(int64(16 * time.Minute)) // the machine was off that long
	config := h.config()
	log := newLogSignal()
	config.Log = zerolog.New(log)
	h.dispatch(t, config)
	log.wait(t, "callback not sent") // it is tried anyway, for a while
	h.offset.Store(int64(20 * time.Minute))
	v := h.until(t, c.ID, facts.DeliveryUndeliverable)
	a := v.Delivery.Attempts
	if len(a) != 1 || !a[0].Claim.GiveUp || a[0].Result.Class != failure.Connect {
		t.Errorf("attempts = %+v", a)
	}
	// A process that was paused with this delivery can no longer send.
	if err := h.store.Claim(t.Context(), facts.Claim{Session: c.ID, Number: 1}); err == nil {
		t.Error("claimed after the delivery was given up")
	}
}

// The store was away for longer than a delivery is tried. What is due since before that is tried for a while
// all the same: the network may come back a moment after the store.
func TestGraceBeginsAgainWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	well, r := h.receive(t, "127.0.0.1", status(204)), h.receive(t, alone(), status(204))
	r.Close()
	config := h.config()
	log := newLogSignal()
	config.Log = zerolog.New(log)
	h.dispatch(t, config)
	h.until(t, h.complete(t, well.URL, "u", verified).ID, facts.DeliveryDelivered)
	h.offset.Store(int64(20 * time.Minute)) // the grace of the start is over
	back := h.conn.Back()
	if err := h.conn.NC.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	natstest.Receive(t, "the connection is back", back)
	c := h.complete(t, r.URL, "u", verified)
	log.wait(t, "callback not sent")
	h.comeBack(t, r)
	h.until(t, c.ID, facts.DeliveryDelivered)
}

// A completion that is redelivered, to this dispatcher or another, after its callback was delivered, is not
// sent again.
func TestReplayedStreamSendsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(204))
	stop := h.dispatch(t, h.config())
	var done []sessions.Completion
	for i := range 20 {
		done = append(done, h.complete(t, r.URL, fmt.Sprint(i), verified))
	}
	for _, c := range done {
		h.until(t, c.ID, facts.DeliveryDelivered)
	}
	stop()
	if err := h.conn.JS.DeleteConsumer(t.Context(), topology.StreamCompletions,
		topology.ConsumerDispatcher); err != nil {
		t.Fatal(err)
	}
	natstest.Ensure(t, h.conn)
	h.dispatch(t, h.config())
	last := h.complete(t, r.URL, "last", verified)
	h.until(t, last.ID, facts.DeliveryDelivered)
	for _, c := range done {
		if n := r.count(c.ID); n != 1 {
			t.Errorf("%d POSTs after the replay", n)
		}
	}
}

func TestVanishedOwnersAttemptIsSettledUnknown(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, "127.0.0.1", status(204))
		now := time.Now()
		settleable := h.complete(t, r.URL, "u", verified)
		claim := facts.Claim{
			Session: settleable.ID, Number: 1, Worker: "gone", At: now.Add(-time.Minute),
			Deadline: now.Add(-50 * time.Second), SettleAfter: now.Add(-40 * time.Second),
		}
		if err := h.store.Claim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		open := h.complete(t, r.URL, "u", verified)
		claim.Session, claim.SettleAfter = open.ID, now.Add(2*time.Second)
		if err := h.store.Claim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		gaveUp := h.complete(t, r.URL, "u", verified)
		claim.Session, claim.SettleAfter, claim.GiveUp = gaveUp.ID, now, true
		if err := h.store.Claim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		h.dispatch(t, h.config())
		for id, want := range map[sessions.ID]facts.DeliveryState{
			settleable.ID: facts.DeliveryUnknown, open.ID: facts.DeliveryUnknown,
			gaveUp.ID: facts.DeliveryUndeliverable,
		} {
			v := h.until(t, id, want)
			if res := v.Delivery.Attempts[0].Result; res.At.Before(v.Delivery.Attempts[0].Claim.SettleAfter) {
				t.Errorf("settled at %s, before %s", res.At, v.Delivery.Attempts[0].Claim.SettleAfter)
			}
			if n := r.count(id); n != 0 {
				t.Errorf("%d POSTs for another owner's claim", n)
			}
		}
	})
}

func TestTwoDispatchersSendEachOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	hosts := []*receiver{h.receive(t, "127.0.0.1", status(204)), h.receive(t, "127.0.0.2", status(204))}
	h.dispatch(t, h.config())
	h.dispatch(t, h.config())
	const n = 200
	ids := make([]sessions.ID, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { ids[i] = h.complete(t, hosts[i%2].URL, fmt.Sprint(i), verified).ID })
	}
	wg.Wait()
	for i, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
		if got := hosts[i%2].count(id); got != 1 {
			t.Errorf("%d POSTs", got)
		}
	}
}

func TestHangingReceiverDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	ends := make(chan struct{})
	end := closes(ends)
	bad := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-ends:
		case <-q.Context().Done():
		}
		hangUp(w, q)
	})
	good := h.receive(t, "127.0.0.2", status(204))
	config := h.config()
	config.Connections = 2
	h.dispatch(t, config)
	t.Cleanup(end) // before the dispatcher stops, which waits for its attempts
	var hanging []sessions.ID
	for range 6 {
		hanging = append(hanging, h.complete(t, bad.URL, "u", verified).ID)
	}
	for range 2 {
		natstest.Receive(t, "a POST hangs", bad.got) // its two slots are taken
	}
	c := h.complete(t, good.URL, "u", verified)
	natstest.Receive(t, "the POST to another receiver comes", good.got)
	h.until(t, c.ID, facts.DeliveryDelivered)
	end()
	for _, id := range hanging {
		v := h.until(t, id, facts.DeliveryUnknown)
		if v.Delivery.Attempts[0].Result.Class != failure.Reset || bad.count(id) != 1 {
			t.Errorf("attempt = %+v, %d POSTs", v.Delivery.Attempts[0].Result, bad.count(id))
		}
	}
}

// Receivers hang for good: each attempt ends with its time, by itself, and the next one begins.
func TestSilenceEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		h.stand()
		bad := h.receive(t, "127.0.0.1", func(_ http.ResponseWriter, q *http.Request) {
			<-q.Context().Done()
		})
		h.timeout = quick // a handshake that takes half of it is tried again
		config := h.config()
		config.Connections = 2
		h.dispatch(t, config)
		var hanging []sessions.ID
		for range 4 {
			hanging = append(hanging, h.complete(t, bad.URL, "u", verified).ID)
		}
		for _, id := range hanging {
			v := h.until(t, id, facts.DeliveryUnknown)
			if v.Delivery.Attempts[0].Result.Class != failure.Timeout || bad.count(id) > 1 {
				t.Errorf("attempt = %+v, %d POSTs", v.Delivery.Attempts[0].Result, bad.count(id))
			}
		}
	})
}

// Stopping lets current attempts finish and stores their results; the rest is sent after the next start.
func TestStopDrainsAndStartContinues(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	answer := make(chan struct{})
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-answer:
		case <-q.Context().Done():
		}
		w.WriteHeader(204)
	})
	config := h.config()
	config.Connections = 1
	d, err := dispatcher.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- d.Serve(ctx) }()
	var ids []sessions.ID
	for i := range 5 {
		ids = append(ids, h.complete(t, r.URL, fmt.Sprint(i), verified).ID)
	}
	natstest.Receive(t, "a POST comes", r.got)
	cancel()
	close(answer)
	natstest.Receive(t, "the dispatcher ends", stopped)
	delivered := 0
	for _, id := range ids {
		v, err := h.store.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if v.Delivery.State == facts.DeliveryClaimed {
			t.Error("a claim was left open by an orderly stop")
		}
		if v.Delivery.State == facts.DeliveryDelivered {
			delivered++
		}
	}
	if delivered == 0 {
		t.Error("the delivery under way was not finished")
	}
	natstest.Serve(t, d) // the same actor, served again
	for _, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
		if n := r.count(id); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
}

func TestConnectionsOfABurstAreReused(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	var conns sync.Map // by the dispatcher's address
	all := make(chan struct{})
	r := h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		conns.Store(q.RemoteAddr, true)
		select {
		case <-all:
		case <-q.Context().Done():
		}
		w.WriteHeader(204)
	})
	config, registry := h.config(), prometheus.NewRegistry()
	config.Connections, config.Metrics = 1, registry
	const n = 10
	ids := make([]sessions.ID, n)
	for i := range ids {
		ids[i] = h.complete(t, r.URL, "u", verified).ID
	}
	h.dispatch(t, config)
	// They go out as a burst: a connection for which nothing waits is closed after a second.
	untilGauge(t, registry, "verifyd_deliveries_held", n)
	close(all)
	for _, id := range ids {
		h.until(t, id, facts.DeliveryDelivered)
	}
	got := 0
	conns.Range(func(any, any) bool { got++; return true })
	if got != 1 {
		t.Errorf("%d connections for a burst of %d", got, n)
	}
}

func TestAccountWithoutSecretWaits(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	s, _, err := h.store.Create(t.Context(), sessions.Request{
		Account: "acc_unknown", CallbackURL: r.URL, Platform: "p", PlatformUserID: "u",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	config := h.config()
	log := newLogSignal()
	config.Log = zerolog.New(log)
	h.dispatch(t, config)
	log.wait(t, "callback not sent")
	h.offset.Store(int64(16 * time.Minute))
	v := h.until(t, s.ID, facts.DeliveryUndeliverable)
	if n := r.count(s.ID); n != 0 || v.Delivery.Attempts[0].Result.Class != failure.Unsigned {
		t.Errorf("%d unsigned POSTs, %+v", n, v.Delivery.Attempts[0].Result)
	}
}

// A process that was paused between its claim and the first byte finds the claim's deadline passed: it
// writes nothing, releases the claim, and a later attempt delivers.
func TestLateOwnerWritesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(204))
	c := h.complete(t, r.URL, "u", verified)
	config := h.config()
	config.Now = func() time.Time {
		attempts, err := h.store.Attempts(context.Background(), c.ID)
		if err == nil && len(attempts) == 1 && attempts[0].Result == nil {
			// the claim is made and nothing is sent yet: the pause falls here
			return h.now().Add(6 * time.Second)
		}
		return h.now()
	}
	h.dispatch(t, config)
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	if a := v.Delivery.Attempts; len(a) != 2 || a[0].Result.Verdict != facts.VerdictReleased ||
		a[0].Result.Class != failure.Late {
		t.Errorf("attempts = %+v", a)
	}
	if n := r.count(c.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// A dispatcher that is paused each time between its claim and the first byte sends nothing, and the delivery
// ends.
func TestReleasesComeToAnEnd(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(204))
	c := h.complete(t, r.URL, "u", verified)
	config := h.config()
	config.RetryFor = 4 * time.Second // shorter than the pause
	config.Now = func() time.Time {
		attempts, err := h.store.Attempts(context.Background(), c.ID)
		if n := len(attempts); err == nil && n > 0 && attempts[n-1].Result == nil {
			return h.now().Add(6 * time.Second)
		}
		return h.now()
	}
	h.dispatch(t, config)
	v := h.until(t, c.ID, facts.DeliveryUndeliverable)
	last := v.Delivery.Attempts[len(v.Delivery.Attempts)-1].Result
	if n := r.count(c.ID); n != 0 || last.Class != failure.Late {
		t.Errorf("%d POSTs, %+v", n, last)
	}
}
