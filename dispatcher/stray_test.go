package dispatcher_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/dispatcher"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// reconciles makes a dispatcher's configuration look for stray deliveries all the time.
func (h *fixture) reconciles() dispatcher.Config {
	c := h.config()
	c.Reconcile = 20 * time.Millisecond
	return c
}

// strays waits for what a dispatcher reports: it hands in first.
func strays(t *testing.T, d *dispatcher.Dispatcher) (s *fleet.Strays) {
	t.Helper()
	natstest.Await(t, "a stray delivery is reported", func() bool { s = d.Strays(); return s != nil })
	return s
}

// A delivery whose message was acknowledged, and whose schedule is lost, is found, reported and handed in.
func TestStrayDeliveryIsHandedIn(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	c := h.complete(t, r.URL, "u", verified)
	h.taken(t, "completion."+string(c.ID))
	config, metrics := h.reconciles(), prometheus.NewRegistry()
	config.Metrics = metrics
	d, err := dispatcher.New(config)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Serve(t, d)
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	if n := r.count(c.ID); n != 1 || len(v.Delivery.Attempts) != 1 {
		t.Errorf("%d POSTs, attempts = %+v", n, v.Delivery.Attempts)
	}
	if s := strays(t, d); s.Found != 1 || s.Session != string(c.ID) {
		t.Errorf("it reports %+v", s)
	}
}

// strayFacts are stored of a delivery before its hint is lost.
type strayFacts struct {
	t *testing.T
	h *fixture
	c sessions.Completion
}

func (s strayFacts) claim() {
	s.t.Helper()
	at := s.c.CompletedAt.Add(-time.Minute)
	claim := facts.NewClaim(s.c.ID, 1, "gone", at, time.Second, time.Second)
	if err := s.h.store.Claim(s.t.Context(), claim); err != nil {
		s.t.Fatal(err)
	}
}

func (s strayFacts) result(v facts.Verdict, next time.Time) {
	s.t.Helper()
	s.claim()
	r := facts.NewResult(s.c.ID, 1, v, failure.Timeout, "gone", s.c.CompletedAt)
	r.Next = next
	if _, err := s.h.store.StoreResult(s.t.Context(), r); err != nil {
		s.t.Fatal(err)
	}
}

func (s strayFacts) released() { s.result(facts.VerdictReleased, time.Time{}) }

func (s strayFacts) toRepeat() { s.result(facts.VerdictUnknown, s.c.CompletedAt) }

func (s strayFacts) requested() {
	s.t.Helper()
	s.result(facts.VerdictUndeliverable, time.Time{})
	if _, err := s.h.store.Resend(s.t.Context(), s.c.ID, "somebody"); err != nil {
		s.t.Fatal(err)
	}
	s.h.taken(s.t, facts.Key{Kind: "resend", ID: s.c.ID, N: 2}.Subject())
}

// What is known of a stray delivery decides how it goes on: a claim that may be lost never becomes a second
// POST.
func TestFactsOfAStrayDecide(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		store func(strayFacts)
		loses bool // the store may lose facts
		want  facts.DeliveryState
		posts int
	}{
		"none":                 {func(strayFacts) {}, false, facts.DeliveryDelivered, 1},
		"none, or lost":        {func(strayFacts) {}, true, facts.DeliveryUnknown, 0},
		"a claim":              {strayFacts.claim, false, facts.DeliveryUnknown, 0},
		"released":             {strayFacts.released, false, facts.DeliveryDelivered, 1},
		"released, rest lost":  {strayFacts.released, true, facts.DeliveryUnknown, 0},
		"to be repeated":       {strayFacts.toRepeat, true, facts.DeliveryDelivered, 1},
		"requested":            {strayFacts.requested, false, facts.DeliveryDelivered, 1},
		"requested, rest lost": {strayFacts.requested, true, facts.DeliveryUnknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
			c := h.complete(t, r.URL, "u", verified)
			h.taken(t, "completion."+string(c.ID))
			test.store(strayFacts{t, h, c})
			config := h.reconciles()
			config.LosesFacts = test.loses
			h.dispatch(t, config)
			h.until(t, c.ID, test.want)
			if n := r.count(c.ID); n != test.posts {
				t.Errorf("%d POSTs, want %d", n, test.posts)
			}
		})
	}
}

// A delivery is not stray while its message, a schedule or a retry that has come due brings it to a
// dispatcher, or is with one.
func TestWhatIsBroughtToADispatcherIsNotStray(t *testing.T) {
	t.Parallel()
	h := start(t)
	answers := make(chan struct{})
	hangs := h.receive(t, "127.0.0.1", func(http.ResponseWriter, *http.Request) { <-answers })
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	takenAndScheduled := func(url string, at time.Time) sessions.Completion {
		c := h.complete(t, url, "u", verified)
		h.taken(t, "completion."+string(c.ID))
		if err := h.store.Schedule(t.Context(), facts.Retry{
			Session: c.ID, Tries: 1, Since: c.CompletedAt, At: at,
		}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	takenAndScheduled(r.URL, time.Now().Add(time.Hour))
	stray := takenAndScheduled(r.URL, time.Now().Add(time.Hour))
	takenAndScheduled(hangs.URL, time.Now())
	h.complete(t, hangs.URL, "u", verified)
	d, err := dispatcher.New(h.reconciles())
	if err != nil {
		t.Fatal(err)
	}
	natstest.Serve(t, d)
	t.Cleanup(func() { close(answers) })
	for range 2 { // both are with the dispatcher
		natstest.Receive(t, "a POST comes", hangs.got)
	}
	if err := h.conn.Purge(t.Context(), topology.StreamRetries, "schedule."+string(stray.ID)); err != nil {
		t.Fatal(err)
	}
	h.until(t, stray.ID, facts.DeliveryDelivered)
	if s := strays(t, d); s.Found != 1 || s.Session != string(stray.ID) {
		t.Errorf("it reports %+v", s)
	}
}

// A message that stays with somebody does not hide the strays behind it, although nobody knows which of them
// are acknowledged.
func TestMessageThatStaysHidesNoStray(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	stays := h.complete(t, r.URL, "stays", verified)
	consumer, err := h.conn.JS.Consumer(t.Context(), topology.StreamCompletions, topology.ConsumerDispatcher)
	if err == nil {
		_, err = consumer.Next()
	}
	if err != nil {
		t.Fatal(err)
	}
	stray := h.complete(t, r.URL, "stray", verified)
	h.taken(t, "completion."+string(stray.ID))
	config := h.reconciles()
	config.LosesFacts = true // but it has not lost any since
	d, err := dispatcher.New(config)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Serve(t, d)
	for _, c := range []sessions.Completion{stray, stays} {
		h.until(t, c.ID, facts.DeliveryDelivered)
		if n := r.count(c.ID); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
	if s := strays(t, d); s.Found != 1 {
		t.Errorf("it reports %+v", s)
	}
}
