package dispatcher

import (
	"context"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/sessions"
)

// endMargin is how long before an outcome leaves the store its delivery is brought to an end: room for a
// stop of all dispatchers, and half of the hour by which the settings keep results for longer than
// callbacks are tried.
const endMargin = 30 * time.Minute

// readKeptFor reads how long outcomes are kept from the stream itself: another process may have the setting
// that counts. Until it has been read, and while it cannot be, the last known value counts.
func (d *Dispatcher) readKeptFor(ctx context.Context) {
	if kept, err := d.c.Conn.KeptFor(ctx, natsconf.StreamCompletions); err == nil {
		d.keptFor.Store(int64(kept))
	}
}

// endAt is the instant from which a delivery is not put off any more, whatever puts it off: its outcome
// leaves the store soon, and is not to leave it without a verdict. ok is false where outcomes are kept for
// ever, or it is not known for how long.
func (d *Dispatcher) endAt(dl *delivery) (at time.Time, ok bool) {
	if !dl.KeptUntil.IsZero() {
		return dl.KeptUntil.Add(-endMargin), true
	}
	kept := time.Duration(d.keptFor.Load())
	return dl.CompletedAt.Add(kept - endMargin), kept > 0
}

// outlasted reports whether a delivery waits for a paused host and cannot wait for the pause's end.
func (d *Dispatcher) outlasted(dl *delivery) bool {
	p, ok := d.pauseOf(dl.receiver())
	if !ok || !p.On(d.c.Now()) {
		return false
	}
	end, ok := d.endAt(dl)
	return ok && !d.c.Now().Before(end)
}

// handBackOutlasted returns back what has waited at a paused destination until its end: when it comes again,
// it is given up.
func (t *destination) handBackOutlasted() {
	if !t.paused() {
		return
	}
	for _, dl := range t.mailbox.removeAll(t.d.outlasted) {
		t.d.destinations.done(dl)
		_ = dl.msg.Nak()
	}
}

// notSentForPause is why a delivery was given up whose host was paused until its outcome had to end.
func notSentForPause() *callback.NotSent {
	return &callback.NotSent{
		Class:  sessions.ClassPaused,
		Detail: "the receiver host was paused until shortly before the result left the store, so nothing was sent",
	}
}
