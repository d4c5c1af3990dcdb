//go:build unix

package proofs

import (
	"os/exec"
	"syscall"
)

// inGroup makes a command a group of processes of its own, so that interrupt reaches the tests that it has
// started.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func interrupt(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
