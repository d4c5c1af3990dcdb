package dispatcher

import (
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/once"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/modelcheck"
)

var (
	flagModelStates = flag.Int("model-states", prove.Size("simulation", 20_000, 250_000),
		"about how many states of each world of the delivery are visited; 0: all")
	flagModelWorkers = flag.Int("model-workers", 2,
		"how many dispatchers the model of a delivery has, 1 to 3")
)

// worlds are the configurations in which a delivery is explored. None has everything: the product would be
// too large.
var worlds = map[string]world{
	"unanswered writes and a kill": {room: 2, policy: sessions.PolicyOnce, unanswered: 1, kills: 1},
	"schedules":                    {room: 2, policy: sessions.PolicyOnce, schedules: true},
	"at least once":                {room: 3, policy: sessions.PolicyAtLeastOnce},
	"sent again":                   {room: 3, policy: sessions.PolicyOnce, resends: 1},
	"no verifyd wrote this":        {room: 2, policy: sessions.PolicyOnce, junk: 1},
	"sent again after that":        {room: 2, policy: sessions.PolicyOnce, junk: 1, resends: 1},
	"clocks":                       {room: 2, policy: sessions.PolicyOnce, skews: []uint8{0, 1, 2}},
	"a replayed stream":            {room: 2, policy: sessions.PolicyOnce, replays: 1, kills: 1},
	"facts that age out":           {room: 2, policy: sessions.PolicyOnce, schedules: true, ages: true},
	"the last releases":            {room: 3, policy: sessions.PolicyOnce, releases: maxReleases - 2},
	"a damaged store": {
		workers: 1, room: 3, policy: sessions.PolicyOnce, resends: 1, losses: 1,
	},
	"a damaged store, at least once": {
		workers: 1, room: 3, policy: sessions.PolicyAtLeastOnce, losses: 1,
	},
	"a lost hint": {room: 2, policy: sessions.PolicyOnce, schedules: true, lostHints: 1},
	"a power cut": {
		room: 2, policy: sessions.PolicyOnce, schedules: true, lostHints: 1, losesFacts: true,
	},
}

func explore(w world, d decisions, states int) modelcheck.Report {
	if w.workers == 0 {
		w.workers = *flagModelWorkers
	}
	if w.skews == nil {
		w.skews = []uint8{0}
	}
	return modelcheck.Explore(newModel(w, d).check(), states)
}

// Whatever happens between any two steps of a delivery, in any order: there is no second POST except a
// requested one or under at-least-once, no verdict is false, no message is acknowledged without a verdict or
// a way to one, and every state leads to an end.
func TestModelOfADelivery(t *testing.T) {
	total := 0
	for name, w := range worlds {
		r := explore(w, realDecisions(), *flagModelStates)
		total += r.States
		t.Logf("figures: %s: %s", name, r)
		if r.Broken != "" {
			t.Errorf("%s: %s\n%s", name, r.Broken, modelcheck.Diagram(r.Trace))
		}
	}
	t.Logf("figures: %d states in all", total)
}

