package keyuse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"verifyd/edge/account/entry"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Reader reads when keys were last used.
type Reader struct{ conn *natsconf.Conn }

// NewReader returns a reader.
func NewReader(c *natsconf.Conn) *Reader { return &Reader{conn: c} }

// readsAtOnce is how many keys the leader is asked about at once: an account may have hundreds.
const readsAtOnce = 16

// LastUsed returns when keys were last used, to the hour; keys that never were are left out. Without ids it
// returns all.
func (r *Reader) LastUsed(ctx context.Context, ids ...string) (map[string]time.Time, error) {
	used := map[string]time.Time{}
	add := func(key string, value []byte) {
		if at := parseUse(value); !at.IsZero() {
			used[key] = at
		}
	}
	if len(ids) == 0 {
		entries, err := entry.List(ctx, r.conn, topology.BucketKeyUses, ">")
		for _, e := range entries {
			add(e.Key, e.Value)
		}
		return used, err
	}
	for chunk := range slices.Chunk(ids, readsAtOnce) {
		var asked sync.WaitGroup
		entries, failed := make([]entry.Entry, len(chunk)), make([]error, len(chunk))
		for i, id := range chunk {
			asked.Go(func() { entries[i], failed[i] = entry.Get(ctx, r.conn, topology.BucketKeyUses, id) })
		}
		asked.Wait()
		for i, id := range chunk {
			if failed[i] != nil && !errors.Is(failed[i], natsconf.ErrNotFound) {
				return nil, fmt.Errorf("read when the key was used: %w", failed[i])
			}
			add(id, entries[i].Value)
		}
	}
	return used, nil
}
