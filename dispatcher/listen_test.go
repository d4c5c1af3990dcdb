package dispatcher_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// listener is a developer's program at an edge: it accepts callbacks for key_k and answers as the test says,
// nil: never.
func (h *fixture) listener(t *testing.T,
	answer func(devtunnel.Callback) *devtunnel.Answer) (got chan devtunnel.Callback, post *devtunnel.Post) {
	t.Helper()
	r := devtunnel.New(h.conn)
	post, err := r.Open("key_k")
	if err != nil {
		t.Fatal(err)
	}
	got = make(chan devtunnel.Callback, 16)
	stop, done := make(chan struct{}), make(chan struct{})
	serve := func(m *nats.Msg) {
		c, err := post.Read(m)
		if err != nil {
			t.Error(err)
		}
		got <- c
		if a := answer(c); a != nil {
			if err := r.Answer(t.Context(), "key_k", c.Exchange, *a); err != nil {
				t.Error(err)
			}
		}
	}
	go func() {
		defer close(done)
		for {
			select {
			case m := <-post.Callbacks():
				serve(m)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { post.Close(); close(stop); <-done })
	return got, post
}

func says(a devtunnel.Answer) func(devtunnel.Callback) *devtunnel.Answer {
	return func(devtunnel.Callback) *devtunnel.Answer { return &a }
}

// posted counts the POSTs of a session, also of a test key's.
func (r *receiver) posted(id sessions.ID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posts["cb_"+string(id)] + r.posts["cbtest_"+string(id)]
}

// completeTest completes a session of a test key.
func (h *fixture) completeTest(t *testing.T, url string, test bool) sessions.Completion {
	t.Helper()
	s, _, err := h.store.Create(natstest.Patient(t), sessions.Request{
		Account: "acc_a", Key: "key_k", Test: test, Platform: "p", PlatformUserID: "sailor", GuildID: "g",
		CallbackURL: url,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.store.Complete(natstest.Patient(t), s, verified)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listening starts a dispatcher with listeners, and a receiver that nothing should reach while somebody
// listens.
func (h *fixture) listening(t *testing.T) (r *receiver, stop func()) {
	t.Helper()
	c := h.config()
	c.Listeners = devtunnel.New(h.conn)
	stop = h.dispatch(t, c)
	return h.receive(t, "127.0.0.1", status(http.StatusNoContent)), stop
}

func TestAListenerGetsWhatItsKeyIsSent(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r, _ := h.listening(t)
	got, _ := h.listener(t, says(devtunnel.Answer{Sent: true, Status: http.StatusAccepted, Body: "thanks"}))
	c := h.completeTest(t, r.URL, true)
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	cb := natstest.Receive(t, "the listener gets it", got)
	if cb.Body != `{"platform_user_id":"sailor","guild_id":"g","verified":true}` ||
		!strings.HasSuffix(cb.Headers["webhook-id"], "_"+string(c.ID)) ||
		cb.Headers["webhook-signature"] == "" || cb.Headers["verifyd-test"] != "true" ||
		cb.Headers["Content-Type"] != "application/json" || cb.Headers["Host"] != "" {
		t.Errorf("it got %+v", cb)
	}
	if at := v.Delivery.Attempts; len(at) != 1 || at[0].Result.Status != http.StatusAccepted ||
		at[0].Result.Address != "listener" || at[0].Result.Answer != "thanks" {
		t.Errorf("attempts %+v", at)
	}
	if n := r.posted(c.ID); n != 0 {
		t.Errorf("the receiver got %d", n)
	}
}

// A live key's callbacks never go to a listener, and a test key's go to their receiver while nobody listens.
func TestListenersGetNothingElse(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r, _ := h.listening(t)
	nobody := h.completeTest(t, r.URL, true)
	h.until(t, nobody.ID, facts.DeliveryDelivered)
	got, _ := h.listener(t, says(devtunnel.Answer{Sent: true, Status: http.StatusOK}))
	live := h.completeTest(t, r.URL, false)
	h.until(t, live.ID, facts.DeliveryDelivered)
	if r.posted(nobody.ID) != 1 || r.posted(live.ID) != 1 || len(got) != 0 {
		t.Errorf("the receiver got %d and %d, the listener %d", r.posted(nobody.ID), r.posted(live.ID),
			len(got))
	}
}

func TestVerdictsOfListeners(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r, stop := h.listening(t)
	var answer atomic.Pointer[devtunnel.Answer]
	got, _ := h.listener(t, func(devtunnel.Callback) *devtunnel.Answer { return answer.Load() })
	for _, c := range []struct {
		answer *devtunnel.Answer
		state  facts.DeliveryState
		class  failure.Class
	}{
		{&devtunnel.Answer{Sent: true, Status: http.StatusInternalServerError}, facts.DeliveryRejected,
			failure.Status},
		{&devtunnel.Answer{Sent: true, Detail: "it hung up\x1b[2J"}, facts.DeliveryUnknown,
			failure.Reset},
		{&devtunnel.Answer{Sent: true, Status: 7}, facts.DeliveryUnknown, failure.Protocol},
		{nil, facts.DeliveryUnknown, failure.Timeout},
	} {
		answer.Store(c.answer)
		if c.answer == nil { // its time ends what nobody answers, and must not end what somebody does
			stop()
			h.timeout = quick
			h.listening(t)
		}
		done := h.completeTest(t, r.URL, true)
		v := h.until(t, done.ID, c.state)
		if at := v.Delivery.Attempts; len(at) != 1 || at[0].Result.Class != c.class ||
			at[0].Result.Detail == "it hung up\x1b[2J" {
			t.Errorf("%+v: %+v", c.answer, at)
		}
		if natstest.Receive(t, "the listener gets it", got); len(got) != 0 || r.posted(done.ID) != 0 {
			t.Errorf("%+v: handed over again, or sent to the receiver", c.answer)
		}
	}
}

// What did not reach the developer's program was not sent: it is tried again, and sent to the receiver once
// nobody listens.
func TestNotSentFromAListenerIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := start(t)
	r, _ := h.listening(t)
	got, post := h.listener(t, says(devtunnel.Answer{Detail: "nothing listens on localhost:3000"}))
	c := h.completeTest(t, r.URL, true)
	natstest.Receive(t, "the listener gets it", got)
	post.Close()
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	at := v.Delivery.Attempts
	if len(at) < 2 || at[0].Result.Verdict != facts.VerdictReleased ||
		at[len(at)-1].Result.Address == "listener" || r.posted(c.ID) != 1 {
		t.Errorf("attempts %+v, the receiver got %d", at, r.posted(c.ID))
	}
}

// Silent listeners delay only other tests: a holder of a test key may name any host in a callback URL, and
// live callbacks go there too.
func TestSilentListenersDoNotHoldUpLiveCallbacks(t *testing.T) {
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	registry := prometheus.NewRegistry()
	c := h.config()
	c.Listeners, c.Connections, c.Timeout, c.Metrics = devtunnel.New(h.conn), 1, isolationTimeout, registry
	c.DrainTimeout = 100 * time.Millisecond
	post, err := devtunnel.New(h.conn).Open("key_k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(post.Close)
	h.dispatch(t, c)
	const many = 1 + 448 // the maximum of one destination
	var hung sessions.ID
	for range many + 10 {
		hung = h.completeTest(t, r.URL, true).ID
	}
	untilGauge(t, registry, "verifyd_deliveries_in_flight", many)
	live := h.completeTest(t, r.URL, false)
	h.until(t, live.ID, facts.DeliveryDelivered)
	if v, err := h.store.Read(t.Context(), hung); err != nil || v.Delivery.State != facts.DeliveryDue {
		t.Errorf("the live callback came after tests before it had ended: %s, %v", v.Delivery.State, err)
	}
}
