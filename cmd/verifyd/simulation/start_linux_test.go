//go:build (amd64 || arm64) && !race

package simulation_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"unsafe"
)

// Constants of ptrace(2) and futex(2) that package syscall lacks.
const (
	auxRandom = 25 // AT_RANDOM: the address of sixteen random bytes from the kernel

	traceSysGood   = 1          // PTRACE_O_TRACESYSGOOD: marks stops at system calls
	exitKill       = 0x100000   // PTRACE_O_EXITKILL
	getSyscallInfo = 0x420e     // PTRACE_GET_SYSCALL_INFO
	stopAtSyscall  = 0x85       // the signal of a stop at a system call
	noThread       = 0x20000000 // __WNOTHREAD: only what this thread traces

	futexWait, futexWake, futexCommand = 0, 1, 127
)

// startChosen runs a Go program with chosen random bytes, and returns when it has ended. Its threads run one
// at a time. The runtime's monitor, which preempts goroutines by the clock, does not run at all.
func startChosen(c *exec.Cmd, random [2]uint64) error {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		return err
	}
	t := threads{asleep: map[uint64][]int{}}
	err := choose(c.Process.Pid, random)
	if err == nil {
		err = t.run(c.Process.Pid)
	}
	if err != nil {
		_ = c.Process.Kill()
		return err
	}
	for _, id := range t.others {
		for err = nil; err == nil; {
			_, err = await(id) // until it has ended
		}
	}
	return nil
}

// choose sets the random bytes, before the program's first instruction.
func choose(pid int, random [2]uint64) error {
	var s syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &s, 0, nil); err != nil {
		return err
	}
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return err
	}
	for pair := range slices.Chunk(vector, 16) {
		if len(pair) == 16 && binary.NativeEndian.Uint64(pair) == auxRandom {
			at := uintptr(binary.NativeEndian.Uint64(pair[8:]))
			chosen := binary.NativeEndian.AppendUint64(nil, random[0])
			chosen = binary.NativeEndian.AppendUint64(chosen, random[1])
			if _, err := syscall.PtracePokeData(pid, at, chosen); err != nil {
				return err
			}
		}
	}
	return syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE|traceSysGood|exitKill)
}

// threads are the threads of a running program. Each runs until it waits for another one, so that the kernel
// decides neither which of them acts first nor how many of them the runtime starts.
type threads struct {
	others []int            // all but the first one; the first of these is the monitor, which stays stopped
	ready  []int            // stopped, and could continue
	asleep map[uint64][]int // by the address on which they wait
}

// call is a system call, as PTRACE_GET_SYSCALL_INFO reports it.
type call struct {
	Op     uint8 // 1: it begins; 2: it has ended
	_      [3]uint8
	_      uint32
	_      [2]uint64
	Number uint64 // set only if the call begins, as are the arguments
	Args   [6]uint64
	_      [4]uint64
}

// run runs the program until it exits.
func (t *threads) run(now int) error {
	var last call // the last call that the running thread has begun
	signal := 0
	for {
		if err := resume(now, signal); err != nil {
			return err
		}
		signal = 0
		s, err := await(now)
		if err != nil {
			return err
		}
		switch {
		case s.TrapCause() == syscall.PTRACE_EVENT_CLONE:
			err = t.started(now)
		case s.StopSignal() == stopAtSyscall:
			var c call
			if err := c.of(now); err != nil {
				return err
			}
			if c.Op != 1 {
				err = t.woken(last)
				break
			}
			last = c
			if c.Number == syscall.SYS_EXIT_GROUP {
				return syscall.PtraceDetach(now)
			}
			if c.waits(now, len(t.ready) > 0) {
				t.asleep[c.Args[0]] = append(t.asleep[c.Args[0]], now)
				if err = resume(now, 0); err == nil {
					now, err = t.next()
				}
			}
		case s.StopSignal() != syscall.SIGTRAP:
			signal = int(s.StopSignal())
		}
		if err != nil {
			return err
		}
	}
}

// started adds the thread that another one has just started.
func (t *threads) started(by int) error {
	id, err := syscall.PtraceGetEventMsg(by)
	if err != nil {
		return err
	}
	if _, err := await(int(id)); err != nil {
		return err
	}
	if len(t.others) > 0 {
		t.ready = append(t.ready, int(id))
	}
	t.others = append(t.others, int(id))
	return nil
}

// woken makes the threads ready that a call has woken. A thread that had not fallen asleep yet does not,
// since the value on which it waits has changed.
func (t *threads) woken(by call) error {
	if by.Number != syscall.SYS_FUTEX || by.Args[1]&futexCommand != futexWake {
		return nil
	}
	sleepers := t.asleep[by.Args[0]]
	for range min(int(uint32(by.Args[2])), len(sleepers)) {
		if _, err := await(sleepers[0]); err != nil {
			return err
		}
		t.ready = append(t.ready, sleepers[0])
		sleepers = sleepers[1:]
	}
	t.asleep[by.Args[0]] = sleepers
	return nil
}

// next returns the thread to run; if all are asleep, it is the first one that the clock wakes.
func (t *threads) next() (id int, err error) {
	if len(t.ready) > 0 {
		id, t.ready = t.ready[0], t.ready[1:]
		return id, nil
	}
	var s syscall.WaitStatus
	if id, err = syscall.Wait4(-1, &s, syscall.WALL|noThread, nil); err != nil {
		return 0, err
	}
	if !s.Stopped() {
		return 0, errors.New("it ended, with all of its threads asleep")
	}
	for on, all := range t.asleep {
		t.asleep[on] = slices.DeleteFunc(all, func(one int) bool { return one == id })
	}
	return id, nil
}

// waits reports whether a call that a thread is about to make waits for another thread, or for the clock
// while others could continue.
func (c *call) waits(thread int, others bool) bool {
	switch {
	case c.Number == syscall.SYS_FUTEX && c.Args[1]&futexCommand == futexWait:
		word := make([]byte, 4)
		_, err := syscall.PtracePeekData(thread, uintptr(c.Args[0]), word)
		return err == nil && binary.NativeEndian.Uint32(word) == uint32(c.Args[2])
	case c.Number == syscall.SYS_EPOLL_PWAIT:
		return others && c.Args[3] != 0
	}
	return false
}

// of reads the call at which a thread has stopped.
func (c *call) of(thread int) error {
	_, _, err := syscall.Syscall6(syscall.SYS_PTRACE, getSyscallInfo, uintptr(thread), unsafe.Sizeof(*c),
		uintptr(unsafe.Pointer(c)), 0, 0)
	if err == syscall.EIO {
		return fmt.Errorf("the kernel does not say which system call it is: %w", errors.ErrUnsupported)
	}
	if err != 0 {
		return err
	}
	return nil
}

func resume(thread, signal int) error { return syscall.PtraceSyscall(thread, signal) }

// await waits until a thread stops.
func await(thread int) (s syscall.WaitStatus, err error) {
	if _, err = syscall.Wait4(thread, &s, syscall.WALL, nil); err != nil {
		return s, err
	}
	if !s.Stopped() {
		return s, fmt.Errorf("it ended with status %#x", uint32(s))
	}
	return s, nil
}
