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

// Whichever facts of a delivery are left after a loss, nothing is due once its attempts are closed, and no
// attempt up to the last known one can be made again. What is known of an attempt stays, and another recovery
// changes nothing.
func TestNothingIsDueAfterALoss(t *testing.T) {
	t.Parallel()
	const attempts, unreadable = 3, "unreadable"
	results := []facts.Verdict{
		"", facts.VerdictDelivered, facts.VerdictReleased, facts.VerdictRejected, unreadable,
	}
	kinds := 2 * 3 * len(results) // whether it is requested, its claim, its result
	verified := sessions.Outcome{State: sessions.Verified}
	for left := range kinds * kinds * kinds {
		claims, ends, last := map[int]facts.Claim{}, map[int]facts.Result{}, 0
		asked := map[int]bool{}
		for n, rest := 1, left; n <= attempts; n, rest = n+1, rest/kinds {
			asked[n] = rest%2 == 1
			claim := rest / 2 % 3
			switch claim {
			case 1:
				claims[n] = facts.Claim{Number: n}
			case 2:
				claims[n] = facts.UnreadableClaim("", n, time.Time{})
			}
			verdict := results[rest/6%len(results)]
			switch verdict {
			case "":
			case unreadable:
				ends[n] = facts.UnreadableResult("", n, time.Time{})
			case facts.VerdictRejected:
				ends[n] = facts.Result{Number: n, Verdict: verdict, Next: time.Unix(1, 0)}
			default:
				ends[n] = facts.Result{Number: n, Verdict: verdict}
			}
			if claim == 1 || verdict != "" && verdict != unreadable || asked[n] {
				last = n
			}
		}
		known := facts.AttemptFacts{
			Claim:           func(n int) (*facts.Claim, error) { return there(claims, n), nil },
			Result:          func(n int) (*facts.Result, error) { return there(ends, n), nil },
			ResendRequested: func(n int) (bool, error) { return asked[n], nil },
		}
		d, closed, err := known.AfterLoss(verified, last)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range closed {
			_, claimed := claims[n]
			if _, ended := ends[n]; claimed && ended {
				t.Fatalf("%d: attempt %d is closed, and was whole", left, n)
			} else if !ended {
				ends[n] = facts.Result{Number: n, Verdict: facts.VerdictUnknown}
			}
			if !claimed {
				claims[n] = facts.Claim{Number: n}
			}
			last = max(last, n)
		}
		is, err := known.Attempts()
		after, aerr := facts.NewDelivery(verified, is, known.ResendRequested)
		if err != nil || aerr != nil || after.State != d.State || after.Unfinished() != 0 {
			t.Fatalf("%d: after %v it is %s with %d attempts, want %s; %v, %v", left, closed, after.State,
				len(is), d.State, err, aerr)
		}
		if len(claims) < last || len(ends) < last {
			t.Fatalf("%d: after %v there are %d claims and %d results, want %d", left, closed, len(claims),
				len(ends), last)
		}
		if _, again, err := known.AfterLoss(verified, last); len(again) > 0 || err != nil {
			t.Fatalf("%d: once more: %v, %v", left, again, err)
		}
	}
}

// there returns what is known of an attempt; nil: nothing.
func there[F any](known map[int]F, n int) *F {
	if f, ok := known[n]; ok {
		return &f
	}
	return nil
}

// Nothing is made up for an outcome that sends no callback, whatever is left of attempts.
func TestLossOfAnOutcomeWithoutACallback(t *testing.T) {
	t.Parallel()
	left := map[int]facts.Claim{2: {}}
	none := facts.AttemptFacts{
		Claim:           func(n int) (*facts.Claim, error) { return there(left, n), nil },
		Result:          func(int) (*facts.Result, error) { return nil, nil }, //nolint:nilnil // there is none
		ResendRequested: func(int) (bool, error) { return false, nil },
	}
	d, closed, err := none.AfterLoss(sessions.Outcome{State: sessions.Expired}, 2)
	if d.State != facts.DeliveryNone || len(closed) > 0 || err != nil {
		t.Errorf("%s, %v, %v", d.State, closed, err)
	}
}

// A claim counts from when it was stored, if its owner believed that it was earlier, and as it says
// otherwise.
func TestDatedClaim(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := facts.NewClaim("a", 1, "w", at, 5*time.Second, 15*time.Second)
	for stored, want := range map[time.Duration]time.Duration{
		0: 20 * time.Second, time.Hour: time.Hour + 20*time.Second, -time.Hour: 20 * time.Second,
	} {
		if d := c.Dated(at.Add(stored)); d.SettleAfter.Sub(at) != want || d.At != c.At {
			t.Errorf("stored %s later: %+v", stored, d)
		}
	}
	if c := facts.UnreadableClaim("a", 1, at); c.Dated(at) != c {
		t.Errorf("what is no claim: %+v", c.Dated(at))
	}
}
