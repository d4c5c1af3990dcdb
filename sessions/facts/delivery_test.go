package facts_test

import (
	"testing"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
)

func TestDeliveryStateFollowsFacts(t *testing.T) {
	with := func(v facts.Verdict) []facts.Attempt {
		return []facts.Attempt{{Result: &facts.Result{Verdict: v}}}
	}
	verified := sessions.Outcome{State: sessions.Verified}
	failed := sessions.Outcome{State: sessions.Failed}
	for _, c := range []struct {
		outcome  sessions.Outcome
		attempts []facts.Attempt
		want     facts.DeliveryState
	}{
		{verified, nil, facts.DeliveryDue},
		{failed, nil, facts.DeliveryDue},
		{sessions.Outcome{State: sessions.Canceled}, nil, facts.DeliveryNone},
		{sessions.Outcome{State: sessions.Pending}, nil, facts.DeliveryNone},
		{sessions.Outcome{State: sessions.Expired}, nil, facts.DeliveryNone},
		{verified, []facts.Attempt{{}}, facts.DeliveryClaimed},
		{verified, with(facts.VerdictDelivered), facts.DeliveryDelivered},
		{verified, with(facts.VerdictRejected), facts.DeliveryRejected},
		{verified, with(facts.VerdictUnknown), facts.DeliveryUnknown},
		{verified, with(facts.VerdictUndeliverable), facts.DeliveryUndeliverable},
		{verified, with(facts.VerdictReleased), facts.DeliveryDue},
		{verified, with("of a newer build"), facts.DeliveryUnknown},
		{verified, append(with(facts.VerdictReleased), facts.Attempt{}), facts.DeliveryClaimed},
	} {
		if got := facts.StateOfDelivery(c.outcome, c.attempts); got != c.want {
			t.Errorf("%s with %d attempts = %s, want %s", c.outcome.State, len(c.attempts), got, c.want)
		}
	}
}

// Facts are read sequentially. A result that is stored after its read, and before the read of the next
// attempt's claim, is not missed: without it a delivery of which something was sent would look like one of
// which nothing was.
func TestResultThatComesWhileFactsAreReadIsNotMissed(t *testing.T) {
	looked := 0
	attempts, err := facts.AttemptFacts{
		Claim: func(n int) (*facts.Claim, error) {
			if n > 2 {
				return nil, nil //nolint:nilnil // there is none
			}
			return &facts.Claim{Number: n, GiveUp: n == 2}, nil
		},
		Result: func(n int) (*facts.Result, error) {
			if looked++; n == 2 || looked == 1 {
				return nil, nil //nolint:nilnil // there is none
			}
			return &facts.Result{Number: n, Verdict: facts.VerdictUnknown, Next: time.Now()}, nil
		},
	}.Attempts()
	if err != nil || len(attempts) != 2 || attempts[0].Result == nil || attempts[1].Result != nil {
		t.Errorf("the attempts are %+v, %v", attempts, err)
	}
}
