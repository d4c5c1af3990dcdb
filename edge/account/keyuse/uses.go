// Package keyuse stores when each API key was last used, to the hour, and reads it.
package keyuse

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account/entry"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// useEvery is the precision of a key's last use: at most one message per key is written in that time.
const useEvery = time.Hour

// Uses is the actor that stores when each key was last used. Code that accepts a key calls RecordUse; that
// costs a map look-up, and once an hour for each key an entry in the list of uses to be written. What it
// knows may be lost in a crash: the next use records it again.
type Uses struct {
	conn *natsconf.Conn
	log  zerolog.Logger

	mu   sync.Mutex
	seen map[string]time.Time // by key: its last use that was due
	due  map[string]time.Time // uses to be written
	wake chan struct{}
}

// New returns the actor; it writes nothing until it is served.
func New(c *natsconf.Conn, log zerolog.Logger) *Uses {
	return &Uses{conn: c, log: log, seen: map[string]time.Time{}, due: map[string]time.Time{},
		wake: make(chan struct{}, 1)}
}

// RecordUse records that a key was accepted at an instant. It never waits.
func (u *Uses) RecordUse(key string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if at.Sub(u.seen[key]) < useEvery {
		return
	}
	u.seen[key], u.due[key] = at, at
	select {
	case u.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Serve writes due uses until ctx ends.
func (u *Uses) Serve(ctx context.Context) error {
	for {
		u.writeDue(ctx)
		select {
		case <-u.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// String names the actor in the supervisor's log.
func (u *Uses) String() string { return "key uses" }

func (u *Uses) writeDue(ctx context.Context) {
	u.mu.Lock()
	due := u.due
	u.due = map[string]time.Time{}
	u.mu.Unlock()
	for key, at := range due {
		if err := u.write(ctx, key, at); err != nil && ctx.Err() == nil {
			// The next use after an hour is written again; nothing but a figure on a page depends on it.
			u.log.Warn().Err(err).Str("key", key).Msg("when a key was used could not be written")
		}
	}
}

// write writes a use unless there is one within the hour before it, perhaps from another edge.
func (u *Uses) write(ctx context.Context, key string, at time.Time) error {
	e, err := entry.Get(ctx, u.conn, topology.BucketKeyUses, key)
	if err != nil && !errors.Is(err, natsconf.ErrNotFound) {
		return err
	}
	if at.Sub(parseUse(e.Value)) < useEvery {
		return nil
	}
	value := []byte(at.UTC().Format(time.RFC3339))
	err = entry.Put(ctx, u.conn, topology.BucketKeyUses, key, value, e.Revision)
	if errors.Is(err, natsconf.ErrConflict) {
		return nil // another edge has just written it
	}
	return err
}

// parseUse reads an entry; one that cannot be read counts as none.
func parseUse(value []byte) time.Time {
	at, err := time.Parse(time.RFC3339, string(value))
	if err != nil {
		return time.Time{}
	}
	return at
}
