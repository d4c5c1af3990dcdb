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

// Damage is something that the embedded store must have and does not have.
type Damage struct {
	Stream string `json:"stream"`
	What   string `json:"what"` // for people
	Lost   uint64 `json:"lost"` // messages, at most; 0: it is not known how many
	// the first sequence that may be lost; 0: not known
	First uint64 `json:"first,omitempty"`
	// when the first was stored, as far as the messages before it show; zero: not known
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`    // and the last
	File string    `json:"file,omitempty"` // empty: no single one
	// Kept is a copy of the file as it was before the server cut it off at the damage, in the data directory.
	Kept string `json:"kept,omitempty"`
}

func (d Damage) String() string {
	lost := "an unknown number of messages is lost"
	if d.Lost > 0 {
		lost = fmt.Sprintf("up to %d messages are lost", d.Lost)
	}
	where := ""
	if d.File != "" {
		where = " of " + d.File
	}
	return fmt.Sprintf("%s: %s%s; %s, stored %s", d.Stream, d.What, where, lost, between(d.From, d.To))
}

// flaw is something in the files that is damaged, and that a start makes anew: no message is lost with it.
type flaw struct {
	stream, consumer string        // no consumer: of the stream itself
	position         bool          // not the settings
	keep             time.Duration // how long the stream has kept its messages; 0: not known
}

func (f flaw) String() string {
	switch {
	case f.position:
		return fmt.Sprintf("%s: the position of consumer %s cannot be read; a start sets it to the "+
			"beginning, and no message is lost", f.stream, f.consumer)
	case f.consumer != "":
		return fmt.Sprintf("%s: the settings of consumer %s do not match their checksum; a start "+
			"makes them anew, and no message is lost", f.stream, f.consumer)
	default:
		return fmt.Sprintf("%s: its settings do not match their checksum; a start makes them anew, "+
			"and no message is lost", f.stream)
	}
}

func between(from, to time.Time) string {
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	switch {
	case from.IsZero() && to.IsZero():
		return "at an unknown time"
	case from.IsZero():
		return "before " + text(to)
	case to.IsZero():
		return "after " + text(from)
	default:
		return "between " + text(from) + " and " + text(to)
	}
}

// DamageError reports that the embedded store lacks what was acknowledged. Such a store is not served.
type DamageError struct {
	Damages []Damage

	served bool // seen while the store was served
}

func (e *DamageError) Error() string {
	var b strings.Builder
	b.WriteString("the store is damaged and is not served:")
	for _, d := range e.Damages {
		b.WriteString("\n  " + d.String())
	}
	b.WriteString("\nPut back the files if you have them, restore a copy into another data directory " +
		"(verifyd restore), or run verifyd recover, " +
		"which keeps what is left and ends what is no longer known")
	return b.String()
}

// aside are the streams that neither sessions nor accounts depend on: while the service runs, damage in one
// of them stops only what needs it.
var aside = append([]string{
	topology.StreamNotices, topology.BucketStream(topology.BucketAlarms),
}, topology.Unsynced...)

// Failure reports that the embedded store could not write or sync, or has lost what it held (the cause is a
// *DamageError then). Messages that were under way then may be readable from the server's memory without
// being on disk, and what is lost reads as if it had never been. So from that moment on nothing that is read
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
	if damage, ok := errors.AsType[*DamageError](f.Cause); ok && damage.served {
		return f.damageText(damage.Damages[0])
	}
	return fmt.Sprintf("the store failed to write to its disk at %s (%s: %v): this process has stopped "+
		"using it and sends no callbacks; "+
		"check the disk, then start verifyd again, which checks the store first", f.At.UTC().
		Format(time.RFC3339), f.Stream, f.Cause)
}

func (f *Failure) damageText(d Damage) string {
	at := f.At.UTC().Format(time.RFC3339)
	if slices.Contains(topology.Unsynced, d.Stream) {
		return fmt.Sprintf("timelines, or when keys were last used, may be incomplete, seen at %s (%s): the "+
			"next start mends it", at, d)
	}
	if slices.Contains(aside, d.Stream) {
		return fmt.Sprintf("a part of the store that no session needs is damaged, seen at %s (%s): nothing "+
			"is read from it or written to it; stop verifyd and run verifyd recover", at, d)
	}
	return fmt.Sprintf("the store has lost what it held, seen at %s (%s): this process has stopped using it "+
		"and sends no callbacks; stop verifyd, then run verifyd check --deep, and verifyd recover or "+
		"verifyd restore", at, d)
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
	switch {
	case l.failure == nil:
		l.failure = f
		close(l.failed)
	case l.failure.Full() && !f.Full(): // that one ends, this one does not
		l.failure = f
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
