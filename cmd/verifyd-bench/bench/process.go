package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopWithin is how long a child may take to stop by itself before it is killed: a dispatcher's drain
	// takes the longest.
	stopWithin = 30 * time.Second
	// tailBytes is how much of a child's log is kept, to be shown should it fail.
	tailBytes = 4 << 10
	// ticksPerSecond is the unit of CPU time in /proc on every architecture (USER_HZ).
	ticksPerSecond = 100
)

// process is a child. What it writes to standard error is kept for the case that it fails.
type process struct {
	cmd    *exec.Cmd
	log    *tail
	exited chan struct{} // closed when it is gone
	began  time.Time
}

// startProcess runs a binary as child. Variables of verifyd in this process's environment do not reach it:
// what is measured is what the bench says.
func (o Options) startProcess(file string, args, env []string, stdin io.Reader, stdout io.Writer) (*process,
	error) {
	p := &process{cmd: exec.Command(file, args...), log: &tail{}, //nolint:gosec // this binary, or the caller's verifyd
		exited: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "VERIFYD_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, o.Env...), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, p.log
	p.cmd.SysProcAttr = notOrphaned()
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s %s: %w", file, args[0], err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is told by its log
		close(p.exited)
	}()
	return p, nil
}

// stop lets the child end by itself.
func (p *process) stop() {
	if p.cmd.Process.Signal(syscall.SIGTERM) == nil {
		select {
		case <-p.exited:
			return
		case <-time.After(stopWithin):
		}
	}
	p.kill()
}

// kill ends the child at once, as kill -9 does, and waits until it is gone. A repeat is harmless.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// failure tells that the child has ended although nobody wanted it to.
func (p *process) failure() error {
	return fmt.Errorf("the child ended by itself: %s", strings.TrimSpace(p.log.String()))
}

// cpuTime returns the CPU time that the process has used so far, or a negative time where the system does not
// tell.
func (p *process) cpuTime() time.Duration {
	b, err := p.proc("stat")
	if err != nil {
		return -1
	}
	return statTime(b, 2) // utime, stime
}

// statTime adds up as many of the times of a /proc/PID/stat (proc_pid_stat(5)): utime, stime, cutime, cstime.
// It is negative where they do not stand there.
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

// others watches what programs beside the bench use of the machine: it explains figures that are worse than
// they were.
type others struct {
	began     time.Time
	busy, own time.Duration
}

func watchOthers() others {
	busy, own := busyTimes()
	return others{began: time.Now(), busy: busy, own: own}
}

// cores returns how many cores others have used since, or 0 where the system does not tell.
func (o others) cores() float64 {
	busy, own := busyTimes()
	if o.busy < 0 || busy < 0 {
		return 0
	}
	return max(0, (busy-o.busy-(own-o.own)).Seconds()/time.Since(o.began).Seconds())
}

// busyTimes returns the CPU time of the whole machine, and that of this process and of its children that have
// ended; negative where the system does not tell.
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

// The lines of /proc/PID/status that say how much memory is resident now, and at most so far.
const (
	residentNow  = "VmRSS:"
	residentPeak = "VmHWM:"
)

// memory returns a figure of the process in bytes, or 0 where the system does not tell.
func (p *process) memory(line string) int64 {
	b, err := p.proc("status")
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(l, line); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// resetPeak begins a new peak (proc_pid_clear_refs(5)). Where that is not allowed the peak is the one since
// the start.
func (p *process) resetPeak() {
	if runtime.GOOS == "linux" {
		_ = os.WriteFile(p.procPath("clear_refs"), []byte("5"), 0o600)
	}
}

func (p *process) procPath(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), name)
}

func (p *process) proc(name string) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.ErrUnsupported
	}
	return os.ReadFile(p.procPath(name))
}

// usage is what a process uses between two moments.
type usage struct {
	p       *process
	cpu     time.Duration // at the beginning
	profile *profile      // nil: none is taken
}

func (p *process) measure() usage {
	p.resetPeak()
	return usage{p: p, cpu: p.cpuTime()}
}

// into enters what was used since the beginning.
func (u usage) into(s *sample) {
	s.cpu = -1
	if now := u.p.cpuTime(); now >= 0 && u.cpu >= 0 {
		s.cpu = now - u.cpu
	}
	s.peak = u.p.memory(residentPeak)
	u.profile.keep(s)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
