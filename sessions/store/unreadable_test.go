package store_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

// garbage is what may be in a fact's place that no build has written: text, a JSON object, and other JSON.
var garbage = map[string]string{
	"text": "planted", "nothing": "",
	"an object": `{"type":"io.nats.jetstream.api.v1.account_info_response","memory":0}`, "a list": `[1,2]`,
	"another attempt": `{"v":1,"n":7,"verdict":"delivered"}`,
	"a claim with an unknown member": `{"v":1,"n":1,"worker":"w","at":"2026-11-21T12:00:00Z","deadline":"2026-11-21T12:00:05Z",` +
		`"settle_after":"2026-11-21T12:00:20Z","sent":true}`,
}

// plant stores a server's answer on a subject, as a client with access to the server can.
func (h fixture) plant(t *testing.T, subject string) {
	t.Helper()
	natstest.Plant(t, h.conn, topology.StreamCompletions, subject)
}

// put stores some bytes on a subject.
func (h fixture) put(t *testing.T, subject, data string) {
	t.Helper()
	natstest.Publish(t, h.conn, subject, []byte(data))
}

// reported collects what the store reports as unreadable.
type reported struct {
	mu   sync.Mutex
	kind []string
}

func (w *reported) take(e *facts.UnreadableError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Sequence == 0 || e.Session == "" || e.At.IsZero() {
		panic("told without a place")
	}
	w.kind = append(w.kind, e.Kind())
}

func (w *reported) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.kind)))
}

func watching(t *testing.T) (fixture, *reported) {
	t.Helper()
	h, w := start(t), &reported{}
	h.store = store.New(store.Config{
		Conn: h.conn, Key: h.key, Now: h.clock.Now, OnUnreadable: w.take,
		Pending:     natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, h.conn, topology.StreamCompletions),
		Retries:     natstest.Writer(t, h.conn, topology.StreamRetries),
	})
	return h, w
}

// A session with an unreadable message in place of its completion has ended without an outcome, from that
// moment on: it is shown so, cannot be completed, and nothing is sent.
func TestUnreadableCompletionEndsTheSession(t *testing.T) {
	h, told := watching(t)
	for name, data := range garbage {
		s, _ := h.create(t)
		h.put(t, "completion."+string(s.ID), data)
		h.endedUnreadable(t, name, s)
	}
	s, _ := h.create(t)
	h.plant(t, "completion."+string(s.ID))
	h.endedUnreadable(t, "a server's answer", s)
	if got := told.all(); !slices.Equal(got, []string{"completion"}) {
		t.Errorf("told of %q", got)
	}
	other, _ := h.create(t)
	h.complete(t, other.ID, sessions.Verified, sessions.NoReason)
	page, err := h.store.List(t.Context(), lists.Query{Account: s.Account, Limit: 20})
	if err != nil || len(page.Sessions) != len(garbage)+2 || page.Sessions[0].ID != other.ID ||
		page.Sessions[1].Reason != sessions.UnreadableReason {
		t.Errorf("a list: %+v, %v", page.Sessions, err)
	}
	found, err := h.store.Deliveries(t.Context(), "", 20)
	if err != nil || len(found.Views) != 1 || found.Views[0].ID != other.ID {
		t.Errorf("deliveries: %+v, %v", found.Views, err)
	}
	open, err := h.store.Unfinished(t.Context())
	if err != nil || len(open) != 1 || open[other.ID].Unfinished() != 1 {
		t.Errorf("unfinished: %+v, %v", open, err)
	}
}

