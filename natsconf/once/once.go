// Package once writes a message on a subject that has none, or whose newest message its caller has read.
// Write is the law: what a writer may conclude from each answer. It is pure, so that models of the callers
// use it, too. Store and Replace ask it after each publish and each read.
//
// A conflict is believed only after the subject was read from the leader, since repeating one's own write
// conflicts too. A publish without an answer may be stored, now or later, until the subject was read and
// another message was found there; the nonce identifies one's own.
package once

import (
	"errors"
	"fmt"

	"verifyd/natsconf"
)

// Tries bounds how often one write is tried if its caller does not wait (package wait); each try may wait for
// the writer's own time-out of 5 s. The pauses between them let another publish that is in flight on the
// subject arrive before the next read.
const Tries = 3

// ErrTaken is returned if another message holds the subject.
var ErrTaken = errors.New("another message holds this subject")

// Next is what a writer does next.
type Next int

// What may come next. Stored, Taken and Failed end the write.
const (
	Publish Next = iota // after a pause
	Read                // the subject, from the leader
	Stored              // one's own message is stored
	Taken               // another's does
	Failed              // neither is known, or nothing is stored: Write.Err is which
)

// Write is the state of one write. The zero value is that of one that begins with a publish.
type Write struct {
	Waits     bool // it is tried until its caller's time is over
	Tried     int  // publishes after which the read found nothing
	Uncertain bool // a publish may be stored yet
	Err       error
}

// Published judges the answer to a publish.
func (w *Write) Published(err error) Next {
	w.Err = err
	unsure := errors.Is(err, natsconf.ErrUncertain)
	switch {
	case err == nil:
		return Stored
	case !unsure && !errors.Is(err, natsconf.ErrConflict):
		return w.failed()
	}
	w.Uncertain = w.Uncertain || unsure
	return Read
}

// Looked judges the answer to a read: whether one's own message is there, or why none was read.
func (w *Write) Looked(own bool, err error) Next {
	switch {
	case err == nil && own:
		return Stored
	case err == nil:
		return Taken
	case !errors.Is(err, natsconf.ErrNotFound):
		w.Err = fmt.Errorf("%w: %w", natsconf.ErrUncertain, err)
		return Failed
	}
	// Nothing there yet: another publish is in flight, or ours is lost or late. Trying again is safe, one of
	// them wins.
	if w.Tried++; w.Tried == Tries && !w.Waits {
		return w.failed()
	}
	return Publish
}

// GiveUp ends a write whose caller's time is over, and returns why it failed.
func (w *Write) GiveUp() error {
	w.failed()
	return w.Err
}

// failed ends the write with the last error; an earlier try may still land.
func (w *Write) failed() Next {
	if w.Uncertain && !errors.Is(w.Err, natsconf.ErrUncertain) {
		w.Err = fmt.Errorf("%w: %w", natsconf.ErrUncertain, w.Err)
	}
	return Failed
}
