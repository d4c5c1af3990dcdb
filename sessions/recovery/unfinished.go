// Package recovery finds the deliveries that have not ended, and ends those whose end is unknown, in a store
// that was restored from a backup or damaged.
package recovery

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/records"
)

// Recovery ends deliveries and sessions whose end is not known, in a store that was restored or damaged.
type Recovery struct{ *records.Writer }

// New returns a recovery that writes through a writer.
func New(w *records.Writer) *Recovery { return &Recovery{w} }

// Unfinished returns the deliveries that have not ended. Its error is natsconf.ErrUnavailable, or that of a
// fact of a newer build.
func (st *Recovery) Unfinished(ctx context.Context) (map[sessions.ID]facts.Delivery, error) {
	open := map[sessions.ID]facts.Delivery{}
	err := st.each(ctx, func(o outcome) error {
		attempts, err := o.known.Attempts()
		if err != nil {
			return err
		}
		d, err := facts.NewDelivery(o.Outcome, attempts, o.known.ResendRequested)
		if d.Unfinished() > 0 {
			open[o.id] = d
		}
		return err
	})
	return open, err
}

// outcome is an outcome, and what is known of its delivery.
type outcome struct {
	sessions.Outcome

	id     sessions.ID
	stored time.Time // in this store
	known  facts.AttemptFacts
	last   int // attempt of which a fact is left that can be read; 0: there is none
}

// each reads all outcomes, the newest first. There is nothing to deliver of one that cannot be read.
func (st *Recovery) each(ctx context.Context, do func(outcome) error) error {
	open := records.Courses{}
	return open.Back(ctx, st.Conn, func(id sessions.ID, m jetstream.Msg) (done bool, err error) {
		known, last, newer := open.Take(id)
		var c records.CompletionRecord
		err = records.DecodeOf(id, m.Data(), &c, &c.Version)
		if errors.Is(err, facts.ErrUnreadable) {
			return false, nil
		}
		meta, merr := m.Metadata()
		if err := errors.Join(err, newer, merr); err != nil {
			return false, err
		}
		return false, do(outcome{sessions.Outcome{State: c.State}, id, meta.Timestamp, known, last})
	})
}

// closeUnknown ends as unknown the deliveries of which facts may be missing, of outcomes that were stored up
// to an instant; zero: of all. None of them is due then. It returns how many have ended by that. A repeat is
// harmless, also after an interruption.
func (st *Recovery) closeUnknown(ctx context.Context, to time.Time, by, why string) (ended int, err error) {
	type delivery struct {
		id     sessions.ID
		closed []int
		end    int // the attempt whose result is its end
	}
	var all []delivery
	err = st.each(ctx, func(o outcome) error {
		if !to.IsZero() && o.stored.After(to) {
			return nil // so were all its facts
		}
		d, closed, err := o.known.AfterLoss(o.Outcome, o.last)
		if len(closed) > 0 {
			all = append(all, delivery{o.id, closed, len(d.Attempts)})
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		for _, n := range d.closed {
			did, err := st.closeAttempt(ctx, facts.Key{ID: d.id, N: n}, by, why)
			if err != nil {
				return ended, err
			}
			if did && n == d.end {
				ended++
			}
		}
	}
	return ended, nil
}

// closeAttempt stores the claim and the result that an attempt lacks, and reports whether it had no result.
func (st *Recovery) closeAttempt(ctx context.Context, a facts.Key, by, why string) (did bool, err error) {
	now := st.Instant()
	err = st.Claim(ctx, facts.NewClaim(a.ID, a.N, by, now, 0, 0))
	if err != nil && !errors.Is(err, facts.ErrClaimed) {
		return false, err
	}
	r := facts.NewResult(a.ID, a.N, facts.VerdictUnknown, failure.Restored, by, now)
	r.Detail = why
	_, err = st.StoreResult(ctx, r)
	if errors.Is(err, facts.ErrHasResult) {
		return false, nil
	}
	return err == nil, err
}

// OpenClaims returns until when the owners of open claims may be sending, from all facts with sequences from
// a given one on, and the sequence after the last of these. The result of an earlier call may be passed as
// known, to be updated. Its errors are those of Unfinished.
func (st *Recovery) OpenClaims(ctx context.Context, from uint64,
	known map[facts.Key]time.Time) (open map[facts.Key]time.Time, next uint64, err error) {
	if known == nil {
		known = map[facts.Key]time.Time{}
	}
	next, err = st.eachFact(ctx, from, func(p facts.Key, m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		switch attempt := (facts.Key{ID: p.ID, N: p.N}); p.Kind {
		case "claim":
			c, err := records.DecodeClaim(p.ID, p.N, m.Data())
			if errors.Is(err, natsconf.ErrNewer) {
				return err
			}
			// none of one that cannot be read: nobody owns it
			known[attempt] = c.Dated(natsconf.StoredAt(m.Headers(), meta.Timestamp)).SettleAfter
		case "result":
			delete(known, attempt)
		}
		return nil
	})
	return known, next, err
}
