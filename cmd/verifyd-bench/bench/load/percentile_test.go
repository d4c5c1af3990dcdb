package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, row := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0, 7},
		{[]time.Duration{7}, 0.99, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0.50, 50},
		{hundred, 0.99, 99},
		{hundred, 0.991, 100},
		{hundred, 1, 100},
	} {
		if got := Percentile(row.sorted, row.p); got != row.want {
			t.Errorf("Percentile(%v, %g) = %d, want %d", row.sorted, row.p, got, row.want)
		}
	}
}

// What nearest rank means: at least a share p of the values do not exceed it, and for any smaller value of
// them that is not so.
func TestPercentileIsTheNearestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 50).Draw(t, "value"))
		}), 1, 200).Draw(t, "values")
		p := float64(rapid.IntRange(1, 100).Draw(t, "percent")) / 100
		slices.Sort(values)
		got := Percentile(values, p)
		atMost := func(v time.Duration) (n int) {
			for _, x := range values {
				if x <= v {
					n++
				}
			}
			return n
		}
		need := p * float64(len(values))
		if float64(atMost(got)) < need-1e-9 {
			t.Fatalf("only %d of %d values are at most %d", atMost(got), len(values), got)
		}
		if float64(atMost(got-1)) >= need+1e-9 {
			t.Fatalf("%d values are at most %d already", atMost(got-1), got-1)
		}
	})
}
