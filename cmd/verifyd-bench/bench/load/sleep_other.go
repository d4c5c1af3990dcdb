//go:build !linux

package load

import "time"

// preciseSleep is as precise as the runtime's timers.
func preciseSleep(d time.Duration) { time.Sleep(d) }
