package load

import (
	"math"
	"time"
)

// Percentile returns the smallest value that at least p (0 to 1) of the sorted values do not exceed: the
// nearest-rank definition, so that it is always a measured value. It is 0 if there are none.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
