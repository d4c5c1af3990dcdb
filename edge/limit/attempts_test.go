package limit

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"verifyd/edge/account"
)

func newAttempts(tb testing.TB) *Attempts {
	tb.Helper()
	a, err := NewAttempts(DefaultSignIns, prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// few counts how many requests in a row are allowed before one has to wait, and returns that wait.
func few(ask func() time.Duration) (n int, wait time.Duration) {
	for ; n < 100_000; n++ {
		if wait = ask(); wait > 0 {
			return n, wait
		}
	}
	return n, 0
}

func TestAttemptsOfAnAddress(t *testing.T) {
	home, now := netip.MustParseAddr("192.0.2.1"), time.Now().Add(time.Minute)
	for name, tc := range map[string]struct {
		ask  func(*Attempts) time.Duration
		n    int
		wait time.Duration
	}{
		"presses, each of another session": {func() func(*Attempts) time.Duration {
			session := netip.IPv6Unspecified()
			return func(a *Attempts) time.Duration {
				session = session.Next()
				return a.Start(TripSignIn, home, session.String(), now)
			}
		}(), 600, 100 * time.Millisecond},
		"returns, each of another session": {func() func(*Attempts) time.Duration {
			session := netip.IPv6Unspecified()
			return func(a *Attempts) time.Duration {
				session = session.Next()
				return a.Return(TripSignIn, home, session.String(), now)
			}
		}(), 120, 2 * time.Second},
		"presses of one session": {
			func(a *Attempts) time.Duration { return a.Start(TripSignIn, home, "s", now) }, 20,
			30 * time.Second,
		},
		"returns of one session": {
			func(a *Attempts) time.Duration { return a.Return(TripSignIn, home, "s", now) }, 20,
			30 * time.Second,
		},
		"logins": {
			func(a *Attempts) time.Duration { return a.Start(TripDashboard, home, "", now) }, 600,
			time.Second,
		},
		"returns of logins": {
			func(a *Attempts) time.Duration { return a.Return(TripDashboard, home, "", now) }, 120,
			2 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttempts(t)
			if n, wait := few(func() time.Duration { return tc.ask(a) }); n != tc.n || wait != tc.wait {
				t.Errorf("%d at once, then %s; want %d, then %s", n, wait, tc.n, tc.wait)
			}
		})
	}
}

// The units of one trip, step or address do not affect others, and a refusal by one costs nothing of the
// other.
func TestAttemptsAreKeptApart(t *testing.T) {
	a, now := newAttempts(t), time.Now().Add(time.Minute)
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	few(func() time.Duration { return a.Start(TripSignIn, one, "s", now) }) // 20 of the address's 600
	few(func() time.Duration { return a.Start(TripDashboard, one, "", now) })
	if n, _ := few(func() time.Duration { return a.Return(TripSignIn, one, "s", now) }); n != 20 {
		t.Errorf("%d returns of the session, want 20", n)
	}
	if n, _ := few(func() time.Duration { return a.Start(TripDashboard, two, "", now) }); n != 600 {
		t.Errorf("%d logins of another address, want 600", n)
	}
	if a.Start(TripSignIn, two, "s", now) == 0 {
		t.Error("a session has another allowance at another address")
	}
	session := netip.IPv6Unspecified()
	left, _ := few(func() time.Duration {
		session = session.Next()
		return a.Start(TripSignIn, one, session.String(), now)
	})
	if left != 580 {
		t.Errorf("%d presses are left to the address, want 580: refused ones cost nothing", left)
	}
	if got := testutil.ToFloat64(a.refused.WithLabelValues("sign_in", "start", "session")); got != 2 {
		t.Errorf("%v presses are counted as refused for their session, want 2", got)
	}
}

// Of attempts that succeed only those in progress count, however many there are.
func TestReturnsThatAreVouchedForCostNothing(t *testing.T) {
	a, now := newAttempts(t), time.Now().Add(time.Minute)
	for _, address := range []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"),
	} {
		for i := range 1000 {
			if wait := a.Return(TripDashboard, address, "", now); wait > 0 {
				t.Fatalf("return %d has to wait %s", i, wait)
			}
			a.Vouched(TripDashboard, address)
		}
		if n, _ := few(func() time.Duration { return a.Return(TripDashboard, address, "", now) }); n != 120 {
			t.Errorf("%d junk returns, want 120", n)
		}
	}
}