func (h fixture) endedUnreadable(t *testing.T, name string, s sessions.Session) {
	t.Helper()
	v, err := h.store.Read(t.Context(), s.ID)
	if err != nil || v.State != sessions.Expired || v.Reason != sessions.UnreadableReason ||
		v.Delivery.State != facts.DeliveryNone || !v.CompletedAt.IsZero() {
		t.Errorf("%s: %+v, %v", name, v, err)
	}
	if v.ExpiresAt.After(time.Now().Add(time.Second)) || v.ExpiresAt.Before(s.CreatedAt.Add(-time.Second)) {
		t.Errorf("%s: it ended at %s", name, v.ExpiresAt)
	}
	if _, err := h.store.Complete(t.Context(), s, verified); !errors.Is(err, sessions.ErrExpired) ||
		!errors.Is(err, facts.ErrUnreadable) {
		t.Errorf("%s: complete: %v", name, err)
	}
	if _, err := h.store.Resend(t.Context(), s.ID, "operator"); !errors.Is(err, facts.ErrNoDelivery) {
		t.Errorf("%s: resend: %v", name, err)
	}
	_, entries, err := h.store.Timeline(t.Context(), s.ID)
	if err != nil || len(entries) != 2 || entries[1].Kind != timeline.EntryExpired {
		t.Errorf("%s: timeline: %+v, %v", name, entries, err)
	}
}

// An attempt whose claim or result cannot be read may have been sent: its end is unknown, for every reader.
func TestUnreadableClaimAndResultAreUnknown(t *testing.T) {
	h, told := watching(t)
	want := map[sessions.ID]string{}
	for name, data := range garbage {
		claim := h.begun(t, verified)
		h.put(t, "claim."+string(claim.ID)+".1", data)
		want[claim.ID] = name + " for a claim"
		result := h.begun(t, verified)
		h.claim(t, result.ID, 1, time.Now())
		h.put(t, "result."+string(result.ID)+".1", data)
		want[result.ID] = name + " for a result"
		if r, err := h.store.StoreResult(t.Context(),
			facts.Result{Session: result.ID, Number: 1, Verdict: facts.VerdictDelivered,
				At: time.Now()}); !errors.Is(err, facts.ErrHasResult) ||
			r.Verdict != facts.VerdictUnknown || r.Class != failure.Unreadable {
			t.Errorf("%s: settle: %+v, %v", name, r, err)
		}
	}
	planted := h.begun(t, verified)
	h.plant(t, "claim."+string(planted.ID)+".1")
	want[planted.ID] = "a server's answer for a claim"
	found, err := h.store.Deliveries(t.Context(), facts.DeliveryUnknown, 20)
	if err != nil || len(found.Views) != len(want) {
		t.Errorf("%d deliveries are unknown of %d, %v", len(found.Views), len(want), err)
	}
	for id, name := range want {
		v, err := h.store.Read(t.Context(), id)
		if err != nil || v.State != sessions.Verified || v.Delivery.State != facts.DeliveryUnknown ||
			len(v.Delivery.Attempts) != 1 ||
			v.Delivery.Attempts[0].Result.Class != failure.Unreadable ||
			v.Delivery.Attempts[0].Claim.At.IsZero() {
			t.Errorf("%s: %+v, %v", name, v.Delivery, err)
		}
		if err := h.store.Claim(t.Context(),
			facts.Claim{Session: id, Number: 1, Worker: "w", At: time.Now()}); !errors.Is(err,
			facts.ErrClaimed) {
			t.Errorf("%s: somebody may send: %v", name, err)
		}
		// A person may send again, as with any unknown attempt.
		if r, err := h.store.Resend(t.Context(), id, "operator"); err != nil || r.Number != 2 {
			t.Errorf("%s: resend: %+v, %v", name, r, err)
		}
	}
	if got := told.all(); !slices.Equal(got, []string{"claim", "result"}) {
		t.Errorf("told of %q", got)
	}
	verdicts, err := h.store.Verdicts(t.Context(), time.Now().Add(-time.Hour))
	if err != nil || verdicts.By[facts.VerdictUnknown] != len(garbage) || len(verdicts.By) != 1 {
		t.Errorf("verdicts: %+v, %v", verdicts, err)
	}
}

