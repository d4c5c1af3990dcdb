package recovery

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// Followed is a delivery that has not ended, as its facts say in the order in which they were stored.
type Followed struct {
	// Hint is the sequence of the message that brings it to dispatchers: its completion, or the request to
	// send it again. 0: a newer build has written one of its facts.
	Hint uint64

	number  int  // the attempt that is claimed, or the next one
	claimed bool // a process may be sending it
}

// Follow returns the deliveries that have not ended, from all facts with sequences from a given one on, and
// the sequence after the last of these. The result of an earlier call may be passed as known, to be updated.
// It leaves out deliveries of which a newer build has written a fact. Its error is natsconf.ErrUnavailable.
func (st *Recovery) Follow(ctx context.Context, from uint64,
	known map[sessions.ID]Followed) (map[sessions.ID]Followed, uint64, error) {
	if known == nil {
		known = map[sessions.ID]Followed{}
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
			switch err := apply(known, m); {
			case errors.Is(err, natsconf.ErrNewer):
				delete(known, facts.OfFact(m.Subject()))
			case err != nil:
				return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
			}
		}
		return nil
	})
	return known, last + 1, err
}

// apply applies one more fact. A fact that cannot be read has the meaning that ErrUnreadable defines.
func apply(open map[sessions.ID]Followed, m jetstream.Msg) error {
	p, ok := facts.ParseSubject(m.Subject())
	if !ok {
		return nil
	}
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	f := open[p.ID]
	switch p.Kind {
	case "completion":
		return applyCompletion(open, p.ID, m.Data(), meta.Sequence.Stream)
	case "claim":
		_, err := records.DecodeClaim(p.ID, p.N, m.Data())
		if errors.Is(err, natsconf.ErrNewer) {
			return err
		}
		if err != nil && (f.number != p.N || f.claimed) {
			return nil // it was not due
		}
		f.number, f.claimed = p.N, true
		open[p.ID] = f
	case "resend":
		_, err := records.DecodeResend(p.ID, p.N, m.Data())
		if errors.Is(err, natsconf.ErrNewer) {
			return err
		}
		if err == nil {
			open[p.ID] = Followed{Hint: meta.Sequence.Stream, number: p.N}
		}
	case "result":
		r, err := records.DecodeResult(p.ID, p.N, m.Data())
		if errors.Is(err, natsconf.ErrNewer) {
			return err
		}
		switch {
		case err == nil && r.LeavesDue():
			open[p.ID] = Followed{Hint: f.Hint, number: p.N + 1}
		case err == nil, f.number == p.N && f.claimed: // an unreadable one ends only the attempt under way
			delete(open, p.ID)
		}
	}
	return nil
}

func applyCompletion(open map[sessions.ID]Followed, id sessions.ID, data []byte, sequence uint64) error {
	var c records.CompletionRecord
	err := records.DecodeOf(id, data, &c, &c.Version)
	switch {
	case errors.Is(err, facts.ErrUnreadable): // there is nothing to deliver
		return nil
	case err != nil:
		return err
	case c.State == sessions.Verified, c.State == sessions.Failed:
		open[id] = Followed{Hint: sequence, number: 1}
	}
	return nil
}
