package store_test

import (
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

// counting is an edge that counts. stop stores what it has counted.
func (h fixture) counting(t *testing.T) (st *store.Store, stop func()) {
	t.Helper()
	st, _, stop = h.metered(t)
	return st, stop
}

func (h fixture) metered(t *testing.T) (st *store.Store, m *stats.Meter, stop func()) {
	t.Helper()
	steps := store.NewSteps(h.conn, singleWriter(t, h, topology.StreamEvents))
	meter := stats.NewMeter(natstest.Writer(t, h.conn, topology.StreamUsage))
	meter.Now = h.clock.Now
	st = store.New(store.Config{
		Conn: h.conn, Key: h.key, Now: h.clock.Now, Meter: meter, Steps: steps,
		Pending:     natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, h.conn, topology.StreamCompletions),
	})
	stopSteps := natstest.Serve(t, steps)
	return st, meter, func() {
		stopSteps()
		stored(t, meter)
	}
}

func singleWriter(t *testing.T, h fixture, stream string) *natsconf.Writer {
	t.Helper()
	w := natsconf.NewSingleWriter(h.conn, stream)
	natstest.Serve(t, w)
	return w
}

// A reload loop puts one line on the timeline, whichever edges it hits, and the other steps are in their
// place.
func TestVisitOnTheTimeline(t *testing.T) {
	t.Parallel()
	h := start(t)
	other := newStore(t, h) // another edge
	s, _ := h.create(t)
	for range 100 {
		for _, st := range []*store.Store{h.store, other} {
			st.Step(s, timeline.Event{Name: timeline.EventOpened})
		}
	}
	h.store.Step(s, timeline.Event{Name: timeline.EventSignIn, Network: "default"})
	h.store.Step(s, timeline.Event{Name: timeline.EventReturned, Network: "default"})
	c, err := h.store.Complete(t.Context(), s, verified)
	if err != nil {
		t.Fatal(err)
	}
	h.store.Step(s, timeline.Event{Name: timeline.EventFinished, At: c.CompletedAt})
	_, entries := h.timeline(t, s.ID, 4)
	if got, want := kindsOf(entries),
		[]string{"created", "opened", "sign_in", "returned", "completed", "finished"}; !reflect.DeepEqual(got,
		want) {
		t.Errorf("timeline is %q, want %q", got, want)
	}
}

// Each step of a session counts once, on any edges and however often; each try at a network counts. The
// timeline has all of it, as it does without counters.
func TestStepsCountEachSessionOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.set(midday)
	a, stopA := h.counting(t)
	b, stopB := h.counting(t)
	s, _, err := a.Create(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() { []*store.Store{a, b}[i%2].Step(s, timeline.Event{Name: timeline.EventOpened}) })
	}
	wg.Wait()
	for _, st := range []*store.Store{a, b, b} {
		h.clock.Advance(time.Second)
		st.Step(s, timeline.Event{Name: timeline.EventSignIn, Network: "one"})
		h.clock.Advance(time.Second)
		st.Step(s, timeline.Event{Name: timeline.EventReturned, Network: "one"})
	}
	b.Step(s, timeline.Event{Name: timeline.EventNetworkError, Network: "one", Detail: "token: timeout"})
	h.clock.Advance(time.Second)
	a.Step(s, timeline.Event{Name: timeline.EventSignIn, Network: "two-2"})
	h.clock.Advance(time.Second)
	if _, err := b.Complete(t.Context(), s, sessions.Outcome{
		State: sessions.Verified, Network: "two-2",
	}); err != nil {
		t.Fatal(err)
	}
	a.Step(s, timeline.Event{Name: timeline.EventFinished, Network: "two-2"})
	stopA()
	stopB()
	want := map[stats.Count]int64{
		stats.CountStarted: 1, stats.CountOpened: 1, stats.CountSignIn: 1, stats.CountReturned: 1,
		stats.CountFinished: 1, stats.CountVerified: 1,
		"sign_in:one": 3, "returned:one": 3, "trouble:one": 1, "sign_in:two-2": 1, "verified:two-2": 1,
	}
	got := h.counted(t, "acc_a", 30).Live
	if !maps.Equal(got, want) {
		t.Errorf("counts = %v\nwant     %v", got, want)
	}
	if networks := stats.Networks(got); !reflect.DeepEqual(networks, []string{"one", "two-2"}) {
		t.Errorf("networks = %q", networks)
	}
	_, entries := h.timeline(t, s.ID, 10)
	if got, want := kindsOf(entries), []string{
		"created", "opened", "sign_in", "returned", "sign_in", "returned", "sign_in", "returned", "trouble",
		"sign_in", "completed", "finished",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("timeline is %q\nwant        %q", got, want)
	}
}

