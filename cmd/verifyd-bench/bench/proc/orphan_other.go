//go:build !linux

package proc

import "syscall"

// notOrphaned does nothing on systems without the means: a killed bench leaves its children there.
func notOrphaned() *syscall.SysProcAttr { return nil }
