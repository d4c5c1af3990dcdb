package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
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
	stream := topology.BucketStream(topology.BucketSessions)
	_, last, err := st.Conn.Bounds(ctx, stream)
	if err != nil {
		return 0, err
	}
	open := map[string]records.SessionRecord{} // by subject
	err = st.Conn.Pages(ctx, stream, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			r, ok, err := lasting(m, at)
			if err != nil {
				return err
			}
			if delete(open, m.Subject()); ok {
				open[m.Subject()] = r
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for subject, r := range open {
		id, _ := recordOf(subject)
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
		if _, err := st.Pending.Publish(ctx, &nats.Msg{Subject: subject, Data: data}); err != nil {
			return 0, fmt.Errorf("expire a session: %w", err)
		}
	}
	return n, nil
}

// lasting reads the record of a session; ok is false for anything else, and for a session that had expired by
// an instant.
func lasting(m jetstream.Msg, at time.Time) (r records.SessionRecord, ok bool, err error) {
	id, ok := recordOf(m.Subject())
	if !ok || natsconf.IsMarker(m.Headers()) {
		return r, false, nil
	}
	err = records.DecodeOf(id, m.Data(), &r, &r.Version)
	if errors.Is(err, facts.ErrUnreadable) {
		return r, false, nil
	}
	return r, err == nil && at.Before(r.ExpiresAt), err
}

// recordOf returns the session whose record is on a subject of the sessions bucket; ok is false for other
// entries.
func recordOf(subject string) (id sessions.ID, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[2] == "redeemed" {
		return "", false
	}
	id, err := sessions.ParseID(parts[3])
	return id, err == nil
}
