package erasure

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions/records"
)

// eraseHolds deletes the identity holds of users with these names, given as keyed hashes, that were stored at
// or after a sequence. It has read no hold at or after the sequence that it returns.
func (st *Eraser) eraseHolds(ctx context.Context, names map[string]bool, from uint64,
	e *Erasure) (next uint64, err error) {
	holds, next, err := st.holdsOf(ctx, names, from)
	if err != nil {
		return next, err
	}
	for subject := range holds {
		was := false
		err := st.Conn.Update(ctx, topology.BucketStream(topology.BucketIdentities), subject,
			func(m *jetstream.RawStreamMsg) (end *nats.Msg, err error) {
				if was = false; m != nil { // another user may hold it meanwhile
					was, err = isHoldOf(m.Header, m.Data, names)
				}
				if was {
					end = natsconf.Marker(subject)
				}
				return end, err
			})
		if err != nil {
			return next, fmt.Errorf("erase an identity hold: %w", err)
		}
		if was {
			e.Identities++
		}
	}
	return next, nil
}

// holdsOf returns the subjects of these holds.
func (st *Eraser) holdsOf(ctx context.Context, names map[string]bool,
	from uint64) (holds map[string]bool, next uint64, err error) {
	stream := topology.BucketStream(topology.BucketIdentities)
	_, last, err := st.Conn.Bounds(ctx, stream)
	if err != nil || len(names) == 0 || last < from {
		return nil, from, err
	}
	holds = map[string]bool{}
	err = st.Conn.Pages(ctx, stream, ">", from, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			matches, err := isHoldOf(m.Headers(), m.Data(), names)
			if err != nil {
				return err
			}
			if matches {
				holds[m.Subject()] = true
			} else {
				// a server that is behind its leader delivers the replaced message, and then the one that
				// replaced it
				delete(holds, m.Subject())
			}
		}
		return nil
	})
	return holds, last + 1, err
}

// isHoldOf reports whether a hold is of a user with one of these names. One of a newer build may be:
// that is an error.
func isHoldOf(header nats.Header, data []byte, names map[string]bool) (bool, error) {
	if natsconf.IsMarker(header) {
		return false, nil
	}
	var r records.HoldRecord
	err := records.DecodeRecord(data, &r, &r.Version, records.RecordVersions)
	if errors.Is(err, natsconf.ErrNewer) {
		return false, fmt.Errorf(
			"a newer build holds an identity, for this user or somebody else; erasing waits for the newer "+
				"binary: %w", err)
	}
	return err == nil && names[r.User], nil
}