// faults are removed checks, and where the model finds that.
var faults = []struct {
	name, world string
	drop        func(*decisions)
	want        string
}{
	{"a conflict of claims is taken for a win", "a replayed stream", func(d *decisions) {
		d.ownerAfter = func(err error) owner {
			if errors.Is(err, facts.ErrClaimed) {
				return ours
			}
			return ownerAfter(err)
		}
	}, brokenTexts[4]},
	{"who does not know whether the claim is stored sends", "unanswered writes and a kill",
		func(d *decisions) { d.ownerAfter = func(error) owner { return ours } },
		"a delivery has no verdict, and nothing leads to one"},
	{"a write that was not answered counts as stored", "unanswered writes and a kill", func(d *decisions) {
		d.published = func(w *once.Write, err error) once.Next {
			if next := w.Published(err); next != once.Read || !w.Uncertain {
				return next
			}
			return once.Stored
		}
	}, "a delivery has no verdict, and nothing leads to one"},
	{"whatever is found counts as one's own", "a replayed stream", func(d *decisions) {
		d.looked = func(w *once.Write, own bool, err error) once.Next {
			return w.Looked(own || err == nil, err)
		}
	}, brokenTexts[4]},
	{"a write does not expect its subject to be empty", "a replayed stream",
		func(d *decisions) { d.overwrites = true }, brokenTexts[4]},
	{"the deadline is not looked at before the first byte", "a replayed stream",
		func(d *decisions) { d.mayBegin = func(_, _ time.Time) bool { return true } }, brokenTexts[2]},
	{"an open claim is settled at once", "a replayed stream", func(d *decisions) {
		d.decide = func(c sessions.Completion, a []facts.Attempt, now time.Time) decision {
			return decide(c, a, now.Add(24*time.Hour))
		}
	}, brokenTexts[2]},
	{"an open claim does not keep others from the next attempt", "a replayed stream", func(d *decisions) {
		d.decide = func(c sessions.Completion, a []facts.Attempt, now time.Time) decision {
			if s := decide(c, a, now); s.do != doWait {
				return s
			}
			return decision{do: doSend, attempt: len(a) + 1}
		}
	}, "an attempt was claimed before the one before it had ended"},
	{"an abandoned attempt counts as not sent", "unanswered writes and a kill", func(d *decisions) {
		d.abandoned = func(decision) facts.Verdict { return facts.VerdictUndeliverable }
	}, "a delivery is called undeliverable of which something was sent"},
	{"giving up forgets the earlier verdict", "at least once", func(d *decisions) {
		d.earlier = func(r facts.Result, _ *facts.Result) facts.Result { return r }
	}, "a delivery is called undeliverable of which something was sent"},
	{"another's result ends the delivery, whatever it is", "a replayed stream", func(d *decisions) {
		d.standing = func(facts.Result, time.Time) disposition { return ended }
	}, "a delivery has no verdict, and nothing leads to one"},
	{"a message is acknowledged though its schedule is not stored", "schedules", func(d *decisions) {
		d.acknowledges = func(disposition, bool) bool { return true }
	}, "a delivery has no verdict, and nothing leads to one"},
	{"a confirmed claim stays in doubt", "unanswered writes and a kill",
		func(d *decisions) { d.keepsDoubt = true },
		"an attempt is called released under which something was sent"},
	{"giving up takes no claim", "a replayed stream", func(d *decisions) { d.givesUpOpen = true },
		"a delivery has no verdict, and nothing leads to one"},
	{"the policy is not asked", "sent again", func(d *decisions) {
		d.sendsAgain = func(_ sessions.Policy, r facts.Result, left time.Duration) bool {
			return sendsAgain(sessions.PolicyAtLeastOnce, r, left)
		}
	}, brokenTexts[1]},
	{"a request is honoured again by each redelivery", "sent again", func(d *decisions) {
		d.believes = func(_, _ int) bool { return true }
	}, "a delivery that was at an end was taken up again"},
	{"a rejected delivery is due", "a replayed stream", func(d *decisions) {
		d.decide = func(c sessions.Completion, a []facts.Attempt, now time.Time) decision {
			if len(a) > 0 && a[len(a)-1].Result != nil &&
				a[len(a)-1].Result.Verdict == facts.VerdictRejected {
				return decision{do: doSend, attempt: len(a) + 1}
			}
			return decide(c, a, now)
		}
	}, "a delivery that was at an end was taken up again"},
	{"the facts are never read", "a replayed stream", func(d *decisions) {
		d.neverTried = func(bool, time.Time, time.Time) bool { return true }
	}, "no end is reachable any more"},
	{"a result that comes while facts are read is missed", "at least once", func(d *decisions) {
		d.attempts = func(f facts.AttemptFacts) (attempts []facts.Attempt, err error) {
			for n := 1; ; n++ {
				c, _ := f.Claim(n)
				if c == nil {
					return attempts, nil
				}
				r, _ := f.Result(n)
				attempts = append(attempts, c.Attempt(r))
			}
		}
	}, "a delivery is called undeliverable of which something was sent"},
	{"what is no claim counts as none", "no verifyd wrote this", func(d *decisions) {
		d.attempts = func(f facts.AttemptFacts) ([]facts.Attempt, error) {
			attempts, err := f.Attempts()
			if n := slices.IndexFunc(attempts, func(a facts.Attempt) bool {
				return a.Claim.Unreadable
			}); n >= 0 {
				attempts = attempts[:n]
			}
			return attempts, err
		}
	}, "no end is reachable any more"},
	{"a hint counts as a request", "no verifyd wrote this", func(d *decisions) {
		d.believes = func(named, next int) bool { return named == next }
	}, "a delivery that was at an end was taken up again"},
	{"a request is not looked for behind what is no claim", "sent again after that", func(d *decisions) {
		d.looksAgain = false
	}, "a delivery has no verdict, and nothing leads to one"},
	{"an outcome is sent whose life is nearly over", "facts that age out", func(d *decisions) {
		d.outlives = func(*shared, sessions.Completion, time.Time) bool { return true }
	}, brokenTexts[4]},
	{"facts that have aged out count as none", "facts that age out", func(d *decisions) {
		d.outlives, d.missesEnd = func(*shared, sessions.Completion, time.Time) bool { return true }, true
	}, brokenTexts[4]},
	{"after a loss, the last fact that is left shows the end", "a damaged store", func(d *decisions) {
		d.afterLoss = func(f facts.AttemptFacts, o sessions.Outcome,
			last int) (facts.Delivery, []int, error) {
			if r, _ := f.Result(last); r != nil && !r.LeavesDue() {
				return facts.Delivery{}, nil, nil
			}
			_, closed, err := f.AfterLoss(o, last)
			return facts.Delivery{}, closed[len(closed)-1:], err
		}
	}, brokenTexts[2]},
	{"after a loss, gaps are closed, and what is due stays due", "a damaged store", func(d *decisions) {
		d.afterLoss = func(f facts.AttemptFacts, o sessions.Outcome,
			last int) (facts.Delivery, []int, error) {
			_, closed, err := f.AfterLoss(o, last)
			return facts.Delivery{}, slices.DeleteFunc(closed, func(n int) bool { return n > last }), err
		}
	}, brokenTexts[3]},
	{"a stray delivery is sent, whatever may be lost", "a power cut", func(d *decisions) {
		d.mayHaveSent = func(facts.Delivery, bool) bool { return false }
	}, brokenTexts[3]},
	{"who asked is forgotten", "requests that replace each other", func(d *decisions) {
		d.mayBeRequested = func(decision, []facts.Attempt) bool { return false }
	}, "a delivery has no verdict, and nothing leads to one"},
}

// Each check of a decision is needed: without it an invariant breaks, and the model finds it.
func TestModelFindsFaultsOfADelivery(t *testing.T) {
	worlds["requests that replace each other"] = world{
		room: 2, policy: sessions.PolicyOnce, resends: 1, schedules: true,
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			d := realDecisions()
			f.drop(&d)
			r := explore(worlds[f.world], d, prove.Size("simulation", 10_000, 3_000_000))
			if r.Cut && r.Broken == "" {
				prove.Only(t, "simulation", "it takes more states to find")
			}
			if r.Broken != f.want {
				t.Fatalf("found %q in %s, want %q\n%s", r.Broken, r, f.want, modelcheck.Diagram(r.Trace))
			}
			t.Logf("%s, after %d steps, in %s\n%s", r.Broken, len(r.Trace), r, modelcheck.Diagram(r.Trace))
		})
	}
}