// Messages that no session can have on its subjects are ignored, and block nothing.
func TestFactsOfNoSession(t *testing.T) {
	h, told := watching(t)
	s, token := h.create(t)
	c, err := h.store.Complete(t.Context(), s, verified)
	if err != nil {
		t.Fatal(err)
	}
	id := string(c.ID)
	for _, subject := range []string{
		"completion.x", "claim.x.1", "claim." + id + ".x", "result." + id + ".01", "resend.x.y",
	} {
		h.put(t, subject, "planted")
	}
	elsewhere := start(t)
	of := elsewhere.begun(t, verified).ID
	elsewhere.claim(t, of, 1, time.Now())
	claim, err := elsewhere.conn.Last(t.Context(), topology.StreamCompletions, "claim."+string(of)+".1")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{
		"claim.y.1", "claim." + id + ".0", "claim." + id + ".01", "claim." + string(token) + ".1",
	} {
		h.put(t, subject, string(claim.Data)) // it could be read, if it belonged to a session
	}
	if v, err := h.store.Read(t.Context(), c.ID); err != nil || v.Delivery.State != facts.DeliveryDue {
		t.Errorf("read: %+v, %v", v.Delivery, err)
	}
	if open, err := h.store.Unfinished(t.Context()); err != nil || len(open) != 1 ||
		open[c.ID].State != facts.DeliveryDue {
		t.Errorf("unfinished: %+v, %v", open, err)
	}
	if found, err := h.store.Deliveries(t.Context(), "", 20); err != nil || len(found.Views) != 1 ||
		found.Views[0].Delivery.State != facts.DeliveryDue {
		t.Errorf("deliveries: %+v, %v", found.Views, err)
	}
	if v, err := h.store.Verdicts(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(v.By) != 0 {
		t.Errorf("verdicts: %+v, %v", v, err)
	}
	if got := told.all(); len(got) != 0 {
		t.Errorf("told of %q", got)
	}
}

// A request that cannot be read requests nothing, and nobody can request that attempt any more; a caller that
// tries learns why.
func TestUnreadableResendIsNoRequest(t *testing.T) {
	h, told := watching(t)
	c := h.begun(t, verified)
	h.claim(t, c.ID, 1, time.Now())
	h.settle(t, c.ID, 1, facts.VerdictRejected, time.Now())
	h.plant(t, "resend."+string(c.ID)+".2")
	if v, err := h.store.Read(t.Context(), c.ID); err != nil ||
		v.Delivery.State != facts.DeliveryRejected {
		t.Errorf("%+v, %v", v.Delivery, err)
	}
	if found, err := h.store.Deliveries(t.Context(), facts.DeliveryRejected, 20); err != nil ||
		len(found.Views) != 1 {
		t.Errorf("deliveries: %+v, %v", found.Views, err)
	}
	if open, err := h.store.Unfinished(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("unfinished: %+v, %v", open, err)
	}
	if _, err := h.store.Resend(t.Context(), c.ID, "operator"); !errors.Is(err, facts.ErrUnreadable) ||
		!strings.Contains(err.Error(), "resend."+string(c.ID)+".2") {
		t.Errorf("resend: %v", err)
	}
	if got := told.all(); !slices.Equal(got, []string{"resend"}) {
		t.Errorf("told of %q", got)
	}
}

// An unreadable hint hides no other one, and is found to be overdue.
func TestUnreadableHintsHideNothing(t *testing.T) {
	h, told := watching(t)
	c, other := h.begun(t, verified), h.begun(t, verified)
	since := time.Now().Add(-time.Hour)
	if err := h.store.Schedule(t.Context(), facts.Retry{
		Session: other.ID, Since: since, At: time.Now().Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	h.put(t, "schedule."+string(c.ID), "planted")
	h.put(t, "schedule.nobody", "planted")
	b, err := h.store.Backlog(t.Context())
	if err != nil || b.Scheduled != 3 || b.Oldest.Sub(since).Abs() > time.Second {
		t.Errorf("backlog: %+v, %v", b, err)
	}
	overdue, err := h.store.Overdue(t.Context(), time.Minute)
	if err != nil || len(overdue) != 1 || overdue[0].Session != c.ID {
		t.Errorf("overdue: %+v, %v", overdue, err)
	}
	if got := told.all(); !slices.Equal(got, []string{"schedule"}) {
		t.Errorf("told of %q", got)
	}
}

// A store with such messages can be restored and moved, and its users erased.
func TestUnreadableFactsEndARestoreNowhere(t *testing.T) {
	h, _ := watching(t)
	taken, _ := h.create(t)
	h.plant(t, "completion."+string(taken.ID))
	claimed, due := h.begun(t, verified), h.begun(t, verified)
	h.plant(t, "claim."+string(claimed.ID)+".1")
	open, _ := h.create(t)
	h.put(t, "$KV.sessions."+open.Account+"."+strings.Repeat("a", 32), "planted")
	deliveries, expired, err := h.store.CloseUnfinished(t.Context(), time.Now())
	if err != nil || deliveries != 2 || expired != 1 {
		t.Errorf("%d deliveries, %d sessions, %v", deliveries, expired, err)
	}
	for _, id := range []sessions.ID{claimed.ID, due.ID} {
		if v, err := h.store.Read(t.Context(), id); err != nil ||
			v.Delivery.State != facts.DeliveryUnknown {
			t.Errorf("%+v, %v", v.Delivery, err)
		}
	}
	h.clock.Advance(sessions.Lifetime)
	e, err := h.store.Erase(t.Context(), anybody(open.PlatformUserID), false)
	if err != nil || e.Sessions != 4 || e.Open != 0 || e.Outcomes != 3 {
		t.Errorf("erase: %+v, %v", e, err)
	}
	if _, err := h.store.Read(t.Context(), taken.ID); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("an erased session: %v", err)
	}
}

// An unreadable claim counts as an attempt only if that attempt was due. After an end, or before one, it is
// ignored: no role had a reason to claim there. Every reader follows that.
func TestUnreadableClaimNeedsAReason(t *testing.T) {
	h, _ := watching(t)
	next := func(id sessions.ID) {
		r := facts.Result{
			Session: id, Number: 1, Verdict: facts.VerdictUnknown, At: time.Now(), Next: time.Now().
					Add(time.Minute),
		}
		if _, err := h.store.StoreResult(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(v facts.Verdict) func(sessions.ID) {
		return func(id sessions.ID) { h.settle(t, id, 1, v, time.Now()) }
	}
	for name, c := range map[string]struct {
		first    func(sessions.ID)
		state    facts.DeliveryState
		attempts int
		open     bool
	}{
		"behind a delivered one":  {ends(facts.VerdictDelivered), facts.DeliveryDelivered, 1, false},
		"behind a rejected one":   {ends(facts.VerdictRejected), facts.DeliveryRejected, 1, false},
		"behind an unknown one":   {ends(facts.VerdictUnknown), facts.DeliveryUnknown, 1, false},
		"behind one under way":    {func(sessions.ID) {}, facts.DeliveryClaimed, 1, true},
		"behind a released one":   {ends(facts.VerdictReleased), facts.DeliveryUnknown, 2, true},
		"behind one that goes on": {next, facts.DeliveryUnknown, 2, true},
		"behind an unreadable end": {
			func(id sessions.ID) { h.put(t, "result."+string(id)+".1", "planted") }, facts.DeliveryUnknown,
			1, false,
		},
		"behind a wish that is none": {func(id sessions.ID) {
			h.settle(t, id, 1, facts.VerdictDelivered, time.Now())
			h.plant(t, "resend."+string(id)+".2")
		}, facts.DeliveryDelivered, 1, false},
		"behind a wish": {func(id sessions.ID) {
			h.settle(t, id, 1, facts.VerdictRejected, time.Now())
			if _, err := h.store.Resend(t.Context(), id, "operator"); err != nil {
				t.Fatal(err)
			}
		}, facts.DeliveryUnknown, 2, true},
	} {
		id := h.begun(t, verified).ID
		h.claim(t, id, 1, time.Now())
		c.first(id)
		for _, n := range []string{"2", "3", "4"} {
			h.plant(t, "claim."+string(id)+"."+n)
		}
		h.shows(t, name, id, c.state, c.attempts)
		if open := h.unfinished(t, id); (open != nil) != c.open || c.open && open.Unfinished() != c.attempts {
			t.Errorf("%s: unfinished: %+v", name, open)
		}
	}
}

// shows compares the state of a delivery in a single read and in a search.
func (h fixture) shows(t *testing.T, name string, id sessions.ID, state facts.DeliveryState,
	attempts int) {
	t.Helper()
	v, err := h.store.Read(t.Context(), id)
	if err != nil || v.Delivery.State != state || len(v.Delivery.Attempts) != attempts {
		t.Errorf("%s: read: %+v, %v; want %s after %d attempts", name, v.Delivery, err, state, attempts)
	}
	found, err := h.store.FindDeliveries(t.Context(), lists.DeliveryQuery{
		Wants: func(v facts.View) bool { return v.ID == id }, Limit: 1,
	})
	if err != nil || len(found.Views) != 1 || found.Views[0].Delivery.State != state ||
		len(found.Views[0].Delivery.Attempts) != attempts {
		t.Errorf("%s: deliveries: %+v, %v; want %s after %d attempts", name, found.Views, err, state,
			attempts)
	}
}

// unfinished returns what is known of a delivery that has not ended; nil if it has.
func (h fixture) unfinished(t *testing.T, id sessions.ID) *facts.Delivery {
	t.Helper()
	open, err := h.store.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := open[id]; ok {
		return &u
	}
	return nil
}

// If an unreadable claim blocks the attempt that a person requests, nothing is sent under it: it is unknown
// from then on, and the person may request the next one.
func TestResendOfAnAttemptWithAnUnreadableClaim(t *testing.T) {
	h, _ := watching(t)
	id := h.begun(t, verified).ID
	h.claim(t, id, 1, time.Now())
	h.settle(t, id, 1, facts.VerdictDelivered, time.Now())
	h.plant(t, "claim."+string(id)+".2")
	for n := 2; n <= 3; n++ {
		if r, err := h.store.Resend(t.Context(), id, "operator"); err != nil || r.Number != n {
			t.Fatalf("resend: %+v, %v", r, err)
		}
		if n == 2 {
			h.shows(t, "asked for", id, facts.DeliveryUnknown, 2)
		}
	}
	if err := h.store.Claim(t.Context(),
		facts.Claim{Session: id, Number: 2, Worker: "w", At: time.Now()}); !errors.Is(err,
		facts.ErrClaimed) {
		t.Errorf("somebody may send: %v", err)
	}
	h.shows(t, "asked for again", id, facts.DeliveryDue, 2)
}

// An unreadable message in place of a result does not end an attempt that was not made: a due delivery stays
// due.
func TestUnreadableResultEndsNoLaterAttempt(t *testing.T) {
	h, _ := watching(t)
	for _, n := range []string{"1", "2"} {
		id := h.begun(t, verified).ID
		h.put(t, "result."+string(id)+"."+n, "planted")
		h.shows(t, "result "+n, id, facts.DeliveryDue, 0)
		if open := h.unfinished(t, id); open == nil || open.State != facts.DeliveryDue {
			t.Errorf("result %s: unfinished: %+v", n, open)
		}
	}
}

// A consumer of another stream can be made to deliver its messages into the stream of facts. They keep their
// own subjects, and are no facts, whichever session they name.
func TestAnotherStreamsMessageIsNoFact(t *testing.T) {
	h, _ := watching(t)
	c := h.begun(t, verified)
	foreign := "audit." + string(c.ID) + ".1"
	h.put(t, foreign, "x")
	consumer, err := h.conn.JS.CreateConsumer(t.Context(), topology.StreamAudit, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.conn.NC.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+topology.StreamAudit+"."+
		consumer.CachedInfo().Name, "claim.s0_0.9", []byte("1")); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "another stream's message", func() bool {
		return natstest.SequenceOf(t, h.conn, topology.StreamCompletions, foreign) > 0
	})
	h.shows(t, "beside another stream's message", c.ID, facts.DeliveryDue, 0)
	if n, _, err := h.store.CloseUnfinished(t.Context(), time.Now()); err != nil || n != 1 {
		t.Errorf("close: %d, %v", n, err)
	}
	h.shows(t, "closed", c.ID, facts.DeliveryUnknown, 1)
}
