package dispatcher

import "time"

const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// backoff returns the pause after try number n (from 1) was not sent: evenly drawn between one second and a
// bound that doubles with each try up to a minute. random is in [0, 1).
func backoff(n int, random float64) time.Duration {
	limit := maxBackoff
	if n < 6 { // 2^6 s is beyond a minute
		limit = minBackoff << n
	}
	return minBackoff + time.Duration(random*float64(limit-minBackoff))
}
