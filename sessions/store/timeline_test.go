package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/lists"
	"verifyd/sessions/timeline"
)

// begun is a completed session whose callback has been claimed once.
func (h fixture) begun(t *testing.T, o sessions.Outcome) sessions.Completion {
	t.Helper()
	s, _ := h.create(t)
	c, err := h.store.Complete(natstest.Patient(t), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (h fixture) claim(t *testing.T, id sessions.ID, n int, at time.Time) {
	t.Helper()
	if err := h.store.Claim(natstest.Patient(t), facts.Claim{
		Session: id, Number: n, Worker: "w", At: at,
	}); err != nil {
		t.Fatal(err)
	}
}

func (h fixture) settle(t *testing.T, id sessions.ID, n int, v facts.Verdict, at time.Time) {
	t.Helper()
	if _, err := h.store.StoreResult(natstest.Patient(t), facts.Result{
		Session: id, Number: n, Verdict: v, At: at, By: "w",
	}); err != nil {
		t.Fatal(err)
	}
}

// said formats a timeline as one word per entry.
func kindsOf(entries []timeline.Entry) (words []string) {
	for _, e := range entries {
		switch e.Kind {
		case timeline.EntryEvent:
			words = append(words, string(e.Event.Name))
		case timeline.EntryResendRequested:
			words = append(words, fmt.Sprintf("asked %d", e.Resend.Number))
		case timeline.EntryClaimed:
			words = append(words, fmt.Sprintf("claim %d", e.Claim.Number))
		case timeline.EntryResult:
			words = append(words, fmt.Sprintf("result %d %s", e.Result.Number, e.Result.Verdict))
		default:
			words = append(words, string(e.Kind))
		}
	}
	return words
}

// timeline reads a timeline once it has as many events as were emitted: they are not acknowledged.
func (h fixture) timeline(t *testing.T, id sessions.ID, events int) (facts.View, []timeline.Entry) {
	t.Helper()
	if err := h.conn.NC.FlushTimeout(natstest.TestTimeout); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	for {
		v, entries, err := h.store.Timeline(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		have := 0
		for _, e := range entries {
			if e.Kind == timeline.EntryEvent {
				have++
			}
		}
		if have >= events {
			return v, entries
		}
	}
}

// Everything about one session is in one order, an effect never before its cause, whatever the machines'
// clocks were.
func TestTimelineMergesFactsAndEvents(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	other, _ := h.create(t)
	h.store.Emit(timeline.Event{Session: other.ID, Name: timeline.EventSignIn})
	h.store.Emit(timeline.Event{Session: s.ID, Name: timeline.EventSignIn, Network: "default"})
	h.store.Emit(timeline.Event{
		Session: s.ID, Name: timeline.EventNetworkError, Network: "default", Detail: "no answer",
	})
	for _, dropped := range []timeline.EventName{"", "a.b", "*", "a b"} {
		h.store.Emit(timeline.Event{Session: s.ID, Name: dropped})
	}
	h.conn.Emit("session.newer."+string(s.ID), []byte(`{"v":4,"at":"2026-11-21T12:03:11Z"}`))
	c, err := h.store.Complete(t.Context(), s, verified)
	if err != nil {
		t.Fatal(err)
	}
	at := c.CompletedAt
	notSent := timeline.Event{
		Session: s.ID, Name: timeline.EventNotSent, At: at.Add(time.Second), Attempt: 1,
		Class:  failure.Connect,
		Detail: "refused the connection", Next: 2 * time.Second, Timing: facts.Timing{
			Connect: time.Millisecond,
		},
	}
	h.store.Emit(notSent)
	early := timeline.Event{
		Session: s.ID, Name: timeline.EventNotSent, At: at.Add(-time.Hour), Attempt: 1,
		Class: failure.DNS,
	}
	h.store.Emit(early)
	h.claim(t, s.ID, 1, at.Add(2*time.Second))
	h.settle(t, s.ID, 1, facts.VerdictReleased, at.Add(2*time.Second))
	h.claim(t, s.ID, 2, at.Add(-time.Minute)) // its machine's clock is late
	h.settle(t, s.ID, 2, facts.VerdictUnknown, at.Add(3*time.Second))
	for n := 3; n <= 4; n++ {
		if _, err := h.store.Resend(t.Context(), s.ID, "operator"); err != nil {
			t.Fatal(err)
		}
		if n == 3 {
			h.claim(t, s.ID, 3, at.Add(4*time.Second))
			h.settle(t, s.ID, 3, facts.VerdictRejected, at.Add(5*time.Second))
		}
	}

	v, entries := h.timeline(t, s.ID, 4)
	want := []string{
		"created", "sign_in", "trouble", "completed", "not_sent", "not_sent", "claim 1", "result 1 released",
		"claim 2", "result 2 unknown",
		"asked 3", "claim 3", "result 3 rejected", "asked 4",
	}
	if got := kindsOf(entries); !reflect.DeepEqual(got, want) {
		t.Fatalf("timeline is\n%q, want\n%q", got, want)
	}
	if v.State != sessions.Verified || v.Delivery.State != facts.DeliveryDue || v.ID != s.ID {
		t.Errorf("view is %+v", v)
	}
	if got := *entries[5].Event; got != notSent {
		t.Errorf("event came back as %+v", got)
	}
	if got := entries[4]; got.Event.Class != failure.DNS || !got.At.Equal(early.At) {
		t.Errorf("the instant that a machine gave is not shown as given: %+v", got)
	}
}

// The reason why the last try sent nothing is stored sealed under the session's key, and is read back as
// text, for the attempt that it was of.
func TestWhyADeliveryIsDue(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	due := facts.View{Session: s, Delivery: facts.Delivery{State: facts.DeliveryDue}}
	explained := func(v facts.View) *facts.Waiting {
		h.store.Explain(t.Context(), &v)
		return v.Delivery.Waiting
	}
	if w := explained(due); w != nil {
		t.Errorf("before any try: %+v", w)
	}
	at := h.clock.Now()
	h.store.Emit(timeline.Event{
		Name: timeline.EventNotSent, Attempt: 1, Tries: 3, Class: failure.Connect, At: at,
		Detail: "refused the connection", Next: time.Second,
	}.Of(s))
	h.timeline(t, s.ID, 1)
	w := explained(due)
	if w == nil || w.Tries != 3 || w.Class != failure.Connect || w.Detail != "refused the connection" ||
		!w.At.Equal(at) || !w.Next.Equal(at.Add(time.Second)) {
		t.Errorf("%+v", w)
	}
	again := due
	sent := facts.Result{Class: failure.Timeout, Detail: "no answer", At: at, Next: at.Add(time.Minute)}
	again.Delivery.Attempts = []facts.Attempt{{Result: &sent}}
	if w := explained(again); w == nil || w.Tries != 0 || w.Class != sent.Class || w.Detail != sent.Detail ||
		!w.Next.Equal(sent.Next) {
		t.Errorf("a sent attempt that is followed by another: %+v", w)
	}
	again.Delivery.State = facts.DeliveryClaimed
	if w := explained(again); w != nil {
		t.Errorf("while it is sent: %+v", w)
	}
}

func TestTimelineOfSessionsThatWereNotCompleted(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	if _, entries := h.timeline(t, s.ID, 0); !reflect.DeepEqual(kindsOf(entries), []string{"created"}) {
		t.Errorf("pending: %q", kindsOf(entries))
	}
	h.clock.Advance(sessions.Lifetime)
	_, entries := h.timeline(t, s.ID, 0)
	if !reflect.DeepEqual(kindsOf(entries), []string{"created", "expired"}) ||
		!entries[1].At.Equal(s.ExpiresAt) {
		t.Errorf("expired: %q", kindsOf(entries))
	}
	if _, _, err := h.store.Timeline(t.Context(), sessions.ID(strings.Repeat("a", 32))); !errors.Is(err,
		sessions.ErrNotFound) {
		t.Errorf("no such session: %v", err)
	}
}

// sids lists the sessions of a reading.
func sids(d lists.Deliveries) (ids []sessions.ID) {
	for _, v := range d.Views {
		ids = append(ids, v.ID)
	}
	return ids
}

func TestDeliveriesAreFoundNewestFirst(t *testing.T) {
	t.Parallel()
	h := start(t)
	verdicts := []facts.Verdict{
		facts.VerdictDelivered, facts.VerdictRejected, facts.VerdictUnknown,
		facts.VerdictUndeliverable, facts.VerdictReleased,
	}
	var ids []sessions.ID // newest first
	for i, v := range verdicts {
		id := h.begun(t, verified).ID
		h.claim(t, id, 1, time.Now())
		ids = slices.Insert(ids, 0, id)
		if i != 1 {
			h.settle(t, id, 1, v, time.Now())
		}
	}
	claimed := h.begun(t, sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}).ID
	h.claim(t, claimed, 1, time.Now())
	// sends nothing, so it is none
	h.begun(t, sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason})
	due := h.begun(t, verified).ID
	h.settle(t, ids[3], 1, facts.VerdictRejected, time.Now()) // long after its completion
	again := h.begun(t, verified).ID
	h.claim(t, again, 1, time.Now())
	h.settle(t, again, 1, facts.VerdictUnknown, time.Now())
	if _, err := h.store.Resend(t.Context(), again, "operator"); err != nil {
		t.Fatal(err)
	}
	ids = append([]sessions.ID{again, due, claimed}, ids...)

	all, err := h.store.Deliveries(t.Context(), "", 50)
	if err != nil || !reflect.DeepEqual(sids(all), ids) || !all.BackTo.IsZero() {
		t.Fatalf("deliveries are %v back to %v, %v, want %v", sids(all), all.BackTo, err, ids)
	}
	for _, v := range all.Views {
		if read, err := h.store.Read(t.Context(), v.ID); err != nil || !reflect.DeepEqual(read, v) {
			t.Errorf("looked at as %+v, read as %+v, %v", v, read, err)
		}
	}
	for state, want := range map[facts.DeliveryState][]sessions.ID{
		facts.DeliveryDue: {again, due, ids[3]}, facts.DeliveryClaimed: {claimed},
		facts.DeliveryUndeliverable: {ids[4]},
		facts.DeliveryUnknown:       {ids[5]}, facts.DeliveryRejected: {ids[6]},
		facts.DeliveryDelivered: {ids[7]},
	} {
		if d, err := h.store.Deliveries(t.Context(), state, 50); err != nil ||
			!reflect.DeepEqual(sids(d), want) {
			t.Errorf("%s: %v, %v, want %v", state, sids(d), err, want)
		}
	}
	two, err := h.store.Deliveries(t.Context(), "", 2)
	if err != nil || !reflect.DeepEqual(sids(two), ids[:2]) || !two.BackTo.Equal(all.Views[1].CompletedAt) {
		t.Errorf("two: %v back to %v, %v", sids(two), two.BackTo, err)
	}
}

// A reading takes as many pages as needed, joins what is on two of them, and leaves nothing behind on the
// server.
func TestDeliveriesOverSeveralPages(t *testing.T) {
	t.Parallel()
	h := start(t)
	if d, err := h.store.Deliveries(t.Context(), "", 1); err != nil || len(d.Views) != 0 {
		t.Errorf("an empty store has %v, %v", d.Views, err)
	}
	first := h.begun(t, verified).ID
	const many = 1100 // more than a page of completions
	done := make(chan error)
	turns := make(chan struct{}, 64) // so few that each write ends in its time on a busy machine too
	for range many {
		go func() {
			turns <- struct{}{}
			s, _, err := h.store.Create(t.Context(), request)
			if err == nil {
				_, err = h.store.Complete(t.Context(), s, verified)
			}
			<-turns
			done <- err
		}()
	}
	for range many {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	h.claim(t, first, 1, time.Now())
	h.settle(t, first, 1, facts.VerdictUnknown, time.Now())
	d, err := h.store.Deliveries(t.Context(), facts.DeliveryUnknown, 5)
	if err != nil || !reflect.DeepEqual(sids(d), []sessions.ID{first}) ||
		len(d.Views[0].Delivery.Attempts) != 1 {
		t.Errorf("found %v, %v", sids(d), err)
	}
	if d, err := h.store.Deliveries(t.Context(), "", 2*many); err != nil || len(d.Views) != many+1 {
		t.Errorf("found %d of %d, %v", len(d.Views), many+1, err)
	}
	natstest.AwaitConsumers(t, h.conn, topology.StreamCompletions, 1) // the dispatcher's
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.store.Deliveries(canceled, "", 5); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("out of time before the first page: %v", err)
	}
}

func TestDeliveriesThatAreWanted(t *testing.T) {
	t.Parallel()
	h := start(t)
	old := h.begun(t, verified)
	h.clock.Advance(time.Hour)
	border := h.clock.Now()
	h.clock.Advance(time.Hour)
	lost, due := h.begun(t, verified), h.begun(t, verified)
	h.claim(t, lost.ID, 1, h.clock.Now())
	h.settle(t, lost.ID, 1, facts.VerdictUndeliverable, h.clock.Now())
	for name, row := range map[string]struct {
		query lists.DeliveryQuery
		want  []sessions.ID
	}{
		"all":   {lists.DeliveryQuery{}, []sessions.ID{due.ID, lost.ID, old.ID}},
		"since": {lists.DeliveryQuery{Since: border}, []sessions.ID{due.ID, lost.ID}},
		"states": {
			lists.DeliveryQuery{States: []facts.DeliveryState{facts.DeliveryUndeliverable,
				facts.DeliveryUnknown}}, []sessions.ID{lost.ID},
		},
		"two states": {
			lists.DeliveryQuery{States: []facts.DeliveryState{facts.DeliveryUndeliverable,
				facts.DeliveryDue}, Since: border}, []sessions.ID{due.ID, lost.ID},
		},
		"wanted": {
			lists.DeliveryQuery{Wants: func(v facts.View) bool { return v.ID == old.ID }},
			[]sessions.ID{old.ID},
		},
	} {
		row.query.Limit = 10
		found, err := h.store.FindDeliveries(t.Context(), row.query)
		if err != nil || !reflect.DeepEqual(sids(found), row.want) || !found.BackTo.IsZero() {
			t.Errorf("%s: %v, back to %s, %v; want %v", name, sids(found), found.BackTo, err, row.want)
		}
	}
}

// One more attempt can be requested a hundred times; attempts that were not requested do not count.
func TestResendsAreBounded(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	c, err := h.store.Complete(t.Context(), s, verified)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	try := func(v facts.Verdict) {
		t.Helper()
		last++
		h.claim(t, s.ID, last, c.CompletedAt)
		h.settle(t, s.ID, last, v, c.CompletedAt)
	}
	for range 3 {
		try(facts.VerdictReleased)
	}
	try(facts.VerdictRejected)
	for n := range 100 {
		if _, err := h.store.Resend(t.Context(), s.ID, "operator"); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
		if n%50 == 0 {
			try(facts.VerdictReleased)
		}
		try(facts.VerdictRejected)
	}
	if r, err := h.store.Resend(t.Context(), s.ID, "operator"); !errors.Is(err, facts.ErrResentOften) {
		t.Errorf("attempt %d was requested: %v", r.Number, err)
	}
}
