package store_test

import (
	"maps"
	"testing"
	"time"

	"verifyd/sessions/facts"
)

func TestVerdictsOfTheLastHour(t *testing.T) {
	t.Parallel()
	h := start(t)
	if v, err := h.store.Verdicts(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(v.By) != 0 {
		t.Errorf("before anything happened: %+v, %v", v, err)
	}
	want := map[facts.Verdict]int{}
	for _, verdict := range []facts.Verdict{
		facts.VerdictDelivered, facts.VerdictDelivered, facts.VerdictUnknown,
	} {
		c := h.begun(t, verified)
		h.claim(t, c.ID, 1, time.Now())
		h.settle(t, c.ID, 1, verdict, time.Now())
		want[verdict]++
	}
	if v, err := h.store.Verdicts(t.Context(), time.Now().Add(-time.Hour)); err != nil ||
		!maps.Equal(v.By, want) {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := h.store.Verdicts(t.Context(), time.Now().Add(time.Minute)); err != nil || len(v.By) != 0 {
		t.Errorf("of the future: %+v, %v", v, err)
	}
}
