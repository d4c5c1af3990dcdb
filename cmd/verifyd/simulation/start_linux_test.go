//go:build (amd64 || arm64) && !race

package simulation_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
)

const (
	auxRandom = 25       // AT_RANDOM: where the kernel has put sixteen random bytes
	exitKill  = 0x100000 // PTRACE_O_EXITKILL
)

// startChosen starts a program of Go with random bytes that are chosen, and returns when it has ended. The
// first thread that it starts, the runtime's monitor, is held: by the clock it would have goroutines give way
// to others.
func startChosen(c *exec.Cmd, random [2]uint64) error {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		return err
	}
	monitor, err := holdMonitor(c.Process.Pid, random)
	if err != nil {
		_ = c.Process.Kill()
		return err
	}
	for {
		var s syscall.WaitStatus
		if _, err := syscall.Wait4(monitor, &s, syscall.WALL, nil); err != nil || s.Exited() || s.Signaled() {
			return err
		}
	}
}

// holdMonitor is called before the program's first instruction.
func holdMonitor(pid int, random [2]uint64) (monitor int, err error) {
	var s syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &s, 0, nil); err != nil {
		return 0, err
	}
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	for pair := range slices.Chunk(vector, 16) {
		if len(pair) == 16 && binary.NativeEndian.Uint64(pair) == auxRandom {
			at := uintptr(binary.NativeEndian.Uint64(pair[8:]))
			chosen := binary.NativeEndian.AppendUint64(nil, random[0])
			chosen = binary.NativeEndian.AppendUint64(chosen, random[1])
			if _, err := syscall.PtracePokeData(pid, at, chosen); err != nil {
				return 0, err
			}
		}
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE|exitKill); err != nil {
		return 0, err
	}
	if err := syscall.PtraceCont(pid, 0); err != nil {
		return 0, err
	}
	if _, err := syscall.Wait4(pid, &s, syscall.WALL, nil); err != nil {
		return 0, err
	}
	if s.TrapCause() != syscall.PTRACE_EVENT_CLONE {
		return 0, fmt.Errorf("it has status %#x instead of starting a thread", uint32(s))
	}
	id, err := syscall.PtraceGetEventMsg(pid)
	if err != nil {
		return 0, err
	}
	return int(id), syscall.PtraceDetach(pid)
}
