package dispatcher

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Whatever accounts take and give, in all and of one there are never more than may be, and one that has none
// gets one while any is free.
func TestSharesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, each := rapid.IntRange(1, 40).Draw(t, "total"), rapid.IntRange(1, 40).Draw(t, "each")
		s := newShare(total, each)
		held := map[string]int{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			account := strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "account"))
			switch {
			case rapid.Bool().Draw(t, "take") && s.allows(account):
				s.add(account)
				held[account]++
			case held[account] > 0:
				s.drop(account)
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
			if sum < total && !s.allows("new") {
				t.Fatalf("%d of %d are free, and an account that has none gets none", total-sum, total)
			}
		}
	})
}

// One account alone has half at most, two a third each, and so on.
func TestSharesAreFair(t *testing.T) {
	for accounts, want := range map[int]int{1: 30, 2: 20, 3: 15, 5: 10} {
		s := newShare(60, 60)
		for range 60 {
			for a := range accounts {
				if s.allows(strconv.Itoa(a)) {
					s.add(strconv.Itoa(a))
				}
			}
		}
		if s.largest() != want || s.used != accounts*want {
			t.Errorf("%d accounts: the largest has %d, all have %d; want %d each", accounts, s.largest(),
				s.used, want)
		}
	}
}

// granted returns the destination that was granted an attempt last, and has it take that.
func granted(t *testing.T, b *budget, of ...*destination) *destination {
	t.Helper()
	for _, d := range of {
		select {
		case <-d.mailbox.ready:
			if !b.acquire(d.granted[0], d) {
				t.Fatal("a grant was not honoured")
			}
			return d
		default:
		}
	}
	return nil
}

// Who waits for a place gets the next that is free, each destination of an account in its turn, and each
// account in its own. What is not used goes to the next, and a destination that has gone gets none.
func TestBudgetGrantsInTurn(t *testing.T) {
	b := newBudget(6, 2)
	var d []*destination
	for range 4 {
		d = append(d, &destination{mailbox: newMailbox()})
	}
	for _, account := range []string{"a", "a", "b", "b"} {
		if !b.acquire(account, d[0]) {
			t.Fatalf("no place for %s", account)
		}
	}
	for i, account := range []string{"a", "a", "b", "a"} {
		for range 2 { // asking again changes nothing
			if b.acquire(account, d[i]) {
				t.Fatalf("a third place for %s", account)
			}
		}
	}
	if !b.acquire("c", d[0]) || !b.isWaiting("a") || b.isWaiting("c") {
		t.Error("an account that has none waits for others")
	}
	b.release("a")
	if got := granted(t, b, d...); got != d[0] {
		t.Errorf("destination %d first", slices.Index(d, got))
	}
	b.release("b")
	if got := granted(t, b, d...); got != d[2] {
		t.Errorf("destination %d for b", slices.Index(d, got))
	}
	b.remove(d[1])
	b.release("a")
	<-d[3].mailbox.ready
	if b.acquire("a", d[0]) {
		t.Error("what is granted to one is taken by another")
	}
	b.releaseUnused(d[3])
	if got := granted(t, b, d...); got != d[0] {
		t.Errorf("what was not used went to %d", slices.Index(d, got))
	}
	for _, account := range []string{"a", "a", "b", "b", "c"} {
		b.release(account)
	}
	if b.share.used != 0 || len(b.waiting) != 0 || len(b.order) != 0 || len(b.share.of) != 0 {
		t.Errorf("%+v", b)
	}
}

// The lines of a mailbox take turns; one that may not begin holds up none, and one account's crowd leaves
// room for another's.
func TestLinesOfAMailboxTakeTurns(t *testing.T) {
	m := newMailbox()
	put := func(account string, n int) (in int) {
		for range n {
			dl := &delivery{}
			if dl.Account = account; m.put(dl, 6, 2) {
				in++
			}
		}
		return in
	}
	if a, b, c := put("a", 9), put("b", 9), put("c", 1); a != 6 || b != 2 || c != 1 {
		t.Fatalf("%d, %d and %d found room", a, b, c)
	}
	order := ""
	for range 4 {
		order += m.take(nil).Account
	}
	order += m.take(func(account string) bool { return account != "a" }).Account
	if dl := m.take(func(account string) bool { return account != "a" }); dl != nil {
		order += dl.Account
	}
	for dl := m.take(nil); dl != nil; dl = m.take(nil) {
		order += dl.Account
	}
	if order != "abcab"+"aaaa" || m.n != 0 || m.queues != nil {
		t.Errorf("%s, %d are left", order, m.n)
	}
}

// An account has so many connections to one address, whatever the names; who comes too many waits for a
// second, and gets the next that is free. Other accounts and other addresses are not concerned, and all
// addresses of an IPv6 network are one.
func TestAddressesBoundConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAddresses(2)
		one, two := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		first, ok := a.acquireNow("a", one)
		second, ok2 := a.acquireNow("a", two)
		if !ok || !ok2 {
			t.Fatal("there is no room at the beginning")
		}
		for account, to := range map[string]string{"b": "2001:db8::1", "a": "2001:db8:0:1::1"} {
			if leave, ok := a.acquireNow(account, netip.MustParseAddr(to)); !ok {
				t.Errorf("%s has no room at %s", account, to)
			} else {
				leave()
			}
		}
		if _, ok := a.acquireNow("a", one); ok {
			t.Error("a third of two")
		}
		if _, err := a.acquire(t.Context(), "a", one); err == nil {
			t.Error("a third of two, after a wait")
		}
		got := make(chan func())
		go func() {
			leave, err := a.acquire(t.Context(), "a", one)
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
