package dispatcher_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// leftAfterLoss are the facts that a damaged store has left of an outcome that may have been sent, in the
// order of its stream. A claim comes after its own result if an earlier recovery has restored it. "again" is
// an answer after which at-least-once sends once more.
var leftAfterLoss = []string{
	"", "claim.1", "delivered.1", "released.1", "again.1", "released.1 claim.1", "again.1 claim.1",
	"claim.1 released.1", "claim.1 again.1", "claim.2", "delivered.2", "claim.2 delivered.2",
	"claim.2 again.2", "released.2 claim.2", "released.1 claim.2", "claim.1 claim.2 released.2",
	"claim.3 delivered.3", "again.1 claim.1 claim.3", "resend.2", "resend.3",
	"claim.1 delivered.1 resend.2", "delivered.1 resend.2 claim.1", "claim.1 delivered.1 resend.3",
	"claim.1 delivered.1 resend.2 again.2",
}

// leave stores facts of a delivery.
func (h *fixture) leave(t *testing.T, id sessions.ID, kept string) {
	t.Helper()
	at := h.clock().UTC().Add(-time.Minute)
	for what := range strings.FieldsSeq(kept) {
		kind, number, _ := strings.Cut(what, ".")
		n, err := strconv.Atoi(number)
		r := facts.Result{Session: id, Number: n, Verdict: facts.Verdict(kind), By: "gone", At: at}
		switch kind {
		case "claim":
			err = h.store.Claim(t.Context(), facts.NewClaim(id, n, "gone", at, 0, 0))
		case "resend":
			natstest.Publish(t, h.conn, facts.Key{Kind: kind, ID: id, N: n}.Subject(),
				fmt.Appendf(nil, `{"v":1,"n":%d,"by":"olga","at":"2026-11-21T12:00:00Z"}`, n))
		case "again":
			r.Verdict, r.Status, r.Next = facts.VerdictRejected, http.StatusServiceUnavailable, at
			_, err = h.store.StoreResult(t.Context(), r)
		default:
			_, err = h.store.StoreResult(t.Context(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// damaged stores outcomes, and what is left of each. The consumer gives one message of each.
func (h *fixture) damaged(t *testing.T, url string) map[sessions.ID]string {
	t.Helper()
	all := map[sessions.ID]string{}
	for _, requested := range []bool{true, false} {
		for _, kept := range leftAfterLoss {
			if strings.Contains(kept, "resend") != requested {
				continue
			}
			id := h.complete(t, url, "u", verified).ID
			if all[id] = kept; requested {
				h.taken(t, records.CompletionSubject(id))
			}
		}
	}
	for id, kept := range all {
		h.leave(t, id, kept)
	}
	return all
}

// Whatever a damaged store has lost of outcomes, its dispatchers send none of them after the recovery:
// neither if they read the facts, nor if they take an outcome for one that nobody can have tried, nor because
// of a hint or a request that is left, under either policy. They send what came after it.
func TestRecoveredStoreSendsNothingOlder(t *testing.T) {
	t.Parallel()
	for _, policy := range []sessions.Policy{sessions.PolicyOnce, sessions.PolicyAtLeastOnce} {
		for _, age := range []time.Duration{0, topology.AckWait + time.Second} {
			t.Run(fmt.Sprint(policy, " ", age), func(t *testing.T) {
				t.Parallel()
				h := start(t)
				h.stand()
				r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
				old := h.damaged(t, r.URL)
				if _, _, err := h.store.CloseLost(t.Context(), time.Time{}, time.Time{}); err != nil {
					t.Fatal(err)
				}
				later := h.complete(t, r.URL, "u", verified)
				config := h.config()
				config.DefaultPolicy = policy
				h.offset.Store(int64(age))
				h.dispatch(t, config)
				h.until(t, later.ID, facts.DeliveryDelivered)
				h.untilBacklog(t, nothing)
				for id := range old {
					if err := h.store.Schedule(t.Context(), facts.Retry{
						Session: id, RequestedAttempt: 2, Tries: 1, Since: h.clock(), At: h.clock(),
					}); err != nil {
						t.Fatal(err)
					}
				}
				h.untilBacklog(t, nothing)
				for id, kept := range old {
					if n := r.count(id); n != 0 {
						t.Errorf("%q: %d POSTs", kept, n)
					}
				}
			})
		}
	}
}
