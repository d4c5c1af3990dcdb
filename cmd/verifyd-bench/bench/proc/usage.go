package proc

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process uses from an instant on.
type Usage struct {
	Profile *Profile // of that time; nil: no profile

	p   *Process
	cpu time.Duration // at the beginning
}

// Measure begins a measurement of the process. A new peak begins too, if the system allows it.
func (p *Process) Measure() Usage {
	p.resetPeak()
	return Usage{p: p, cpu: p.cpuTime()}
}

// SinceStart is a measurement that began with the process.
func (p *Process) SinceStart() Usage { return Usage{p: p} }

// Used returns the CPU time that was used since the beginning, and the peak of resident memory, in bytes. If
// the system does not report them, the time is negative and the memory 0.
func (u Usage) Used() (cpu time.Duration, peak int64) {
	cpu = -1
	if now := u.p.cpuTime(); now >= 0 && u.cpu >= 0 {
		cpu = now - u.cpu
	}
	return cpu, u.p.Peak()
}

// cpuTime returns the CPU time that the process has used so far; negative if the system does not report it.
func (p *Process) cpuTime() time.Duration {
	b, err := p.proc("stat")
	if err != nil {
		return -1
	}
	return statTime(b, 2) // utime, stime
}

// Resident returns how many bytes of the process are resident in memory; 0 if the system does not report it.
func (p *Process) Resident() int64 { return p.memory("VmRSS:") }

// Peak returns the maximum since the start, or since the last Measure.
func (p *Process) Peak() int64 { return p.memory("VmHWM:") }

// memory returns the figure of a line of /proc/PID/status.
func (p *Process) memory(line string) int64 {
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

// Descriptors returns how many files and connections the process has open.
func (p *Process) Descriptors() (int, error) {
	if runtime.GOOS != "linux" {
		return 0, errors.ErrUnsupported
	}
	open, err := os.ReadDir(p.procPath("fd"))
	return len(open), err
}

// resetPeak begins a new peak (proc_pid_clear_refs(5)). If that is not allowed the peak is the one since the
// start.
func (p *Process) resetPeak() {
	if runtime.GOOS == "linux" {
		_ = os.WriteFile(p.procPath("clear_refs"), []byte("5"), 0o600)
	}
}

func (p *Process) procPath(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), name)
}

func (p *Process) proc(name string) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.ErrUnsupported
	}
	return os.ReadFile(p.procPath(name))
}
