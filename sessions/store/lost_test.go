package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/crashpoint"
	"verifyd/sessions"
	"verifyd/sessions/facts"
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
