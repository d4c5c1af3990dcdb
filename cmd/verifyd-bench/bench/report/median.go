package report

import (
	"cmp"
	"slices"
	"time"
)

// median returns the middle value, or the mean of the two in the middle; 0 if there are none. It leaves
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

// Milliseconds returns a duration as figures show it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
