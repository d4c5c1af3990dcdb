package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// stored is a key as it was read.
type stored struct {
	record.Key

	entry entry.Entry
}

// decode reads the key of an entry. Its errors are record.DecodeKey's.
func decode(e entry.Entry) (stored, error) {
	_, k, err := record.DecodeKey(e.Key, e.Value)
	return stored{k, e}, err
}

// ownKey reads a key that an actor is about to change. One of another account than the one that is named is
// not there; empty: the operator means any. Its errors are ErrNoKey and natsconf's.
func (s keys) ownKey(ctx context.Context, by access.Actor, accountID, name string) (stored, error) {
	k, err := s.find(ctx, name)
	if err == nil && k.Account != accountID && (accountID != "" || by.Kind != access.ActorOperator) {
		return stored{}, account.ErrNoKey
	}
	return k, err
}

// find reads a key by its id or by the key itself. One read finds it; keys of record version 1 have entries
// that are not found by an id, so that it scans those.
func (s keys) find(ctx context.Context, name string) (stored, error) {
	if d, _, err := secrets.ParseKey(name); err == nil {
		for _, name := range []string{d.Entry(), d.EntryV1()} {
			k, err := s.read(ctx, name)
			if !errors.Is(err, natsconf.ErrNotFound) {
				return k, err
			}
		}
		return stored{}, account.ErrNoKey // without the name: it is a secret
	}
	filter, ok := secrets.EntriesOf(name)
	if !ok {
		return stored{}, noKey(name)
	}
	k, err := s.read(ctx, filter)
	if !errors.Is(err, natsconf.ErrNotFound) {
		return k, err
	}
	entries, err := entry.List(ctx, s.conn, topology.BucketKeys, "*")
	if err != nil {
		return stored{}, err
	}
	for _, e := range entries {
		if k, err := decode(e); err == nil && k.ID == name {
			return k, nil
		}
	}
	return stored{}, noKey(name)
}

func noKey(name string) error {
	return fmt.Errorf("%w: %q; list them with: verifyd key list", account.ErrNoKey, name)
}

// read reads the entry that matches a filter. The error is natsconf.ErrNotFound if none does.
func (s keys) read(ctx context.Context, filter string) (stored, error) {
	m, err := s.conn.Last(ctx, topology.BucketStream(topology.BucketKeys),
		topology.BucketSubject(topology.BucketKeys, filter))
	if err != nil {
		return stored{}, fmt.Errorf("read key: %w", err)
	}
	name := strings.TrimPrefix(m.Subject, topology.BucketSubject(topology.BucketKeys, ""))
	k, err := decode(entry.Entry{Key: name, Value: m.Data, Revision: m.Sequence})
	if err == nil || errors.Is(err, natsconf.ErrNewer) || !strings.HasSuffix(filter, "*") {
		return k, err
	}
	all, lerr := entry.List(ctx, s.conn, topology.BucketKeys, filter) // beside what no verifyd wrote
	for _, e := range all {
		if k, err := decode(e); err == nil {
			return k, nil
		}
	}
	return stored{}, errors.Join(err, lerr)
}

// Keys lists all keys, oldest first.
func (s keys) Keys(ctx context.Context) ([]account.Key, error) {
	records, err := s.listKeys(ctx)
	keys := make([]account.Key, 0, len(records))
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	return keys, err
}

// listKeys lists the records of all keys, oldest first, as listAccounts does.
func (s keys) listKeys(ctx context.Context) ([]record.Key, error) {
	entries, err := entry.List(ctx, s.conn, topology.BucketKeys, ">")
	if err != nil {
		return nil, err
	}
	records := make([]record.Key, 0, len(entries))
	for _, e := range entries {
		_, k, derr := record.DecodeKey(e.Key, e.Value)
		if derr != nil {
			err = errors.Join(err, s.log.LeaveOut(derr))
			continue
		}
		records = append(records, k)
	}
	slices.SortFunc(records, func(a, b record.Key) int { return a.Compare(b.Key) })
	return records, err
}
