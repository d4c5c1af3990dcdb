package proc

import "syscall"

// notOrphaned makes the kernel kill a child when the bench is killed: a service that keeps running would load
// the next measurement.
func notOrphaned() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
