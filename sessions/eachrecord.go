package sessions

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// eachRecord reads what is stored on the subjects that match, still sealed: records, or outcomes, which hold
// the same. A newer build's is passed as an error, and nil where the record was deleted.
func (st *Store) eachRecord(ctx context.Context, stream, subject string,
	do func(ID, *record, error) error) error {
	_, last, err := st.conn.Bounds(ctx, stream)
	if err != nil {
		return err
	}
	return st.conn.Pages(ctx, stream, subject, 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			id, err := ParseID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])
			if err != nil {
				continue
			}
			var r *record
			if !natsconf.IsMarker(m.Headers()) {
				if r, err = decodeOutcomeOrRecord(id, stream, m.Data()); errors.Is(err, ErrUnreadable) {
					continue
				}
			}
			if err := do(id, r, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// decodeOutcomeOrRecord decodes a session's record or, from StreamCompletions, the same part of its outcome.
func decodeOutcomeOrRecord(id ID, stream string, data []byte) (*record, error) {
	var c completionRecord
	into := any(&c.record)
	if stream == natsconf.StreamCompletions {
		into = &c
	}
	err := decodeOf(id, data, into, &c.Version)
	return &c.record, err
}
