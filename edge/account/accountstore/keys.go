package accountstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// keys changes API keys.
type keys struct {
	*records
}

// maxYears bounds how far ahead the end of a key is, so that the lifetime of its successors can be computed,
// too.
const maxYears = 100

// MaxKeys bounds the keys that an account gets in a day, rolled ones too: keys are kept after their end, and
// every edge holds them in memory. Operators have no such bound, but their keys count.
const MaxKeys = 100

// ErrManyKeys is returned for another key of an account that got MaxKeys within the last 24 hours.
var ErrManyKeys = fmt.Errorf("the account got %d keys within the last 24 hours", MaxKeys)

// madeEntry is the entry of the bucket of sessions, by the account's id, that counts an account's new keys.
// Nothing but new keys needs it, and it leaves the store by itself.
const madeEntry = "pages.keys."

// made is when an account got its keys of the last 24 hours, the oldest first.
type made struct {
	Version int         `json:"v"`
	At      []time.Time `json:"at"`
}

// count counts a new key, before it is stored: on all edges together an account gets no more than MaxKeys. A
// key that is not stored after all counts, too. What cannot be read counts none. The error is ErrManyKeys.
func (s keys) count(ctx context.Context, by access.Actor, id string) error {
	err := s.conn.Update(ctx, topology.BucketStream(topology.BucketSessions),
		topology.BucketSubject(topology.BucketSessions, madeEntry+id),
		func(current *jetstream.RawStreamMsg) (*nats.Msg, error) {
			var m made
			if current == nil || natsconf.DecodeRecord(current.Data, &m, &m.Version, 1) != nil {
				m = made{Version: 1}
			}
			now := s.log.Instant()
			m.At = slices.DeleteFunc(m.At, func(at time.Time) bool { return now.Sub(at) >= 24*time.Hour })
			if len(m.At) >= MaxKeys && by.Kind != access.ActorOperator {
				return nil, ErrManyKeys
			}
			m.At = append(m.At[max(0, len(m.At)-MaxKeys+1):], now)
			data, err := json.Marshal(m)
			return &nats.Msg{Data: data}, err
		})
	if err != nil {
		return fmt.Errorf("count the key: %w", err)
	}
	return nil
}

// CreateKey makes an API key of an account. The secret is returned only this once. Its errors are
// ErrNoAccount, ErrNotAllowed, ErrManyKeys and an *input.Error. With natsconf.ErrUncertain the secret is
// returned too, if the key may be stored.
func (s keys) CreateKey(ctx context.Context, by access.Actor, id string, o account.KeyOptions) (secret string,
	k account.Key, err error) {
	if err := input.Text("name", o.Name, input.KeyNameBytes); err != nil {
		return "", account.Key{}, err
	}
	now := s.log.Instant()
	if !o.ExpiresAt.IsZero() && !o.ExpiresAt.After(now) {
		return "", account.Key{}, input.Wrong("expires_at",
			"%s has passed; give a time in the future, or none", entry.Stamp(o.ExpiresAt))
	}
	// its record could not be written from the year 10000 on
	if o.ExpiresAt.After(now.AddDate(maxYears, 0, 0)) {
		return "", account.Key{}, input.Wrong("expires_at",
			"%s is more than %d years away; give an earlier time, or none", entry.Stamp(o.ExpiresAt),
			maxYears)
	}
	done, err := s.log.Turn(ctx, id)
	if err != nil {
		return "", account.Key{}, err
	}
	defer done()
	if err := s.mayChangeKeys(ctx, by, id); err != nil {
		return "", account.Key{}, err
	}
	secret, d, k := newKey(o, id, now)
	last, err := s.log.Draft(ctx, audit.Record{
		Account: id, Who: by, What: audit.KeyCreated, On: k.ID,
		Detail: map[string]string{"name": k.Name, "mode": k.Mode(), "expires_at": entry.Stamp(k.ExpiresAt)},
	})
	if err != nil {
		return "", account.Key{}, err
	}
	data, err := record.Key{Key: k, Last: last}.Encode()
	if err == nil {
		err = s.count(ctx, by, id)
	}
	if err != nil {
		return "", account.Key{}, err
	}
	err = entry.Put(ctx, s.conn, topology.BucketKeys, d.Entry(), data, 0)
	if err != nil && !errors.Is(err, natsconf.ErrConflict) { // that one is ours: its answer was lost
		if errors.Is(err, natsconf.ErrUncertain) {
			return secret, k, fmt.Errorf("create key: %w", err)
		}
		return "", account.Key{}, fmt.Errorf("create key: %w", err)
	}
	return secret, k, s.log.Conclude(ctx, last)
}

func newKey(o account.KeyOptions, id string, now time.Time) (string, secrets.Digest, account.Key) {
	secret := secrets.NewKey(o.Test)
	d, _, _ := secrets.ParseKey(secret) // it has just been made in that form
	return secret, d, account.Key{
		ID: d.ID(), Account: id, Name: o.Name, Test: o.Test, Last4: secret[len(secret)-4:],
		RateLimit: o.RateLimit, Policy: o.Policy,
		CreatedAt: now, ExpiresAt: o.ExpiresAt.UTC().Truncate(time.Millisecond),
	}
}

func (s keys) mayChangeKeys(ctx context.Context, by access.Actor, id string) error {
	a, _, err := s.account(ctx, id)
	if err != nil {
		return err
	}
	return s.permit(ctx, a.Account, by, access.ActionKeys)
}

// mayEndKeys is mayChangeKeys for changes that the operator may also make to the keys of a deleted account.
func (s keys) mayEndKeys(ctx context.Context, by access.Actor, id string) error {
	err := s.mayChangeKeys(ctx, by, id)
	if errors.Is(err, account.ErrNoAccount) && by.Kind == access.ActorOperator {
		return nil
	}
	return err
}

