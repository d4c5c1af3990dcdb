package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
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
		return fmt.Sprintf("the disk under the store is full since %s (%s: %v); the store is started "+
			"anew and checked until it can write",
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

// Failure returns why the store must not be used, or nil. It also asks the filesystem: a sync may end with
// success although the filesystem could write no more. A filesystem that is healthy after an acknowledgement
// was healthy at its sync.
func (e *Server) Failure() error {
	if f, _ := e.latch.get(); f != nil {
		return f
	}
	if err := e.probe.fault(); err != nil {
		e.failWrite("its filesystem", err)
		f, _ := e.latch.get()
		return f
	}
	return nil
}

// Failed returns a channel that is closed when the store fails the next time, or has failed.
func (e *Server) Failed() <-chan struct{} {
	_, failed := e.latch.get()
	return failed
}

// failWrite marks the store as failed because something else of it could not be written.
func (e *Server) failWrite(what string, cause error) {
	e.latch.note(&Failure{Stream: what, At: time.Now(), Cause: cause})
}

// writeError begins the line that the server logs, once for each stream, when a write or a sync of a stream's
// file has failed. After that it refuses all writes to the stream, mostly without an answer, and serves reads
// from memory.
const writeError = "Critical write error"

// noteWriteError finds the failure of a stream in a line of the server's log. The staging stores of atomic
// batches, which have names of their own, do not count: no caller got an answer that a batch was stored.
func (e *Server) noteWriteError(format string, args []any) {
	name, rest, ok := strings.Cut(strings.TrimPrefix(format, "Filestore ["), "] ")
	if !ok || !strings.HasPrefix(rest, writeError) || !slices.Contains(topology.StreamNames(), name) {
		return
	}
	cause := errors.New(rest)
	if len(args) > 0 {
		if err, ok := args[0].(error); ok {
			cause = err
		}
	}
	f := &Failure{Stream: name, At: time.Now(), Cause: cause}
	if f.Full() && slices.Contains(topology.Unsynced, name) {
		return // it lost only what it may lose; the health monitor reopens it
	}
	e.latch.note(f)
}
