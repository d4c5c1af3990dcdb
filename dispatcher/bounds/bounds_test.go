package bounds

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Whatever accounts acquire and release, the total and each account stay within their bounds, and an account
// without any gets one while any is free.
func TestSharesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, each := rapid.IntRange(1, 40).Draw(t, "total"), rapid.IntRange(1, 40).Draw(t, "each")
		s := NewShare(total, each)
		held := map[string]int{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			account := strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "account"))
			switch {
			case rapid.Bool().Draw(t, "take") && s.Allows(account):
				s.Add(account)
				held[account]++
			case held[account] > 0:
				s.Drop(account)
				held[account]--
			}
			sum := 0
			for _, n := range held {
				sum += n
				if n > each {
					t.Fatalf("%d of an account, of at most %d", n, each)
				}
			}
			if sum > total || sum != s.used {
				t.Fatalf("%d of %d, counted as %d", sum, total, s.used)
			}
			if sum < total && !s.Allows("new") {
				t.Fatalf("%d of %d are free, and an account that has none gets none", total-sum, total)
			}
		}
	})
}

// A single account has at most half, two a third each, and so on.
func TestSharesAreFair(t *testing.T) {
	for accounts, want := range map[int]int{1: 30, 2: 20, 3: 15, 5: 10} {
		s := NewShare(60, 60)
		for range 60 {
			for a := range accounts {
				if s.Allows(strconv.Itoa(a)) {
					s.Add(strconv.Itoa(a))
				}
			}
		}
		if s.largest() != want || s.used != accounts*want {
			t.Errorf("%d accounts: the largest has %d, all have %d; want %d each", accounts, s.largest(),
				s.used, want)
		}
	}
}

// waiter waits for a slot.
type waiter struct {
	Waiter

	ready chan struct{}
}

// granted returns the waiter that was granted an attempt last, and makes it take the attempt.
func granted(t *testing.T, b *Budget, of ...*waiter) *waiter {
	t.Helper()
	for _, w := range of {
		select {
		case <-w.ready:
			if !b.Acquire(w.granted[0], &w.Waiter) {
				t.Fatal("a grant was not honoured")
			}
			return w
		default:
		}
	}
	return nil
}

// A waiter gets the next free slot, in turn within its account, and accounts in turn. An unused slot goes to
// the next, and a waiter that has left gets none.
func TestBudgetGrantsInTurn(t *testing.T) {
	b := NewBudget(6, 2)
	var d []*waiter
	for range 4 {
		ready := make(chan struct{}, 1)
		d = append(d, &waiter{Waiter: Waiter{Ready: ready}, ready: ready})
	}
	for _, account := range []string{"a", "a", "b", "b"} {
		if !b.Acquire(account, &d[0].Waiter) {
			t.Fatalf("no place for %s", account)
		}
	}
	for i, account := range []string{"a", "a", "b", "a"} {
		for range 2 { // asking again changes nothing
			if b.Acquire(account, &d[i].Waiter) {
				t.Fatalf("a third place for %s", account)
			}
		}
	}
	if !b.Acquire("c", &d[0].Waiter) || !b.IsWaiting("a") || b.IsWaiting("c") {
		t.Error("an account that has none waits for others")
	}
	b.Release("a")
	if got := granted(t, b, d...); got != d[0] {
		t.Errorf("destination %d first", slices.Index(d, got))
	}
	b.Release("b")
	if got := granted(t, b, d...); got != d[2] {
		t.Errorf("destination %d for b", slices.Index(d, got))
	}
	b.Remove(&d[1].Waiter)
	b.Release("a")
	<-d[3].ready
	if b.Acquire("a", &d[0].Waiter) {
		t.Error("what is granted to one is taken by another")
	}
	b.ReleaseUnused(&d[3].Waiter)
	if got := granted(t, b, d...); got != d[0] {
		t.Errorf("what was not used went to %d", slices.Index(d, got))
	}
	for _, account := range []string{"a", "a", "b", "b", "c"} {
		b.Release(account)
	}
	if b.share.used != 0 || len(b.waiting) != 0 || len(b.order) != 0 || len(b.share.of) != 0 {
		t.Errorf("%+v", b)
	}
}

// The queues take turns; one that may not begin delays none, and many deliveries of one account leave space
// for another's.
func TestQueuesTakeTurns(t *testing.T) {
	q := NewQueues[string](16, make(chan struct{}, 1))
	put := func(account string, n int) (in int) {
		for range n {
			if q.Put(account, account, 6, 2) {
				in++
			}
		}
		return in
	}
	if a, b, c := put("a", 9), put("b", 9), put("c", 1); a != 6 || b != 2 || c != 1 {
		t.Fatalf("%d, %d and %d found room", a, b, c)
	}
	order := ""
	take := func(allowed func(account string) bool) bool {
		one, ok := q.Take(allowed)
		order += one
		return ok
	}
	for range 4 {
		take(nil)
	}
	for range 2 {
		take(func(account string) bool { return account != "a" })
	}
	for take(nil) {
		continue
	}
	if order != "abcab"+"aaaa" || q.n != 0 || q.queues != nil {
		t.Errorf("%s, %d are left", order, q.n)
	}
}

// An account has so many connections to one address, whatever the names; a dial beyond that waits for a
// second, and gets the next that is free. Other accounts and other addresses are not affected, and all
// addresses of an IPv6 network are one.
func TestAddressesBoundConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAddresses(2)
		one, two := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		first, ok := a.AcquireNow("a", one)
		second, ok2 := a.AcquireNow("a", two)
		if !ok || !ok2 {
			t.Fatal("there is no room at the beginning")
		}
		for account, to := range map[string]string{"b": "2001:db8::1", "a": "2001:db8:0:1::1"} {
			if leave, ok := a.AcquireNow(account, netip.MustParseAddr(to)); !ok {
				t.Errorf("%s has no room at %s", account, to)
			} else {
				leave()
			}
		}
		if _, ok := a.AcquireNow("a", one); ok {
			t.Error("a third of two")
		}
		if _, err := a.Acquire(t.Context(), "a", one); err == nil {
			t.Error("a third of two, after a wait")
		}
		got := make(chan func())
		go func() {
			leave, err := a.Acquire(t.Context(), "a", one)
			if err != nil {
				t.Error(err)
			}
			got <- leave
		}()
		synctest.Wait()
		first()
		first() // a repeat is harmless
		third := <-got
		second()
		third()
		if len(a.occupied) != 0 {
			t.Errorf("%d addresses are remembered", len(a.occupied))
		}
	})
}
