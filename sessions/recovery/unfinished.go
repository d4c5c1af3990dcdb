// Package recovery finds the deliveries that have not ended, and ends those whose end is unknown, in a store
// that was restored from a backup or damaged.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// Unfinished is a delivery that has not ended.
type Unfinished struct {
	Number  int  // the attempt that is claimed, or the next one
	Claimed bool // a process may be sending it
	// SettleAfter is the instant from which anyone may settle it; zero unless claimed.
	SettleAfter time.Time
	CompletedAt time.Time // of its session
}

// Recovery ends deliveries and sessions whose end is not known, in a store that was restored or damaged.
type Recovery struct{ *records.Writer }

// New returns a recovery that writes through a writer.
func New(w *records.Writer) *Recovery { return &Recovery{w} }

// Unfinished returns the deliveries that have not ended, from all facts with sequences from a given one on,
// and the sequence after the last of these. The result of an earlier call may be passed as known, to be
// updated. Its error is natsconf.ErrUnavailable, or that of a fact that cannot be read.
func (st *Recovery) Unfinished(ctx context.Context, from uint64,
	known map[sessions.ID]Unfinished) (map[sessions.ID]Unfinished,
	uint64, error) {
	if known == nil {
		known = map[sessions.ID]Unfinished{}
	}
	_, last, err := st.Conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil {
		return nil, 0, err
	}
	if last < from {
		return known, from, nil
	}
	err = st.Conn.Pages(ctx, topology.StreamCompletions, ">", from, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			if err := apply(known, m.Subject(), m.Data()); err != nil {
				return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
			}
		}
		return nil
	})
	return known, last + 1, err
}

// apply applies one more fact, in the order in which they were written. A fact that cannot be read has the
// meaning that ErrUnreadable defines.
func apply(open map[sessions.ID]Unfinished, subject string, data []byte) error {
	p, ok := facts.ParseSubject(subject)
	if !ok {
		return nil
	}
	switch p.Kind {
	case "completion":
		return applyCompletion(open, p.ID, data)
	case "claim":
		c, err := records.DecodeClaim(p.ID, p.N, data)
		if errors.Is(err, natsconf.ErrNewer) {
			return err
		}
		if d := open[p.ID]; err != nil && (d.Number != p.N || d.Claimed) {
			return nil // it was not due
		}
		// of one that cannot be read: at once
		open[p.ID] = Unfinished{
			Number: p.N, Claimed: true, SettleAfter: c.SettleAfter, CompletedAt: completedAt(open, p.ID),
		}
	case "resend":
		_, err := records.DecodeResend(p.ID, p.N, data)
		if errors.Is(err, natsconf.ErrNewer) {
			return err
		}
		if err == nil {
			open[p.ID] = Unfinished{Number: p.N, CompletedAt: completedAt(open, p.ID)}
		}
	case "result":
		r, err := records.DecodeResult(p.ID, p.N, data)
		if errors.Is(err, natsconf.ErrNewer) {
			return err
		}
		switch claimed := open[p.ID]; {
		case err == nil && r.LeavesDue():
			open[p.ID] = Unfinished{Number: p.N + 1, CompletedAt: completedAt(open, p.ID)}
		case err == nil, claimed.Number == p.N &&
			claimed.Claimed: // a result that cannot be read ends only the attempt under way
			delete(open, p.ID)
		}
	}
	return nil
}

func applyCompletion(open map[sessions.ID]Unfinished, id sessions.ID, data []byte) error {
	var c records.CompletionRecord
	err := records.DecodeOf(id, data, &c, &c.Version)
	switch {
	case errors.Is(err, facts.ErrUnreadable): // there is nothing to deliver
		return nil
	case err != nil:
		return err
	case c.State == sessions.Verified, c.State == sessions.Failed:
		open[id] = Unfinished{Number: 1, CompletedAt: c.CompletedAt}
	}
	return nil
}

func completedAt(open map[sessions.ID]Unfinished, id sessions.ID) time.Time {
	return open[id].CompletedAt
}
