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
// could still be completed: it is not known whether they were sent, and completed, after the backup. It is
// for a store that was restored and is not in service. It returns how many of each it has ended. A repeat is
// harmless. Its errors are those of Unfinished, and natsconf's.
func (st *Recovery) CloseUnfinished(ctx context.Context, written time.Time) (deliveries, open int,
	err error) {
	why := "the store was restored from a backup of " + written.UTC().
		Format(time.RFC3339) + "; whether this callback was sent after that is not known"
	if deliveries, err = st.closeUnknown(ctx, time.Time{}, restorer, why); err != nil {
		return deliveries, 0, err
	}
	open, err = st.expireOpen(ctx)
	return deliveries, open, err
}

// expireOpen makes sessions that could still be completed expire now.
func (st *Recovery) expireOpen(ctx context.Context) (n int, err error) {
	stream := topology.BucketStream(topology.BucketSessions)
	_, last, err := st.Conn.Bounds(ctx, stream)
	if err != nil {
		return 0, err
	}
	now := st.Instant()
	var open []*nats.Msg
	err = st.Conn.Pages(ctx, stream, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			end, err := expiry(m, now)
			if err != nil {
				return err
			}
			if end != nil {
				open = append(open, end)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, m := range open {
		if _, err := st.Pending.Publish(ctx, m); err != nil {
			return 0, fmt.Errorf("expire a session: %w", err)
		}
	}
	return len(open), nil
}

// expiry returns a new record of a session that could still be completed at an instant: expired by then.
// nil: it could not.
func expiry(m jetstream.Msg, at time.Time) (*nats.Msg, error) {
	id, ok := recordOf(m.Subject())
	if !ok || natsconf.IsMarker(m.Headers()) {
		return nil, nil //nolint:nilnil // most cannot
	}
	var r records.SessionRecord
	err := records.DecodeOf(id, m.Data(), &r, &r.Version)
	if errors.Is(err, facts.ErrUnreadable) || err == nil && !at.Before(r.ExpiresAt) {
		return nil, nil //nolint:nilnil // most cannot
	}
	if err != nil {
		return nil, err
	}
	r.ExpiresAt = at
	data, err := records.EncodeRecord(r)
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	return &nats.Msg{Subject: m.Subject(), Data: data}, nil
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
