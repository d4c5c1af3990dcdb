package keyuse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account/entry"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Reader reads when keys were last used.
type Reader struct {
	conn *natsconf.Conn
	uses jetstream.KeyValue
}

// OpenReader binds to the bucket.
func OpenReader(ctx context.Context, c *natsconf.Conn) (*Reader, error) {
	uses, err := openBucket(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Reader{conn: c, uses: uses}, nil
}

// LastUsed returns when keys were last used, to the hour; keys that never were are left out. Without ids it
// returns all.
func (r *Reader) LastUsed(ctx context.Context, ids ...string) (map[string]time.Time, error) {
	used := map[string]time.Time{}
	if len(ids) == 0 {
		entries, err := entry.List(ctx, r.conn, topology.BucketKeyUses, ">")
		for _, e := range entries {
			used[e.Key] = parseUse(e.Value)
		}
		return withoutZero(used), err
	}
	for _, id := range ids {
		e, err := r.uses.Get(ctx, id)
		if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read when the key was used: %w: %w", natsconf.ErrUnavailable, err)
		}
		used[id] = parseUse(e.Value())
	}
	return withoutZero(used), nil
}

func withoutZero(used map[string]time.Time) map[string]time.Time {
	maps.DeleteFunc(used, func(_ string, at time.Time) bool { return at.IsZero() })
	return used
}