// Unfinished sessions are counted when their lifetime is over, on the day on which they were started, and
// once, whichever edge ends the others.
func TestExpiredSessionsAreCounted(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.set(midday.Add(11*time.Hour + 55*time.Minute)) // five minutes to midnight
	a, stopA := h.counting(t)
	b, stopB := h.counting(t)
	var made []sessions.Session
	for range 5 {
		s, _, err := a.Create(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, s)
	}
	for i, o := range []sessions.Outcome{
		{State: sessions.Verified}, {State: sessions.Failed, Reason: sessions.Declined},
		{State: sessions.Canceled, Reason: sessions.CanceledReason},
	} {
		h.clock.Advance(2 * time.Minute)
		if _, err := []*store.Store{a, b, b}[i].Complete(t.Context(), made[i], o); err != nil {
			t.Fatal(err)
		}
	}
	stopB() // a process that ends stores its counts
	if got := h.counted(t, "acc_a", 30).Live[stats.CountExpired]; got != 0 {
		t.Errorf("%d have expired, and none can have", got)
	}
	stopA()
	want := map[stats.Count]int64{
		stats.CountStarted: 5, stats.CountVerified: 1, stats.CountDeclined: 1,
		stats.CountCanceled: 1, stats.CountExpired: 2,
	}
	// as the day was counted, and when it is over
	for _, later := range []time.Duration{10 * time.Minute, 10 * time.Minute} {
		h.clock.Advance(later)
		if got := h.counted(t, "acc_a", 30).Live; !maps.Equal(got, want) {
			t.Errorf("counts = %v\nwant     %v", got, want)
		}
	}
}

// While some sessions are open, others have expired: completed ones are not among them, and what a stopping
// process counted in advance is taken back if the session is completed after all.
func TestExpiredAmongOpenSessions(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	h.clock.set(midday.Add(5 * time.Second)) // in the middle of a slot
	a, meter, stopA := h.metered(t)
	b, other, stopB := h.metered(t)
	expired := func() int64 { return h.counted(t, "acc_a", 30).Live[stats.CountExpired] }
	var made []sessions.Session
	create := func(n int) {
		for range n {
			s, _, err := a.Create(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, s)
		}
	}
	complete := func(s sessions.Session) {
		if _, err := b.Complete(t.Context(), s, sessions.Outcome{State: sessions.Verified}); err != nil {
			t.Fatal(err)
		}
	}
	create(3)
	meter.FlushOnce(t.Context())
	if got := expired(); got != 0 {
		t.Errorf("%d have expired, and all are open", got)
	}
	h.clock.Advance(sessions.Lifetime - 4*time.Second)
	meter.FlushOnce(t.Context())
	if got := expired(); got != 0 {
		t.Errorf("%d have expired, and all have some seconds left", got)
	}
	complete(made[0])
	h.clock.Advance(time.Minute)
	create(2)
	meter.FlushOnce(t.Context())
	other.FlushOnce(t.Context())
	if got := expired(); got != 2 {
		t.Errorf("%d have expired, want 2", got)
	}
	stopA() // counts the two open ones in advance
	complete(made[3])
	other.FlushOnce(t.Context())
	if got := expired(); got != 3 {
		t.Errorf("%d beside the verified ones, want 3", got)
	}
	h.clock.Advance(11 * time.Minute)
	stopB()
	if got := expired(); got != 3 {
		t.Errorf("%d have expired, want 3", got)
	}
}

// A killed process loses what it had in memory; the next day the counts are right anyway.
func TestExpiredSessionsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.set(midday)
	killed := stats.NewMeter(natstest.Writer(t, h.conn, topology.StreamUsage))
	for range 3 {
		killed.Count("acc_a", false, stats.CountStarted, midday)
	}
	stored(t, killed) // and of the lifetimes nothing
	h.clock.Advance(11 * time.Hour)
	if got := h.counted(t, "acc_a", 30).Live[stats.CountExpired]; got != 0 {
		t.Errorf("%d, before anybody can know", got)
	}
	h.clock.Advance(2 * time.Hour)
	if got := h.counted(t, "acc_a", 30).Live[stats.CountExpired]; got != 3 {
		t.Errorf("%d expired, want 3", got)
	}
}
