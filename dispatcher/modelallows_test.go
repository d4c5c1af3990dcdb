package dispatcher_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/dispatcher"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// What real dispatchers store is what the model of a delivery allows, fact by fact; and what they never store
// it does not.
func TestModelAllowsWhatWasSeen(t *testing.T) {
	t.Parallel()
	for _, policy := range []sessions.Policy{sessions.PolicyOnce, sessions.PolicyAtLeastOnce} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, h *fixture) { h.modelAllowsWhatIsSeen(t, policy) })
		})
	}
	for _, never := range [][]string{
		{"claim 1", "claim 2", "result 1 delivered", "result 2 delivered"},
		{"claim 1", "result 1 unknown", "claim 2", "result 2 delivered"},
		{"claim 1", "result 1 unknown, again", "claim 2", "result 2 delivered"},
		{"claim 1 to give up", "result 1 delivered"},
	} {
		if dispatcher.ModelAllows(sessions.PolicyOnce, never) == nil {
			t.Errorf("the model allows %q", never)
		}
	}
}

// modelAllowsWhatIsSeen has two dispatchers send to receivers of every kind. A resend that none of them takes
// up within RetryFor is given up, so RetryFor is longer than a busy machine takes.
func (h *fixture) modelAllowsWhatIsSeen(t *testing.T, policy sessions.Policy) {
	t.Helper()
	config := h.config()
	config.DefaultPolicy, config.RetryFor, config.Metrics = policy, 15*time.Second, nil
	var busy, broke atomic.Int32
	receivers := []*receiver{
		h.receive(t, "127.0.0.1", status(http.StatusNoContent)),
		h.receive(t, "127.0.0.2", func(w http.ResponseWriter, _ *http.Request) {
			if busy.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}),
		h.receive(t, "127.0.0.3", func(w http.ResponseWriter, _ *http.Request) {
			if broke.Add(1) == 1 {
				conn, _, _ := w.(http.Hijacker).Hijack()
				_ = conn.Close()
			}
		}),
		h.receive(t, alone(), status(http.StatusNoContent)),
	}
	receivers[3].Close() // no server answers there
	var ids []sessions.ID
	for _, r := range receivers {
		ids = append(ids, h.complete(t, r.URL, "u", verified).ID)
	}
	now := time.Now()
	vanished := h.complete(t, receivers[0].URL, "u", verified).ID
	if err := h.store.Claim(t.Context(), facts.Claim{
		Session: vanished, Number: 1, Worker: "gone", At: now.Add(-time.Minute),
		Deadline: now.Add(-time.Minute), SettleAfter: now.Add(-time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	h.dispatch(t, config)
	h.dispatch(t, config)
	for _, id := range append(ids, vanished) {
		h.untilSettled(t, id)
	}
	if _, err := h.store.Resend(t.Context(), ids[0], "somebody"); err != nil {
		t.Fatal(err)
	}
	h.until(t, ids[0], facts.DeliveryDelivered)
	for id, seen := range h.factsSeen(t) {
		t.Logf("%s, %s: %q", policy, id, seen)
		if err := dispatcher.ModelAllows(policy, seen); err != nil {
			t.Error(err)
		}
	}
}

// factsSeen returns the facts of all deliveries, in the order in which they were stored.
func (h *fixture) factsSeen(t *testing.T) map[sessions.ID][]string {
	t.Helper()
	_, last, err := h.conn.Bounds(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[sessions.ID][]string{}
	err = h.conn.Pages(t.Context(), topology.StreamCompletions, ">", 1, last,
		func(msgs []jetstream.Msg) error {
			for _, m := range msgs {
				k, ok := facts.ParseSubject(m.Subject())
				if !ok || k.Kind == "completion" {
					continue
				}
				what := ""
				c, err := records.DecodeClaim(k.ID, k.N, m.Data())
				if k.Kind == "claim" && err == nil && c.GiveUp {
					what = "to give up"
				}
				if r, err := records.DecodeResult(k.ID, k.N, m.Data()); k.Kind == "result" && err == nil {
					what = string(r.Verdict)
					if !r.Next.IsZero() {
						what += ", again"
					}
				}
				seen[k.ID] = append(seen[k.ID], dispatcher.FactSeen(k.Kind, k.N, what))
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
