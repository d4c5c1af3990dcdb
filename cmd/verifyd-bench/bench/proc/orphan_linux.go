package proc

import "syscall"

// notOrphaned has a child killed when the bench is, by whatever: a service that goes on would load the next
// measurement.
func notOrphaned() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
