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

// Follow returns the deliveries that may not have ended, from all facts with sequences from a given one on,
// and the sequence from which to go on. Of each, it has the sequence of the message that brings it to
// dispatchers: its completion, or the request to send it again. The result of an earlier call is passed as
// known, and updated, also if the reading fails after a while. It leaves out deliveries of which a newer
// build has written a fact. Its error is natsconf.ErrUnavailable.
func (st *Recovery) Follow(ctx context.Context, from uint64, known map[sessions.ID]uint64) (uint64, error) {
	return st.eachFact(ctx, from, func(p facts.Key, m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if origin, _ := natsconf.OriginOf(m.Headers()); origin.Over(st.Now()) {
			return nil // what is over there is sent by nobody
		}
		return apply(known, p, m, meta.Sequence.Stream)
	})
}

// eachFact reads all facts with sequences from a given one on, and returns the sequence after the last that
// was read.
func (st *Recovery) eachFact(ctx context.Context, from uint64,
	do func(facts.Key, jetstream.Msg, *jetstream.MsgMetadata) error) (next uint64, err error) {
	_, last, err := st.Conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil || last < from {
		return from, err
	}
	err = st.Conn.Pages(ctx, topology.StreamCompletions, ">", from, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			meta, err := m.Metadata()
			if p, ok := facts.ParseSubject(m.Subject()); ok && err == nil {
				err = do(p, m, meta)
			}
			if err != nil {
				return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
			}
			from = meta.Sequence.Stream + 1
		}
		return nil
	})
	if err == nil {
		from = last + 1
	}
	return from, err
}

// apply applies one more fact. One that cannot be read shows no end: whoever hands the delivery in reads all
// of its facts.
func apply(open map[sessions.ID]uint64, p facts.Key, m jetstream.Msg, sequence uint64) (err error) {
	switch p.Kind {
	case "completion":
		var c records.CompletionRecord
		err = records.DecodeOf(p.ID, m.Data(), &c, &c.Version)
		if err == nil && (c.State == sessions.Verified || c.State == sessions.Failed) {
			open[p.ID] = sequence
		}
	case "claim":
		_, err = records.DecodeClaim(p.ID, p.N, m.Data())
	case "resend":
		if _, err = records.DecodeResend(p.ID, p.N, m.Data()); err == nil {
			open[p.ID] = sequence
		}
	case "result":
		var r facts.Result
		if r, err = records.DecodeResult(p.ID, p.N, m.Data()); err == nil && !r.LeavesDue() {
			delete(open, p.ID)
		}
	}
	switch {
	case errors.Is(err, natsconf.ErrNewer):
		delete(open, p.ID)
	case errors.Is(err, facts.ErrUnreadable):
	default:
		return err
	}
	return nil
}
