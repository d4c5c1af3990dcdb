package erasure

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions/records"
)

// eraseHolds deletes the identity holds of users with these names, given as keyed hashes.
func (st *Eraser) eraseHolds(ctx context.Context, names map[string]bool, dry bool, e *Erasure) error {
	if len(names) == 0 {
		return nil
	}
	stream := topology.BucketStream(topology.BucketIdentities)
	_, last, err := st.Conn.Bounds(ctx, stream)
	if err != nil {
		return err
	}
	// by subject: a server that is behind its leader delivers the replaced message, and then the one that
	// replaced it
	holds := map[string]*nats.Msg{}
	err = st.Conn.Pages(ctx, stream, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			matches, err := isHoldOf(m, names)
			if err != nil {
				return err
			}
			if !matches {
				delete(holds, m.Subject())
				continue
			}
			meta, err := m.Metadata()
			if err != nil {
				return fmt.Errorf("read an identity hold: %w", err)
			}
			end := purgeMarker(m.Subject())
			end.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(meta.Sequence.Stream, 10))
			holds[m.Subject()] = end
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.Identities = len(holds)
	if dry {
		return nil
	}
	for _, end := range holds {
		err := st.Conn.PublishOne(ctx, topology.BucketStream(topology.BucketIdentities), end)
		if err == nil {
			continue
		}
		if err = natsconf.Kind(err); !errors.Is(err, natsconf.ErrConflict) {
			return fmt.Errorf("erase an identity hold: %w", err)
		}
		e.Identities-- // another user holds it meanwhile
	}
	return nil
}

// isHoldOf reports whether a hold is of a user with one of these names. One of a newer build may be:
// that is an error.
func isHoldOf(m jetstream.Msg, names map[string]bool) (bool, error) {
	if natsconf.IsMarker(m.Headers()) {
		return false, nil
	}
	var r records.HoldRecord
	err := records.DecodeRecord(m.Data(), &r, &r.Version, records.RecordVersions)
	if errors.Is(err, natsconf.ErrNewer) {
		return false, fmt.Errorf(
			"nothing was erased: a newer build holds an identity, for this user or somebody else; "+
				"erasing waits for the newer binary: %w", err)
	}
	return err == nil && names[r.User], nil
}
