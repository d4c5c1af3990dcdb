package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/records"
)

// restorer is the writer of the claims and results of CloseUnfinished.
const restorer = "restore"

// CloseUnfinished ends every delivery that has not ended as unknown, and makes every session expire that
// could still be completed when the backup was written: it is not known whether they were sent, and
// completed, after that. It is for a store that was restored and is not in service. It returns how many
// deliveries it has ended, and how many sessions were open. A repeat is harmless, and counts the same open
// ones. Its errors are those of Unfinished, and natsconf's.
func (st *Recovery) CloseUnfinished(ctx context.Context, written time.Time) (deliveries, open int,
	err error) {
	why := "the store was restored from a backup of " + written.UTC().
		Format(time.RFC3339) + "; whether this callback was sent after that is not known"
	if deliveries, err = st.closeUnknown(ctx, time.Time{}, restorer, why); err != nil {
		return deliveries, 0, err
	}
	open, err = st.expireOpen(ctx, written)
	return deliveries, open, err
}

// expireOpen makes the sessions expire now that were open at an instant and have not expired since. It
// returns how many were open: they could be completed, and have no outcome.
func (st *Recovery) expireOpen(ctx context.Context, at time.Time) (n int, err error) {
	now := st.Instant()
	if now.Before(at) { // the backup's instant is that of another machine's clock
		at = now
	}
	open := map[sessions.ID]*records.SessionRecord{}
	if err := st.eachSession(ctx, func(id sessions.ID, r *records.SessionRecord, err error) error {
		if delete(open, id); err == nil && r != nil && at.Before(r.ExpiresAt) {
			open[id] = r
		}
		return err
	}); err != nil {
		return 0, err
	}
	for id, r := range open {
		switch _, err := st.Conn.Last(ctx, topology.StreamCompletions, records.CompletionSubject(id)); {
		case err == nil:
			continue // it had ended
		case !errors.Is(err, natsconf.ErrNotFound):
			return 0, fmt.Errorf("look for the outcome of session %s: %w", id, err)
		}
		n++
		if !now.Before(r.ExpiresAt) {
			continue
		}
		r.ExpiresAt = now
		data, err := records.EncodeRecord(r)
		if err != nil {
			return 0, fmt.Errorf("encode session: %w", err)
		}
		record := &nats.Msg{Subject: records.RecordSubject(r.Account, id), Data: data}
		if _, err := st.Pending.Publish(ctx, record); err != nil {
			return 0, fmt.Errorf("expire a session: %w", err)
		}
	}
	return n, nil
}
