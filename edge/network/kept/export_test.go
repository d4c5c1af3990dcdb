package kept

import "time"

// The bounds, for tests outside the package.
const (
	IdleTime       = idleTime
	MaxAge         = maxAge
	MaxIdle        = maxIdle
	MaxIdlePerHost = maxIdlePerHost
	MaxHeaderBytes = maxHeaderBytes
)

// KeepFor sets how long idle connections live: most tests must also pass on a machine that stalls for
// seconds.
func KeepFor(t *Transport, d time.Duration) { t.idleTime = d }

// Idle returns how many connections to an address are kept, or to all if it is empty.
func Idle(t *Transport, address string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for to, idle := range t.idle {
		if address == "" || to.address == address {
			n += len(idle)
		}
	}
	if address == "" && n != t.count {
		panic("the connections are counted wrong")
	}
	return n
}
