package bench

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value that at least p (0 to 1) of the sorted values do not exceed: the
// nearest-rank definition, which always is a value that was measured. It is 0 where there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the middle value, or the mean of the two in the middle; 0 where there are none. It leaves
// values as they are.
func median[T cmp.Ordered](values []T, mean func(a, b T) T) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return mean(sorted[half-1], sorted[half])
}

func medianFloat(values []float64) float64 {
	return median(values, func(a, b float64) float64 { return (a + b) / 2 })
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
