package dispatcher

import "time"

const (
	backoffLeast = time.Second
	backoffMost  = time.Minute
)

// backoff gives the pause after try number n (from 1) was not sent: evenly drawn between one second and a bound that doubles
// with each try up to a minute. random is in [0, 1).
func backoff(n int, random float64) time.Duration {
	most := backoffMost
	if n < 6 { // 2^6 s is beyond a minute
		most = backoffLeast << n
	}
	return backoffLeast + time.Duration(random*float64(most-backoffLeast))
}
