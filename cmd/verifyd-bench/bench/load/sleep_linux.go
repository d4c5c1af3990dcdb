package load

import (
	"syscall"
	"time"
)

// preciseSleep sleeps in the kernel, which wakes up within some 60 µs. The runtime's own timers wake an idle
// process at whole milliseconds, which would be most of what a schedule measures.
func preciseSleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal may wake it early: callers check the clock again
}