// A client with a network of 64 bits has one allowance, and one with a site of 48 bits has eight.
func TestAttemptsOfManyIPv6Networks(t *testing.T) {
	a, now := newAttempts(t), time.Now().Add(time.Minute)
	from := func(address netip.Addr) int {
		n, _ := few(func() time.Duration { return a.Return(TripDashboard, address, "", now) })
		return n
	}
	bytes, all := netip.MustParseAddr("2001:db8:1::1").As16(), 0
	for i := range 200 {
		bytes[7], bytes[15] = byte(i), 1
		all += from(netip.AddrFrom16(bytes))
		bytes[15] = 2
		if n := from(netip.AddrFrom16(bytes)); n != 0 {
			t.Fatalf("%d more from the same network", n)
		}
	}
	if all != 8*120 {
		t.Errorf("200 networks of one site had %d, want %d", all, 8*120)
	}
	if n := from(netip.MustParseAddr("2001:db8:2::1")); n != 120 {
		t.Errorf("another site's network had %d, want 120", n)
	}
}

// Memory is bounded, whatever the addresses; and a flood of others does not make it forget an address that
// has used up its units.
func TestAttemptsAreBoundedInMemory(t *testing.T) {
	a, now := newAttempts(t), time.Now().Add(time.Minute)
	thief := netip.MustParseAddr("192.0.2.1")
	few(func() time.Duration { return a.Return(TripDashboard, thief, "", now) })
	before := heap()
	bytes := netip.MustParseAddr("2001::1").As16()
	for i := range 12 * maxAddresses {
		bytes[3], bytes[4], bytes[5] = byte(i), byte(i>>8), byte(i>>16)
		if wait := a.Return(TripDashboard, netip.AddrFrom16(bytes), "", now); wait > 0 {
			t.Fatalf("address %d has to wait %s", i, wait)
		}
	}
	b := a.returns[TripDashboard].address
	if n, m := len(b.networks.states), len(b.sites.states); n > maxAddresses || m > maxAddresses {
		t.Errorf("%d networks and %d sites are remembered, want at most %d", n, m, maxAddresses)
	}
	if more := heap() - before; more > 2*6<<20 {
		t.Errorf("two full tables take %d KiB, want at most 12 MiB", more>>10)
	}
	if a.Return(TripDashboard, thief, "", now) == 0 {
		t.Error("the address that had used up its allowance was forgotten")
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAttemptsRefuseABadRate(t *testing.T) {
	if _, err := NewAttempts(account.Rate{}, nil); err == nil {
		t.Error("a rate of nothing is taken")
	}
}

func BenchmarkAttemptsReturn(b *testing.B) {
	a, now := newAttempts(b), time.Now()
	home := netip.MustParseAddr("2001:db8::1")
	for b.Loop() {
		a.Return(TripSignIn, home, "s", now)
		a.Vouched(TripSignIn, home)
	}
}

func TestAddressesOfOneSite(t *testing.T) {
	of := func(s string) string { return SiteOf(netip.MustParseAddr(s)) }
	if of("2001:db8:1:2::3") != of("2001:db8:1:ffff::9") || of("2001:db8:1::3") == of("2001:db8:2::3") ||
		of("192.0.2.1") == of("192.0.2.2") || of("192.0.2.1") != of("::ffff:192.0.2.1") {
		t.Errorf("%s, %s", of("2001:db8:1:2::3"), of("192.0.2.1"))
	}
}
