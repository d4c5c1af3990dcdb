package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"verifyd/natsconf"
)

// Failure reports that the embedded store could not write or sync. Messages that were under way then may be
// readable from the server's memory without being on disk. So from that moment on nothing that is read
// counts, and nothing is written.
type Failure struct {
	Stream string
	At     time.Time
	Cause  error
}

func (f *Failure) Error() string {
	if f.Full() {
		return fmt.Sprintf("the disk under the store is full since %s (%s: %v); the store is restarted "+
			"and checked until it can write",
			f.At.UTC().Format(time.RFC3339), f.Stream, f.Cause)
	}
	return fmt.Sprintf("the store failed to write to its disk at %s (%s: %v): this process has stopped "+
		"using it and sends no callbacks; "+
		"check the disk, then start verifyd again, which checks the store first", f.At.UTC().
		Format(time.RFC3339), f.Stream, f.Cause)
}

// Unwrap returns the system's error and ErrUnavailable: nothing was stored after the failure.
func (f *Failure) Unwrap() []error { return []error{natsconf.ErrUnavailable, f.Cause} }

// Full reports whether a write found no space. Such a write stored nothing, and the kernel still keeps the
// pages that were written before. A sync that finds no space is a different case: what it should have made
// durable may be lost.
func (f *Failure) Full() bool {
	if !errors.Is(f.Cause, syscall.ENOSPC) && !errors.Is(f.Cause, syscall.EDQUOT) {
		return false
	}
	path, ok := errors.AsType[*fs.PathError](f.Cause)
	return !ok || path.Op != "sync"
}

// latch holds the first failure of the embedded store until the server is restarted.
type latch struct {
	mu      sync.Mutex
	failure *Failure
	failed  chan struct{} // closed with the failure
}

func newLatch() *latch { return &latch{failed: make(chan struct{})} }

// note records the failure. The server calls it before it releases the stream's lock, so that a caller that
// reads what was not made durable finds the failure here afterwards.
func (l *latch) note(f *Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = f
		close(l.failed)
	}
}

// reset forgets the failure: the server was restarted, and its store checked.
func (l *latch) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		l.failure, l.failed = nil, make(chan struct{})
	}
}

// get returns the failure, or nil, and a channel that is closed with the next one.
func (l *latch) get() (*Failure, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure, l.failed
}
