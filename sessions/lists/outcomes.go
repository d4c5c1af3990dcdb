package lists

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/base32"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

const (
	// factsPerLook is how many sequences of the facts' stream a consumer reads in the time of one look-up:
	// of the four facts of a session it delivers one.
	factsPerLook = 32
	// fewFacts is the number of sequences of the facts' stream below which all facts are read, and not only
	// the outcomes. When a filtered read begins, the server looks twice at each subject that matches the
	// filter, which takes it 0.6 s with a million.
	fewFacts = 1 << 14
	// looksAtOnce is how many look-ups one list has in flight.
	looksAtOnce = 16
)

// known returns the outcome of a session, as far as its row has it. The outcome has no state if the session
// itself must be read. ok is false if nothing was read.
func (s *span) known(r *row, now time.Time) (o sessions.Outcome, ok bool) {
	switch {
	case r.outcome != 0:
		return s.outcomes[r.outcome], true
	case !r.looked:
		return o, false
	case now.Before(r.createdAt().Add(sessions.Lifetime)):
		return sessions.Outcome{State: sessions.Pending}, true
	default:
		return o, true
	}
}

// end records the outcome of a session.
func (s *span) end(r *row, o sessions.Outcome) {
	i := slices.Index(s.outcomes[1:], o) + 1
	switch {
	case i > 0:
	case len(s.outcomes) > math.MaxUint16: // there are only a few for each network
		i = 1
	default:
		i = len(s.outcomes)
		s.outcomes = append(s.outcomes, o)
	}
	r.outcome, r.looked = uint16(i), true
}

// look reads the outcomes of rows that are not final yet. Outcomes that were read before an error are kept.
func (s *span) look(ctx context.Context, st *Lists, rows []*row) error {
	now := st.Now()
	_, last, err := st.Conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil {
		return err
	}
	var open, fresh []*row
	for _, r := range rows {
		switch {
		case r.outcome != 0:
		case r.looked:
			open = append(open, r)
		default:
			fresh = append(fresh, r)
		}
	}
	if n := uint64(len(open)); n > 0 && last > s.seen {
		if last-s.seen > n*factsPerLook {
			fresh = append(fresh, open...)
		} else if err := s.catchUp(ctx, st, last); err != nil {
			return err
		}
	}
	if err := s.lookFresh(ctx, st, fresh, last); err != nil {
		return err
	}
	for _, r := range rows {
		s.expire(r, now)
	}
	return nil
}

// expire records that a session has expired, if its time was over at an instant, and a look-up since then
// has found no outcome.
func (s *span) expire(r *row, now time.Time) {
	if r.outcome == 0 && now.After(r.createdAt().Add(sessions.Lifetime+records.ClockSkew)) {
		s.end(r, sessions.Outcome{State: sessions.Expired, Reason: sessions.ExpiredReason})
	}
}

// catchUp reads the outcomes that were stored since the last look-up, of all sessions that were open then.
func (s *span) catchUp(ctx context.Context, st *Lists, last uint64) error {
	var open []*row
	for i := range s.len() {
		if r := s.at(i); r.looked && r.outcome == 0 {
			open = append(open, r)
		}
	}
	if err := s.readOutcomes(ctx, st, open, s.seen+1, last); err != nil {
		return err
	}
	s.seen = last
	return nil
}

// lookFresh reads the outcomes of rows: one by one, or all outcomes since the oldest row, whichever reads
// less.
func (s *span) lookFresh(ctx context.Context, st *Lists, rows []*row, last uint64) error {
	if len(rows) == 0 {
		return nil
	}
	if s.seen == 0 {
		s.seen = last
	}
	from, err := s.beforeEnd(ctx, st, slices.MinFunc(rows, func(a, b *row) int {
		return cmp.Compare(a.sequence, b.sequence)
	}))
	if err != nil {
		return err
	}
	if last < from || last-from <= uint64(len(rows))*factsPerLook {
		err = s.readOutcomes(ctx, st, rows, from, last)
	} else {
		err = s.lookUp(ctx, st, rows)
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		r.looked = true
	}
	return nil
}

// beforeEnd returns a sequence of the facts' stream before which there is no outcome of a session, nor of
// any session that was started after it. If the session was copied from another store, its record and its
// outcome were stored later than it was started.
func (s *span) beforeEnd(ctx context.Context, st *Lists, r *row) (uint64, error) {
	at := r.createdAt()
	m, err := st.Conn.Next(ctx, topology.BucketStream(topology.BucketSessions),
		records.RecordSubject(s.account, "*"), r.sequence)
	switch {
	case errors.Is(err, natsconf.ErrNotFound): // it has aged out
	case err != nil:
		return 0, err
	case m.Time.Before(at):
		at = m.Time // the clocks differ
	}
	return st.Conn.SequenceAt(ctx, topology.StreamCompletions, at.Add(-records.ClockSkew))
}

// readOutcomes reads the outcomes between two sequences, of the sessions of some rows.
func (s *span) readOutcomes(ctx context.Context, st *Lists, rows []*row, from, to uint64) error {
	if len(rows) == 0 || to < from {
		return nil
	}
	byID := make(map[[20]byte]*row, len(rows))
	for _, r := range rows {
		byID[r.id] = r
	}
	subject := records.CompletionSubject("*")
	if to-from < st.few {
		subject = ">"
	}
	return st.Conn.Pages(ctx, topology.StreamCompletions, subject, from, to,
		func(msgs []jetstream.Msg) error {
			for _, m := range msgs {
				p, ok := facts.ParseSubject(m.Subject())
				if !ok || p.Kind != "completion" {
					continue
				}
				var id [20]byte
				_, _ = base32.Lower.Decode(id[:], []byte(p.ID)) // ParseSubject has checked it
				// to decode the others would be a third of the work
				if r := byID[id]; r != nil {
					s.end(r, outcomeIn(p.ID, m.Data()))
				}
			}
			return nil
		})
}

// lookUp reads the outcomes of rows one by one.
func (s *span) lookUp(ctx context.Context, st *Lists, rows []*row) error {
	for chunk := range slices.Chunk(rows, looksAtOnce) {
		var waits []func() (sessions.Outcome, error)
		for _, r := range chunk {
			id := r.session()
			waits = append(waits, records.Begin(func() (sessions.Outcome, error) {
				m, err := st.Conn.Last(ctx, topology.StreamCompletions, records.CompletionSubject(id))
				if err != nil {
					return sessions.Outcome{}, fmt.Errorf("read the outcome of session %s: %w", id, err)
				}
				return outcomeIn(id, m.Data), nil
			}))
		}
		var failed error
		for i, wait := range waits {
			switch o, err := wait(); {
			case err == nil:
				s.end(chunk[i], o)
			case !errors.Is(err, natsconf.ErrNotFound):
				failed = err
			}
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// outcomeIn returns the part of an outcome by which queries select. It has no state if the outcome cannot be
// read.
func outcomeIn(id sessions.ID, data []byte) sessions.Outcome {
	var c records.CompletionRecord
	if records.DecodeOf(id, data, &c, &c.Version) != nil {
		return sessions.Outcome{}
	}
	return sessions.Outcome{State: c.State, Reason: c.Reason, Network: c.Network}
}
