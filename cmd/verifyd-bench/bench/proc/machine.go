package proc

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU time in /proc on every architecture (USER_HZ).
const ticksPerSecond = 100

// Others measures what other programs use of the machine: it explains figures that are worse than before.
type Others struct {
	began     time.Time
	busy, own time.Duration
}

// WatchOthers begins a measurement.
func WatchOthers() Others {
	busy, own := busyTimes()
	return Others{began: time.Now(), busy: busy, own: own}
}

// Cores returns how many cores others have used since, or 0 if the system does not report it.
func (o Others) Cores() float64 {
	busy, own := busyTimes()
	if o.busy < 0 || busy < 0 {
		return 0
	}
	return max(0, (busy-o.busy-(own-o.own)).Seconds()/time.Since(o.began).Seconds())
}

// busyTimes returns the CPU time of the whole machine, and that of this process and of its children that have
// ended; negative if the system does not report it.
func busyTimes() (busy, own time.Duration) {
	all, err := os.ReadFile("/proc/stat")
	mine, merr := os.ReadFile("/proc/self/stat")
	line, _, _ := strings.Cut(string(all), "\n")
	fields := strings.Fields(line)
	if runtime.GOOS != "linux" || err != nil || merr != nil || len(fields) < 8 {
		return -1, -1
	}
	// proc_stat(5): user, nice, system, idle, iowait, irq, softirq.
	for _, i := range []int{1, 2, 3, 6, 7} {
		ticks, _ := strconv.ParseInt(fields[i], 10, 64) // all of them are numbers
		busy += time.Duration(ticks) * (time.Second / ticksPerSecond)
	}
	return busy, statTime(mine, 4)
}

// statTime returns the sum of the first n times in /proc/PID/stat (proc_pid_stat(5)): utime, stime, cutime,
// cstime. It is negative if they are missing.
func statTime(stat []byte, times int) (total time.Duration) {
	// The second field is the program's name in parentheses and may hold anything; utime is field 14.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 11+times {
		return -1
	}
	for _, text := range fields[11 : 11+times] {
		ticks, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return -1
		}
		total += time.Duration(ticks) * (time.Second / ticksPerSecond)
	}
	return total
}
