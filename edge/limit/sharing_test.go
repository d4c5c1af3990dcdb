package limit

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/natsconf/natstest"
)

func mustRates(t testing.TB, r account.Rate) *Rates {
	t.Helper()
	l, err := NewRates(r)
	if err != nil {
		t.Fatal(err)
	}
	l.share()
	return l
}

// exchange reports to all edges what the others allowed.
func exchange(edges []*Rates, now time.Time) {
	spent := make([]map[string]Spending, len(edges))
	for i, e := range edges {
		spent[i] = e.takeSpent()
	}
	for i, e := range edges {
		for j, s := range spent {
			for key, sp := range s {
				if i != j {
					e.addSpent(key, sp.Worth, now)
				}
			}
		}
	}
}

// Several edges under more load than the rate allows: in any 10 s they allow what one edge would, within a
// tenth.
func TestEdgesShareARate(t *testing.T) {
	key := account.Key{ID: "key_a"}
	const window, step = 10 * time.Second, sharingGap
	for _, n := range []int{2, 5} {
		for _, rate := range []account.Rate{
			defaultRate, {Count: 100, Per: time.Second, Burst: 1}, {Count: 100, Per: time.Minute, Burst: 100},
		} {
			t.Run(fmt.Sprintf("%d edges, %d per %s", n, rate.Count, rate.Per), func(t *testing.T) {
				edges := make([]*Rates, n)
				for i := range edges {
					edges[i] = mustRates(t, rate)
				}
				began := edges[0].epoch.Add(time.Minute)
				var allowed []time.Duration
				for at := time.Duration(0); at < 3*window; at += step {
					for _, e := range edges {
						if e.Allow(key, began.Add(at)).Allowed {
							allowed = append(allowed, at)
						}
					}
					exchange(edges, began.Add(at))
				}
				limit := float64(rate.Burst) + float64(window)/float64(rate.Per)*float64(rate.Count)
				for i, from := range allowed {
					count := 0
					for _, at := range allowed[i:] {
						if at < from+window {
							count++
						}
					}
					if float64(count) > 1.1*limit+1 {
						t.Fatalf("%d sessions in the 10 s from %s, want at most %.0f", count, from, limit)
					}
				}
				if all := float64(len(allowed)); all < 0.9*(limit+
					2*float64(window)/float64(rate.Per)*float64(rate.Count)) {
					t.Errorf("only %.0f sessions in 30 s: the edges hold each other up", all)
				}
			})
		}
	}
}

// With what others spent, the reported wait is right, also where the clock shows days before the start.
func TestDebtIsReportedAndPaid(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, -8 * 24 * time.Hour} {
		debtIsReportedAndPaid(t, after)
	}
}

func debtIsReportedAndPaid(t *testing.T, after time.Duration) {
	t.Helper()
	rate := account.Rate{Count: 1, Per: time.Second, Burst: 2}
	l := mustRates(t, rate)
	key, now := account.Key{ID: "k"}, l.epoch.Add(after)
	l.addSpent("k", 5*time.Second, now) // two at once, and three beyond
	d := l.Allow(key, now)
	if d.Allowed || d.RetryAfter != 4*time.Second || d.ResetAfter != 5*time.Second {
		t.Errorf("decision = %+v, want a wait of 4s, and 5s until all is back", d)
	}
	if l.Allow(key, now.Add(4*time.Second-1)).Allowed {
		t.Error("allowed before the wait was over")
	}
	if !l.Allow(key, now.Add(4*time.Second)).Allowed {
		t.Error("refused after the wait")
	}
	l.addSpent("k", time.Hour, now.Add(4*time.Second))
	if d := l.Allow(key, now.Add(4*time.Second)); d.RetryAfter != maxDebt+time.Second {
		t.Errorf("after an absurd message the wait is %s", d.RetryAfter)
	}
}

// What one edge allows is counted by the other over a real connection, and no edge counts its own twice.
func TestSharingOverNATS(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	rate := account.Rate{Count: 1, Per: time.Hour, Burst: 10}
	one, two := mustRates(t, rate), mustRates(t, rate)
	key := account.Key{ID: "key_a"}
	subscribed := conn.NC.NumSubscriptions() + 2
	for _, l := range []*Rates{one, two} {
		natstest.Serve(t, NewSharing(l, conn, nil))
	}
	natstest.Await(t, "both listen: what is told before is lost", func() bool {
		return conn.NC.NumSubscriptions() >= subscribed
	})
	for n := 0; ; n++ {
		if !one.Allow(key, time.Now()).Allowed {
			break
		}
		if n == 10 {
			t.Fatal("one edge gave more than its burst")
		}
	}
	// a try would cost it a session, so its state is read
	natstest.Await(t, "the other edge is told all the news", func() bool {
		two.mu.Lock()
		defer two.mu.Unlock()
		return time.Duration(two.states[key.ID]) >= 10*time.Hour
	})
	if two.Allow(key, time.Now()).Allowed {
		t.Error("the other edge allows what the first has given already")
	}
	if d := one.Allow(key, time.Now()); d.RetryAfter > time.Hour {
		t.Errorf("an edge counts its own spending twice: %+v", d)
	}
}

func TestFailuresByAddress(t *testing.T) {
	f, err := NewFailures(account.Rate{Count: 10, Per: time.Minute, Burst: 2})
	if err != nil {
		t.Fatal(err)
	}
	now := f.epoch.Add(time.Minute)
	fail := func(address string) bool { return f.Fail(netip.MustParseAddr(address), now).Allowed }
	for i, row := range []struct {
		address string
		allowed bool
	}{
		{"192.0.2.1", true}, {"192.0.2.1", true}, {"192.0.2.1", false}, {"::ffff:192.0.2.1", false},
		{"192.0.2.2", true},
		{"2001:db8::1", true}, {"2001:db8::ffff:1", true}, {"2001:db8:0:0:1::", false},
		{"2001:db8:0:1::", true},
	} {
		if got := fail(row.address); got != row.allowed {
			t.Errorf("%d: %s allowed %v, want %v", i, row.address, got, row.allowed)
		}
	}
	now = now.Add(6 * time.Second)
	if !fail("192.0.2.1") || fail("192.0.2.1") {
		t.Error("after 6 s one more is allowed, and no other")
	}
}

func TestFailuresAreBounded(t *testing.T) {
	f, err := NewFailures(account.Rate{Count: 1, Per: time.Hour, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	now := f.epoch.Add(time.Minute)
	address := netip.MustParseAddr("10.0.0.0")
	for range maxFailures + 1000 {
		f.Fail(address, now)
		address = address.Next()
	}
	if n := len(f.states); n > maxFailures {
		t.Errorf("%d addresses are remembered, want at most %d", n, maxFailures)
	}
	if !f.Fail(address, now).Allowed || f.Fail(address, now).Allowed {
		t.Error("the newest address is not limited")
	}
}

// Freeing space costs time in proportion to the addresses: a client with ever new ones must not cause that
// with every failure.
func TestFailuresMakeRoomForMany(t *testing.T) {
	f, err := NewFailures(account.Rate{Count: 1, Per: time.Hour, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	address := netip.MustParseAddr("10.0.0.0")
	for range maxFailures + 1 {
		f.Fail(address, now)
		address = address.Next()
	}
	if room := maxFailures - len(f.states); room < maxFailures/16 {
		t.Errorf("there is room for %d addresses before all are looked through again", room)
	}
}
