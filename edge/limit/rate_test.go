package limit

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"verifyd/edge/account"
)

// defaultRate is what config has for a key that has no rate of its own.
var defaultRate = account.Rate{Count: 20, Per: time.Second, Burst: 40}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]account.Rate{
		"20/s":      {Count: 20, Per: time.Second, Burst: 20},
		"100/m":     {Count: 100, Per: time.Minute, Burst: 100},
		"1000/h":    {Count: 1000, Per: time.Hour, Burst: 1000},
		"1/h":       {Count: 1, Per: time.Hour, Burst: 1},
		"1000000/s": {Count: 1_000_000, Per: time.Second, Burst: 1_000_000},
	} {
		got, err := ParseRate(s)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", s, got, err, want)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	for _, s := range []string{
		"", "20", "/s", "20/", "20/d", "20/S", "0/s", "-1/s", "+1/s", "1.5/s", "20 /s", "20/ s", "20/s ",
		"20/s/s", "1000001/s",
		"99999999999999999999/s", "٢٠/s", "1e3/s", "0x10/s",
	} {
		if r, err := ParseRate(s); !errors.Is(err, ErrRate) {
			t.Errorf("ParseRate(%q) = %+v, %v; want ErrRate", s, r, err)
		}
	}
}

func TestValid(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		rate account.Rate
		ok   bool
	}{
		{defaultRate, true},
		{account.Rate{Count: 1, Per: 31 * day, Burst: 1}, true},
		{account.Rate{Count: 1_000_000, Per: 1, Burst: 1}, true},
		{account.Rate{}, false},
		{account.Rate{Count: 1, Per: time.Second}, false},
		{account.Rate{Count: 1, Per: -time.Second, Burst: 1}, false},
		{account.Rate{Count: 1, Per: 32 * day, Burst: 1}, false},
		{account.Rate{Count: 1, Per: 31 * day, Burst: 2}, false},
		{account.Rate{Count: 1, Per: time.Second, Burst: 1_000_001}, false},
	} {
		if err := Valid(row.rate); (err == nil) != row.ok || err != nil && !errors.Is(err, ErrRate) {
			t.Errorf("Valid(%+v) = %v", row.rate, err)
		}
	}
}

func TestNewRatesRefusesABadStandard(t *testing.T) {
	if _, err := NewRates(account.Rate{}); !errors.Is(err, ErrRate) {
		t.Errorf("err = %v, want ErrRate", err)
	}
}

func TestWindow(t *testing.T) {
	for _, row := range []struct {
		rate account.Rate
		want time.Duration
	}{
		{defaultRate, 2 * time.Second},
		{account.Rate{Count: 20, Per: time.Second, Burst: 5}, time.Second}, // 250 ms
		{account.Rate{Count: 100, Per: time.Minute, Burst: 40}, 24 * time.Second},
		{account.Rate{Count: 1000, Per: time.Hour, Burst: 40}, 144 * time.Second},
	} {
		if got := Window(row.rate); got != row.want {
			t.Errorf("Window(%+v) = %s, want %s", row.rate, got, row.want)
		}
	}
}

func newRates(t *testing.T, r account.Rate) *Rates {
	t.Helper()
	l, err := NewRates(r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKeysDoNotShareTheirAllowance(t *testing.T) {
	l := newRates(t, account.Rate{Count: 1, Per: time.Hour, Burst: 2})
	now := l.epoch
	// no burst: three at once
	own := account.Key{ID: "own", RateLimit: account.Rate{Count: 3, Per: time.Hour}}
	for _, row := range []struct {
		key  account.Key
		want bool
	}{
		{account.Key{ID: "a"}, true},
		{account.Key{ID: "a"}, true},
		{account.Key{ID: "a"}, false},
		{account.Key{ID: "b"}, true},
		{own, true}, {own, true}, {own, true}, {own, false},
	} {
		if d := l.Allow(row.key, now); d.Allowed != row.want {
			t.Errorf("key %s: %+v, want allowed %v", row.key.ID, d, row.want)
		}
	}
	if d := l.Allow(account.Key{ID: "a"}, now.Add(time.Hour)); !d.Allowed {
		t.Errorf("an hour later: %+v", d)
	}
}

// A caller's clock may be before the limiter's start.
func TestNewKeyBeforeTheEpochHasItsWholeAllowance(t *testing.T) {
	l := newRates(t, defaultRate)
	if d := l.Allow(account.Key{ID: "a"}, l.epoch.Add(-time.Hour)); !d.Allowed ||
		d.Remaining != defaultRate.Burst-1 {
		t.Errorf("decision = %+v", d)
	}
}

func TestKeyWithoutAUsableRateHasTheStandardOne(t *testing.T) {
	l := newRates(t, defaultRate)
	for _, r := range []account.Rate{{}, {Count: -1, Per: time.Second, Burst: 1}, {Count: 1, Burst: 1}} {
		if got := l.RateOf(account.Key{RateLimit: r}); got != defaultRate {
			t.Errorf("rate of %+v = %+v, want the standard", r, got)
		}
	}
}

func TestParallelRequestsGetTheBurstAndNoMore(t *testing.T) {
	l := newRates(t, account.Rate{Count: 1, Per: time.Hour, Burst: 40})
	var wg sync.WaitGroup
	allowed := make(chan struct{}, 200)
	for range 200 {
		wg.Go(func() {
			if l.Allow(account.Key{ID: "k"}, l.epoch).Allowed {
				allowed <- struct{}{}
			}
		})
	}
	wg.Wait()
	if len(allowed) != 40 {
		t.Errorf("%d of 200 parallel requests were allowed, want 40", len(allowed))
	}
}

// Ten thousand short-lived keys must not stay in memory: a full bucket is dropped, others are kept.
func TestFullEntriesAreDropped(t *testing.T) {
	l := newRates(t, account.Rate{Count: 1, Per: time.Second, Burst: 1})
	busy := account.Key{ID: "busy", RateLimit: account.Rate{Count: 1, Per: time.Hour, Burst: 1}}
	now := l.epoch
	l.Allow(busy, now)
	for i := range 100_000 {
		now = now.Add(time.Millisecond)
		l.Allow(account.Key{ID: fmt.Sprint("key", i)}, now)
	}
	kept := len(l.states)
	// 1,000 keys are not full at any time; the table may hold twice what it kept at its last sweep.
	if limit := 128 * sweepFrom; kept > limit {
		t.Errorf("%d entries are kept, want at most %d", kept, limit)
	}
	if l.Allow(busy, now).Allowed {
		t.Error("a key that was not full was forgotten")
	}
}

func BenchmarkAllow(b *testing.B) {
	l, err := NewRates(defaultRate)
	if err != nil {
		b.Fatal(err)
	}
	key := account.Key{ID: "key_0123456789abcdef"}
	b.ReportAllocs()
	for b.Loop() {
		l.Allow(key, time.Now())
	}
}
