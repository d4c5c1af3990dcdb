//go:build !unix

package proofs

import "os/exec"

func inGroup(*exec.Cmd) {}

// interrupt ends the command alone, where there are no groups of processes.
func interrupt(cmd *exec.Cmd) error { return cmd.Process.Kill() }
