package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// remains stores a delivery of which a damaged store has kept only these facts, after its outcome.
func (h fixture) remains(t *testing.T, kept string) sessions.ID {
	t.Helper()
	id, at := h.begun(t, verified).ID, time.Now().UTC().Add(-time.Minute)
	for what := range strings.FieldsSeq(kept) {
		kind, number, _ := strings.Cut(what, ".")
		n, _ := strconv.Atoi(number)
		switch kind {
		case "claim":
			h.claim(t, id, n, at)
		case "resend":
			h.put(t, facts.Key{Kind: kind, ID: id, N: n}.Subject(),
				fmt.Sprintf(`{"v":1,"n":%d,"by":"olga","at":"2026-11-21T12:00:00Z"}`, n))
		case "planted": // no build has written it
			h.put(t, facts.Key{Kind: "resend", ID: id, N: n}.Subject(), garbage["an object"])
		default:
			h.settle(t, id, n, facts.Verdict(kind), at)
		}
	}
	return id
}

// lossesOfAttempts are the facts that are left of a delivery, how it ends after the loss, and after how many
// attempts.
var lossesOfAttempts = map[string]struct {
	state    facts.DeliveryState
	attempts int
}{
	"":                                       {facts.DeliveryUnknown, 1},
	"delivered.1":                            {facts.DeliveryDelivered, 1},
	"claim.2 delivered.2":                    {facts.DeliveryDelivered, 2},
	"released.1 delivered.2":                 {facts.DeliveryDelivered, 2},
	"claim.3":                                {facts.DeliveryUnknown, 3},
	"rejected.3":                             {facts.DeliveryRejected, 3},
	"claim.1 claim.3 delivered.3":            {facts.DeliveryDelivered, 3},
	"resend.2":                               {facts.DeliveryUnknown, 2},
	"claim.1 rejected.1 resend.2":            {facts.DeliveryUnknown, 2},
	"claim.1 rejected.1 resend.3":            {facts.DeliveryUnknown, 3},
	"claim.1 delivered.1 planted.2147483647": {facts.DeliveryDelivered, 1},
	"released.1":                             {facts.DeliveryUnknown, 2},
	"released.1 claim.1":                     {facts.DeliveryUnknown, 2},
	"delivered.2 claim.2":                    {facts.DeliveryDelivered, 2},
	"released.2 claim.2":                     {facts.DeliveryUnknown, 3},
}

// endedForGood checks that a delivery has ended, that each of its attempts is whole, and that no dispatcher
// makes another one.
func (h fixture) endedForGood(t *testing.T, kept string, id sessions.ID) {
	t.Helper()
	want := lossesOfAttempts[kept]
	h.shows(t, kept, id, want.state, want.attempts)
	attempts, err := h.store.Attempts(t.Context(), id)
	for _, a := range attempts {
		if a.Result == nil {
			t.Errorf("%q: attempt %d has no result", kept, a.Claim.Number)
		}
	}
	if asked, aerr := h.store.ResendOf(t.Context(), id, want.attempts+1); err != nil || aerr != nil ||
		asked != nil {
		t.Errorf("%q: attempt %d is requested: %+v, %v, %v", kept, want.attempts+1, asked, err, aerr)
	}
}

// Whichever facts of a delivery a damaged store has lost, no attempt is made again after its recovery, which
// may be interrupted anywhere and repeated. Only deliveries whose last attempt is not known count as unknown.
func TestLostFactsReopenNoDelivery(t *testing.T) {
	h := start(t) // not parallel: the hook is global
	for kept, want := range lossesOfAttempts {
		for interrupted := range 8 {
			id, point := h.remains(t, kept), 0
			crashpoint.Hook(func(string) {
				if point++; point == interrupted {
					panic("interrupted")
				}
			})
			func() {
				defer func() { _ = recover() }()
				n, _, err := h.store.CloseLost(t.Context(), time.Time{}, time.Time{})
				if unknown := want.state == facts.DeliveryUnknown; err != nil || (n == 1) != unknown {
					t.Errorf("%q: %d are unknown, %v", kept, n, err)
				}
			}()
			crashpoint.Hook(nil)
			if _, _, err := h.store.CloseLost(t.Context(), time.Time{}, time.Time{}); err != nil {
				t.Errorf("%q once more: %v", kept, err)
			}
			h.endedForGood(t, kept, id)
		}
	}
}

