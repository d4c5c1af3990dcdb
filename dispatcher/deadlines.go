package dispatcher

import (
	"context"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/records"
)

// This file decides until when a delivery is tried: by the retry time, by how long its outcome is kept, and
// by pauses of its host.

// startGrace is how long a dispatcher that has just started, or reached the store again, tries, whatever the
// age of the completion: after a long outage the first try may come before the network is up.
const startGrace = 2 * time.Minute

func (d *shared) beginGrace() { d.since.Store(d.now().UnixMilli()) }

// renewGrace begins the grace again when the connection to the store has come back, until ctx ends.
func (d *shared) renewGrace(ctx context.Context) error {
	for {
		select {
		case <-d.c.Conn.Back():
			d.beginGrace()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readKeptFor reads how long outcomes are kept from the stream itself: another process may have the setting
// that counts. Until it has been read, and while it cannot be, the last known value counts.
func (d *shared) readKeptFor(ctx context.Context) {
	if kept, err := d.c.Conn.KeptFor(ctx, topology.StreamCompletions); err == nil {
		d.keptFor.Store(int64(kept))
	}
}

// leavesAt is when an outcome leaves the store. ok is false if outcomes are kept forever, or if it is not
// known for how long.
func (d *shared) leavesAt(c sessions.Completion) (at time.Time, ok bool) {
	if !c.KeptUntil.IsZero() {
		return c.KeptUntil, true
	}
	kept := time.Duration(d.keptFor.Load())
	return c.CompletedAt.Add(kept), kept > 0
}

// endAt is the instant from which a delivery is no longer put off, for whatever reason: its outcome leaves
// the store soon, and must not leave it without a verdict. ok is that of leavesAt.
func (d *shared) endAt(c sessions.Completion) (at time.Time, ok bool) {
	at, ok = d.leavesAt(c)
	return at.Add(-d.c.EndBefore), ok
}

// leavesMargin is how long before the end of an outcome's life nothing more is sent of it: its instants are
// an edge's, the end is the store's, and this process decides by a third clock.
const leavesMargin = 2 * records.ClockSkew

// outlives reports whether an outcome, and with it any claim of an attempt at it, is in the store beyond an
// instant. A claim that is stored fences an attempt only for as long: if a process was stopped after it had
// read the facts, those of another's attempt may have come and left since.
func (d *shared) outlives(c sessions.Completion, instant time.Time) bool {
	end, ok := d.leavesAt(c)
	return !ok || instant.Before(end.Add(-leavesMargin))
}

// notSentForAge is why a delivery is given up whose outcome is about to leave the store.
func notSentForAge() *callback.NotSent {
	return &callback.NotSent{
		Class: failure.Late, Detail: "the result was about to leave the store, so nothing was sent",
	}
}

// outlasted reports whether a delivery waits for a paused host and cannot wait for the pause's end.
func (d *shared) outlasted(dl *delivery) bool {
	p, ok := d.pauseOf(dl.receiver())
	if !ok || !p.On(d.c.Now()) {
		return false
	}
	end, ok := d.endAt(dl.Completion)
	return ok && !d.c.Now().Before(end)
}

// left returns how long a delivery that could not be sent is still tried, from an instant that is about now.
// A process whose clock is wrong does not give it up as long as its outcome is kept: it tries again in a
// while.
func (a *attempt) left(from time.Time) time.Duration {
	left := a.giveUpAt(a.delivery).Sub(from)
	end, ends := a.endAt(a.Completion)
	if left > 0 || a.Lost || ends && !from.Before(end) || a.c.Conn.Clock.Check() == nil {
		return left
	}
	return maxBackoff
}

// notSentForPause is why a delivery was given up if its host was paused until its outcome had to end.
func notSentForPause() *callback.NotSent {
	return &callback.NotSent{
		Class: failure.Paused,
		Detail: "the receiver host was paused until shortly before the result left the store, " +
			"so nothing was sent",
	}
}

// giveUpAt is the instant from which a delivery that could not be sent is given up. An operator's pause takes
// nothing from its time, as long as its outcome is kept: it does not leave the store without a verdict. A
// delivery that has lost its callback URL is given up at once.
func (d *shared) giveUpAt(dl *delivery) time.Time {
	if dl.Lost {
		return time.Time{}
	}
	from := dl.due
	if p, ok := d.pauseOf(dl.receiver()); ok && p.End().After(from) {
		from = p.End()
	}
	at := from.Add(d.c.RetryFor)
	if earliest := time.UnixMilli(d.since.Load()).Add(min(startGrace, d.c.RetryFor)); at.Before(earliest) {
		at = earliest
	}
	if end, ok := d.endAt(dl.Completion); ok && end.Before(at) {
		return end
	}
	return at
}
