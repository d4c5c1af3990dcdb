package storestate

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

const (
	// ringEntry is the entry of the store's bucket that holds its master keys, once the key was changed. Only
	// an operator's credential writes it, and it goes where the store's data go.
	ringEntry = "master-keys"
	// CheckEntry is the entry of the accounts bucket that shows which master key opens the store. Each store
	// has its own. If the key was changed, it has a copy of the ring instead: earlier builds refuse that as
	// another key's, mirrors see the change, and the keys outlast damage to either bucket. Account ids have
	// another prefix.
	CheckEntry = "master-key-check"
)

// ErrMasterKey is returned for a store that belongs to another master key: its secrets would not open, and
// the others could not open what this key sealed.
var ErrMasterKey = errors.New("this is not the master key of the store")

// CheckSubject is the subject of CheckEntry.
func CheckSubject() string { return topology.BucketSubject(topology.BucketAccounts, CheckEntry) }

func ringSubject() string { return topology.BucketSubject(topology.BucketStore, ringEntry) }

// OpenRing returns the master keys of the store, as a process with this one has them. A new store becomes
// this key's. Its errors are ErrMasterKey and natsconf's.
func OpenRing(ctx context.Context, c *natsconf.Conn, key secretbox.Key) (*secretbox.Ring, error) {
	check, err := checkOf(ctx, c, key)
	if err != nil {
		return nil, fmt.Errorf("read the check of the master key: %w", err)
	}
	if key.Checks(check) {
		check = nil
	}
	// In this order: the check is replaced after the ring is stored.
	m, err := c.Last(ctx, topology.BucketStream(topology.BucketStore), ringSubject())
	switch {
	case err == nil:
		return openRing(key, m.Data)
	case !errors.Is(err, natsconf.ErrNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("read the master keys of the store: %w", err)
	case check == nil:
		return key.Ring(), nil
	default:
		return openRing(key, check)
	}
}

// openRing opens a stored ring, or what else is in its place.
func openRing(key secretbox.Key, stored []byte) (*secretbox.Ring, error) {
	r, err := key.OpenRing(stored)
	if err == nil || errors.Is(err, natsconf.ErrNewer) {
		return r, err
	}
	if changed, ok := errors.AsType[*secretbox.OtherKeyError](err); ok {
		return nil, fmt.Errorf("%w: %w", ErrMasterKey, changed)
	}
	return nil, ErrMasterKey
}

// checkOf returns the check, and writes this key's if there is none yet. It reads first: a dispatcher's
// credential may only read.
func checkOf(ctx context.Context, c *natsconf.Conn, key secretbox.Key) (check []byte, err error) {
	err = updateCheck(ctx, c, func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		if m != nil {
			check = m.Data
			return nil, nil //nolint:nilnil // nothing to write
		}
		check = key.NewCheck()
		return &nats.Msg{Data: check}, nil
	})
	return check, err
}

// ChangeRing stores the ring that edit makes of the stored one, as this key opens it. Its errors are edit's,
// ErrMasterKey and natsconf's. It needs an operator's credential.
func ChangeRing(ctx context.Context, c *natsconf.Conn, key secretbox.Key,
	edit func(*secretbox.Ring) ([]byte, error)) error {
	err := c.Update(ctx, topology.BucketStream(topology.BucketStore), ringSubject(),
		func(m *jetstream.RawStreamMsg) (_ *nats.Msg, err error) {
			var r *secretbox.Ring
			if m == nil { // the key was never changed, or the entry is lost
				r, err = OpenRing(ctx, c, key)
			} else {
				r, err = openRing(key, m.Data)
			}
			if err != nil {
				return nil, err
			}
			stored, err := edit(r)
			return &nats.Msg{Data: stored}, err
		})
	if err != nil {
		return fmt.Errorf("store the master keys: %w", err)
	}
	return RepairRing(ctx, c)
}

// RepairRing makes the ring and its copy, in the place of the check, the same: the ring counts, and the copy
// if damage has taken the ring. A store without a ring stays as it is. A repeat is harmless, and shows the
// ring to all mirrors again. Its errors are natsconf's. It needs an operator's credential.
func RepairRing(ctx context.Context, c *natsconf.Conn) error {
	var ring []byte
	err := c.Update(ctx, topology.BucketStream(topology.BucketStore), ringSubject(),
		func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
			if m != nil {
				ring = m.Data
				return nil, nil //nolint:nilnil // it is there
			}
			held, err := c.Last(ctx, topology.BucketStream(topology.BucketAccounts), CheckSubject())
			if errors.Is(err, natsconf.ErrNotFound) || err == nil && !isRing(held.Data) {
				return nil, nil //nolint:nilnil // the key was never changed
			}
			if err != nil {
				return nil, err
			}
			ring = held.Data
			return &nats.Msg{Data: ring}, nil
		})
	if err == nil && ring != nil {
		err = updateCheck(ctx, c, func(*jetstream.RawStreamMsg) (*nats.Msg, error) {
			return &nats.Msg{Data: ring}, nil
		})
	}
	if err != nil {
		return fmt.Errorf("copy the master keys: %w", err)
	}
	return nil
}

// isRing tells a copy of the ring, a JSON object, from a key's check.
func isRing(check []byte) bool { return bytes.HasPrefix(check, []byte("{")) }

func updateCheck(ctx context.Context, c *natsconf.Conn,
	edit func(*jetstream.RawStreamMsg) (*nats.Msg, error)) error {
	return c.Update(ctx, topology.BucketStream(topology.BucketAccounts), CheckSubject(), edit)
}