// What is older than a loss, and what may have been completed within it, is judged by the store's own clock:
// the clock of the edge was ahead. What came after it has lost nothing, and continues.
func TestALossIsDatedByTheStore(t *testing.T) {
	h := start(t)
	ahead := newStoreAt(t, h, func() time.Time { return time.Now().Add(records.ClockSkew / 2) })
	complete := func() sessions.ID {
		s, _, err := ahead.Create(t.Context(), request)
		if err == nil {
			_, err = ahead.Complete(t.Context(), s, verified)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	before := complete()
	open, _, err := ahead.Create(t.Context(), request) // its outcome may be among what is lost
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.conn.Last(t.Context(), topology.StreamCompletions, records.CompletionSubject(before))
	if err != nil {
		t.Fatal(err)
	}
	after := complete()
	if n, closed, err := h.store.CloseLost(t.Context(), m.Time, m.Time); n != 1 || closed != 1 || err != nil {
		t.Errorf("%d unknown, %d closed, %v", n, closed, err)
	}
	h.shows(t, "before", before, facts.DeliveryUnknown, 1)
	h.shows(t, "after", after, facts.DeliveryDue, 0)
	if v, err := h.store.Read(t.Context(), open.ID); err != nil || v.Reason != sessions.LostReason {
		t.Errorf("the open one: %+v, %v", v.Outcome, err)
	}
}

// The same holds for a backup of a store that had lost facts, and a restore counts what it has ended.
func TestRestoredStoreReopensNoDelivery(t *testing.T) {
	t.Parallel()
	h := start(t)
	all, unknown := map[sessions.ID]string{}, 0
	for kept, want := range lossesOfAttempts {
		all[h.remains(t, kept)] = kept
		if want.state == facts.DeliveryUnknown {
			unknown++
		}
	}
	for _, want := range []int{unknown, 0} {
		if n, _, err := h.store.CloseUnfinished(t.Context(), time.Now()); err != nil || n != want {
			t.Errorf("%d deliveries have ended, want %d, %v", n, want, err)
		}
	}
	for id, kept := range all {
		h.endedForGood(t, kept, id)
	}
}

// A restore counts the sessions that were open at the backup, whether they have expired since or not, and not
// those that had ended. Of these, the ones that could still be completed expire. A repeat counts the same.
func TestRestoreCountsWhatWasOpen(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	h.create(t)
	h.clock.Advance(sessions.Lifetime) // it had expired before the backup
	expired, _ := h.create(t)
	h.clock.Advance(sessions.Lifetime / 2)
	open, _ := h.create(t)
	h.begun(t, verified)
	h.clock.Advance(sessions.Lifetime / 4)
	written := h.clock.Now()
	h.clock.Advance(sessions.Lifetime / 2)
	restored := h.clock.Now()
	for range 2 {
		if _, n, err := h.store.CloseUnfinished(t.Context(), written); err != nil || n != 2 {
			t.Errorf("%d sessions were open, %v", n, err)
		}
		h.clock.Advance(time.Second)
	}
	st := newStore(t, h)
	for _, s := range []sessions.Session{expired, open} {
		v, err := st.ReadOutcome(t.Context(), s.ID)
		if err != nil || v.State != sessions.Expired || v.ExpiresAt.After(restored) {
			t.Errorf("a session that was open: %+v, %v", v, err)
		}
	}
}

// A backup whose instant is ahead of the store's time, as another machine's clock made it, leaves no session
// open that could still be completed.
func TestRestoreOfABackupFromTheFuture(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	open, _ := h.create(t)
	h.clock.Advance(sessions.Lifetime / 2)
	written := h.clock.Now().Add(sessions.Lifetime)
	if _, n, err := h.store.CloseUnfinished(t.Context(), written); err != nil || n != 1 {
		t.Errorf("%d sessions were open, %v", n, err)
	}
	v, err := newStore(t, h).ReadOutcome(t.Context(), open.ID)
	if err != nil || v.State != sessions.Expired {
		t.Errorf("a session that was open: %+v, %v", v, err)
	}
}

// A claim is open until its result comes, whichever read has found it. What is no claim has no owner.
func TestOpenClaims(t *testing.T) {
	t.Parallel()
	h := start(t)
	id, until := h.begun(t, verified).ID, time.Now().UTC().Add(time.Minute)
	h.claim(t, id, 1, time.Now())
	h.settle(t, id, 1, facts.VerdictReleased, time.Now())
	second := facts.Claim{Session: id, Number: 2, Worker: "w", SettleAfter: until}
	if err := h.store.Claim(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	h.plant(t, facts.Key{Kind: "claim", ID: h.begun(t, verified).ID, N: 1}.Subject())
	open, next, err := h.store.OpenClaims(t.Context(), 1, nil)
	if err != nil || !open[facts.Key{ID: id, N: 2}].Equal(until) || len(open) != 2 {
		t.Errorf("%v, %v", open, err)
	}
	h.settle(t, id, 2, facts.VerdictDelivered, time.Now())
	open, _, err = h.store.OpenClaims(t.Context(), next, open)
	for claim, settleAfter := range open {
		if !settleAfter.IsZero() {
			t.Errorf("%v is open", claim)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
