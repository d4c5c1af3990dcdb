//go:build !linux

package proc

import "syscall"

// notOrphaned does nothing where the system has no means: a bench that is killed leaves its children there.
func notOrphaned() *syscall.SysProcAttr { return nil }