// RollKey replaces a key by a new one with its name, kind, limits and lifetime. The old one goes on working
// for the grace or until it expires by itself, whichever is sooner; with no grace it is revoked at once. Both
// changes happen or neither: a crash leaves no key without its successor. Its errors are ErrNoKey, also for a
// key of another account, ErrRolled, ErrKeyEnded, ErrNotAllowed, ErrManyKeys and an *input.Error. With
// natsconf.ErrUncertain the secret is returned too: either the old key works or the new one does, and a
// holder of both is not locked out in either case. An empty account means any; only the operator needs that.
func (s keys) RollKey(ctx context.Context, by access.Actor, accountID, id string,
	grace time.Duration) (secret string, k account.Key, err error) {
	if err := input.Span("grace", grace, account.MaxGrace); err != nil {
		return "", account.Key{}, err
	}
	old, err := s.ownKey(ctx, by, accountID, id)
	if err != nil {
		return "", account.Key{}, err
	}
	done, err := s.log.Turn(ctx, old.Account)
	if err != nil {
		return "", account.Key{}, err
	}
	defer done()
	counted := sync.OnceValue(func() error { return s.count(ctx, by, old.Account) })
	err = natsconf.Retry(ctx, func() (err error) {
		secret = "" // of the try before, which was not stored
		if old, err = s.ownKey(ctx, by, accountID, id); err == nil {
			err = s.mayChangeKeys(ctx, by, old.Account)
		}
		if err == nil {
			err = cmp.Or(s.log.Repair(ctx, old.Last), record.KeyRewritable(old.entry.Value))
		}
		if err != nil {
			return err
		}
		now := s.log.Instant()
		if err = old.Rollable(now); err != nil {
			return err
		}
		fresh, d, next := newKey(account.KeyOptions{
			Name: old.Name, Test: old.Test, RateLimit: old.RateLimit, Policy: old.Policy,
			ExpiresAt: old.SuccessorExpires(now),
		}, old.Account, now)
		next.Replaces = old.ID
		old.Key.Key = old.Retired(next.ID, now, grace)
		until := entry.Stamp(cmp.Or(old.RevokedAt, old.ExpiresAt))
		if old.Last, err = s.log.Draft(ctx, audit.Record{
			Account: old.Account, Who: by, What: audit.KeyWasRolled, On: old.ID,
			Detail: map[string]string{"into": next.ID, "until": until},
		}); err != nil {
			return err
		}
		if err = counted(); err != nil {
			return err
		}
		secret, k = fresh, next
		return s.exchange(ctx, old, d, k)
	})
	switch {
	case err == nil:
		return secret, k, s.log.Conclude(ctx, old.Last)
	case secret != "" && errors.Is(err, natsconf.ErrUncertain):
		return secret, k, err
	default:
		return "", account.Key{}, err
	}
}

// exchange stores a key and its successor as one batch.
func (s keys) exchange(ctx context.Context, old stored, d secrets.Digest, k account.Key) error {
	before, err := old.Encode()
	if err != nil {
		return err
	}
	after, err := record.Key{Key: k}.Encode()
	if err != nil {
		return err
	}
	// The successor is the last: a directory that shows it shows how the other one ends.
	err = s.conn.PublishBatch(ctx, topology.BucketStream(topology.BucketKeys),
		entry.Message(topology.BucketKeys, old.entry.Key, before, old.entry.Revision),
		entry.Message(topology.BucketKeys, d.Entry(), after, 0))
	conflict := errors.Is(err, natsconf.ErrConflict)
	if !conflict && !errors.Is(err, natsconf.ErrUncertain) {
		return err
	}
	_, rerr := entry.Get(ctx, s.conn, topology.BucketKeys, d.Entry())
	switch {
	case rerr == nil: // all or nothing: if the successor is stored, so is the rest
		return nil
	case conflict && errors.Is(rerr, natsconf.ErrNotFound):
		return natsconf.ErrConflict
	}
	return fmt.Errorf("%w: %w", natsconf.ErrUncertain, err)
}

// RevokeKey ends a key, named by its id or by the key itself, permanently. Repeating it is harmless. Its
// errors are ErrNoKey, also for a key of another account, and ErrNotAllowed. An empty account means any; only
// the operator needs that.
func (s keys) RevokeKey(ctx context.Context, by access.Actor, accountID, name string) (account.Key, error) {
	var k stored
	err := natsconf.Retry(ctx, func() (err error) {
		if k, err = s.ownKey(ctx, by, accountID, name); err == nil {
			err = s.mayEndKeys(ctx, by, k.Account)
		}
		if err != nil {
			return err
		}
		if !k.RevokedAt.IsZero() {
			return cmp.Or(s.log.Repair(ctx, k.Last), errUnchanged)
		}
		k.RevokedAt = s.log.Instant()
		if k.Last, err = s.log.Follow(ctx, k.Last, audit.Record{
			Account: k.Account, Who: by, What: audit.KeyWasRevoked, On: k.ID,
			Detail: map[string]string{"name": k.Name},
		}); err != nil {
			return err
		}
		data, err := k.Encode()
		if err == nil {
			data, err = record.KeepKey(k.entry.Value, data)
		}
		if err != nil {
			return err
		}
		return s.put(ctx, topology.BucketKeys, k.entry.Key, data, k.entry.Revision)
	})
	if errors.Is(err, errUnchanged) {
		return k.Key.Key, nil
	}
	if err != nil {
		return account.Key{}, err
	}
	return k.Key.Key, s.log.Conclude(ctx, k.Last)
}
