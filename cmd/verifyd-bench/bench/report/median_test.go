package report

import (
	"slices"
	"testing"
)

func TestMedianLeavesItsValuesAlone(t *testing.T) {
	for _, row := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2},
		{[]float64{4, 9, 1, 2}, 3}} {
		before := slices.Clone(row.values)
		if got := medianFloat(row.values); got != row.want || !slices.Equal(before, row.values) {
			t.Errorf("median of %v = %g, want %g; afterwards %v", before, got, row.want, row.values)
		}
	}
}
