package main

import (
	"os/exec"
	"runtime"
)

// startTied starts a process that dies with this one, where the system can do that. The kernel kills it when
// the thread ends that has started it: a goroutine keeps that thread until the process has ended. ended gets
// how it did.
func startTied(cmd *exec.Cmd) (ended <-chan error, err error) {
	tie(cmd)
	started, end := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			end <- cmd.Wait()
		}
	}()
	return end, <-started
}

// runTied is cmd.Run for a process that dies with this one.
func runTied(cmd *exec.Cmd) error {
	ended, err := startTied(cmd)
	if err != nil {
		return err
	}
	return <-ended
}
