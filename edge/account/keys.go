package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
)

// KeyOptions are what may be chosen for a key; the zero value takes the service's defaults and never expires.
type KeyOptions struct {
	Name      string // for its owners to know it by, at most 64 bytes
	Test      bool
	RateLimit Rate
	Policy    sessions.Policy
	ExpiresAt time.Time
}

// maxYears bounds how far the end of a key lies ahead, so that the lifetime of its successors can be
// reckoned, too.
const maxYears = 100

// MaxGrace bounds how long a key that was rolled goes on working.
const MaxGrace = 30 * 24 * time.Hour

var (
	// ErrRolled is returned for rolling a key that was rolled before: it has one successor.
	ErrRolled = errors.New("the API key was rolled already")
	// ErrKeyEnded is returned for rolling a key that has expired or was revoked.
	ErrKeyEnded = errors.New("the API key has ended; create a new one")
)

// CreateKey makes an API key of an account. The secret is returned this once and cannot be had again. Its
// errors are ErrNoAccount, ErrNotAllowed and an *InputError. Beside natsconf.ErrUncertain the secret is
// returned too: the key may be stored.
func (s *Store) CreateKey(ctx context.Context, by Actor, account string, o KeyOptions) (secret string, k Key,
	err error) {
	if err := checkText("name", o.Name, keyNameBytes); err != nil {
		return "", Key{}, err
	}
	now := s.instant()
	if !o.ExpiresAt.IsZero() && !o.ExpiresAt.After(now) {
		return "", Key{}, &InputError{
			Field: "expires_at", Detail: stamp(o.ExpiresAt) + " is over; give a time to come, or none",
		}
	}
	// its record could not be written from the year 10000 on
	if o.ExpiresAt.After(now.AddDate(maxYears, 0, 0)) {
		return "", Key{}, &InputError{
			Field: "expires_at", Detail: fmt.Sprintf(
				"%s is more than %d years away; give an earlier time, or none", stamp(o.ExpiresAt), maxYears),
		}
	}
	done, err := s.turn(ctx)
	if err != nil {
		return "", Key{}, err
	}
	defer done()
	if err := s.mayChangeKeys(ctx, by, account); err != nil {
		return "", Key{}, err
	}
	secret, d, k := newKey(o, account, now)
	detail := map[string]string{"name": k.Name, "mode": k.mode(), "expires_at": stamp(k.ExpiresAt)}
	if k.last, err = s.draft(ctx, by, account, KeyCreated, k.ID, detail); err != nil {
		return "", Key{}, err
	}
	data, err := encodeKey(k)
	if err != nil {
		return "", Key{}, fmt.Errorf("encode key: %w", err)
	}
	_, err = s.keys.Create(ctx, d.entry(), data)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) { // that one is ours: its answer was lost
		if err = natsconf.Kind(err); errors.Is(err, natsconf.ErrUncertain) {
			return secret, k, fmt.Errorf("create key: %w", err)
		}
		return "", Key{}, fmt.Errorf("create key: %w", err)
	}
	return secret, k, s.ledger.conclude(ctx, k.last)
}

func newKey(o KeyOptions, account string, now time.Time) (string, digest, Key) {
	secret := newSecret(o.Test)
	d, _, _ := parseSecret(secret) // it has just been made in that form
	return secret, d, Key{
		ID: d.id(), Account: account, Name: o.Name, Test: o.Test, Last4: secret[len(secret)-4:],
		RateLimit: o.RateLimit, Policy: o.Policy,
		CreatedAt: now, ExpiresAt: o.ExpiresAt.UTC().Truncate(time.Millisecond),
	}
}

func (k Key) mode() string {
	if k.Test {
		return "test"
	}
	return "live"
}

func (s *Store) mayChangeKeys(ctx context.Context, by Actor, account string) error {
	a, _, err := s.account(ctx, account)
	if err != nil {
		return err
	}
	return s.permit(ctx, a, by, ActionKeys)
}

// mayEndKeys is mayChangeKeys for what the operator may do to the keys of an account that was deleted, too.
func (s *Store) mayEndKeys(ctx context.Context, by Actor, account string) error {
	err := s.mayChangeKeys(ctx, by, account)
	if errors.Is(err, ErrNoAccount) && by.Kind == ActorOperator {
		return nil
	}
	return err
}

// stored is a key as it lies in the bucket.
type stored struct {
	Key

	entry    string
	data     []byte // the record as it was read
	revision uint64
}

// RollKey makes a key in the place of another, with its name, kind, limits and lifetime. The old one goes on
// working for the grace or until it expires by itself, whichever is sooner; with no grace it is revoked at
// once. Both happen or neither: a crash leaves no key without its successor. Its errors are ErrNoKey, also
// for a key of another account, ErrRolled, ErrKeyEnded, ErrNotAllowed and an *InputError. Beside
// natsconf.ErrUncertain the secret is returned too: either the old key works or the new one does, and who
// holds both is locked out by neither end. An empty account means any; only the operator has a use for that.
func (s *Store) RollKey(ctx context.Context, by Actor, account, id string,
	grace time.Duration) (secret string, k Key, err error) {
	if err := checkSpan("grace", grace, MaxGrace); err != nil {
		return "", Key{}, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return "", Key{}, err
	}
	defer done()
	var old stored
	err = natsconf.Retry(ctx, func() (err error) {
		secret = "" // of the try before, which was not stored
		if old, err = s.ownKey(ctx, by, account, id, s.mayChangeKeys); err == nil {
			err = rewritable(old.data, new(keyRecord))
		}
		if err != nil {
			return err
		}
		now := s.instant()
		if err = rollable(old.Key, now); err != nil {
			return err
		}
		fresh, d, next := newKey(KeyOptions{
			Name: old.Name, Test: old.Test, RateLimit: old.RateLimit, Policy: old.Policy,
			ExpiresAt: renewed(old.Key, now),
		}, old.Account, now)
		next.Replaces = old.ID
		retire(&old.Key, next.ID, now, grace)
		detail := map[string]string{"into": next.ID, "until": stamp(cmp.Or(old.RevokedAt, old.ExpiresAt))}
		if old.last, err = s.draft(ctx, by, old.Account, KeyWasRolled, old.ID, detail); err != nil {
			return err
		}
		secret, k = fresh, next
		return s.exchange(ctx, old, d, k)
	})
	switch {
	case err == nil:
		return secret, k, s.ledger.conclude(ctx, old.last)
	case secret != "" && errors.Is(err, natsconf.ErrUncertain):
		return secret, k, err
	default:
		return "", Key{}, err
	}
}

func rollable(k Key, now time.Time) error {
	if k.ReplacedBy != "" {
		return fmt.Errorf("%w; its successor is %s, which can be rolled in its turn", ErrRolled, k.ReplacedBy)
	}
	if k.State(now) != KeyActive {
		return ErrKeyEnded
	}
	return nil
}

// renewed returns the successor the lifetime that its predecessor had.
func renewed(k Key, now time.Time) time.Time {
	if k.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return now.Add(k.ExpiresAt.Sub(k.CreatedAt))
}

// retire ends a key for the sake of another.
func retire(k *Key, by string, now time.Time, grace time.Duration) {
	k.ReplacedBy = by
	end := now.Add(grace)
	switch {
	case grace == 0:
		k.RevokedAt = now
	case k.ExpiresAt.IsZero() || end.Before(k.ExpiresAt):
		k.ExpiresAt = end
	}
}

// exchange stores a key and its successor as one batch.
func (s *Store) exchange(ctx context.Context, old stored, d digest, k Key) error {
	before, err := encodeKey(old.Key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	after, err := encodeKey(k)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	err = s.conn.PublishBatch(ctx, natsconf.BucketStream(natsconf.BucketKeys),
		entryMsg(natsconf.BucketKeys, d.entry(), after, 0),
		entryMsg(natsconf.BucketKeys, old.entry, before, old.revision))
	conflict := errors.Is(err, natsconf.ErrConflict)
	if !conflict && !errors.Is(err, natsconf.ErrUncertain) {
		return err
	}
	_, rerr := s.keys.Get(ctx, d.entry())
	switch {
	case rerr == nil: // all or nothing: where the successor is, the rest is too
		return nil
	case conflict && errors.Is(rerr, jetstream.ErrKeyNotFound):
		return natsconf.ErrConflict
	}
	return fmt.Errorf("%w: %w", natsconf.ErrUncertain, err)
}

// RevokeKey ends a key, named by its id or by the key itself, for good. Repeating it is harmless. Its errors
// are ErrNoKey, also for a key of another account, and ErrNotAllowed. An empty account means any; only the
// operator has a use for that.
func (s *Store) RevokeKey(ctx context.Context, by Actor, account, name string) (Key, error) {
	done, err := s.turn(ctx)
	if err != nil {
		return Key{}, err
	}
	defer done()
	var k stored
	err = natsconf.Retry(ctx, func() (err error) {
		if k, err = s.ownKey(ctx, by, account, name, s.mayEndKeys); err != nil {
			return err
		}
		if !k.RevokedAt.IsZero() {
			return errUnchanged
		}
		k.RevokedAt = s.instant()
		if k.last, err = s.draft(ctx, by, k.Account, KeyWasRevoked, k.ID, map[string]string{
			"name": k.Name,
		}); err != nil {
			return err
		}
		data, err := encodeKey(k.Key)
		if err == nil {
			data, err = keeping(k.data, data, keyRecord{})
		}
		if err != nil {
			return fmt.Errorf("encode key: %w", err)
		}
		return s.put(ctx, s.keys, k.entry, data, k.revision)
	})
	if errors.Is(err, errUnchanged) {
		return k.Key, nil
	}
	if err != nil {
		return Key{}, err
	}
	return k.Key, s.ledger.conclude(ctx, k.last)
}

// ownKey reads a key that the actor is about to change, if they may, with the record of its last change
// safely in the log.
func (s *Store) ownKey(
	ctx context.Context, by Actor, account, name string, may func(context.Context, Actor, string) error,
) (stored, error) {
	k, err := s.find(ctx, name)
	if err != nil {
		return stored{}, err
	}
	if k.Account != account && (account != "" || by.Kind != ActorOperator) {
		return stored{}, ErrNoKey
	}
	if err := may(ctx, by, k.Account); err != nil {
		return stored{}, err
	}
	return k, s.ledger.settle(ctx, k.last, s.now())
}

// find reads a key by its id or by the key itself. One read finds it; keys of record version 1 have entries
// that are not found by an id, so that those are looked through.
func (s *Store) find(ctx context.Context, name string) (stored, error) {
	if d, _, err := parseSecret(name); err == nil {
		for _, entry := range []string{d.entry(), d.entryV1()} {
			k, err := s.read(ctx, entry)
			if !errors.Is(err, natsconf.ErrNotFound) {
				return k, err
			}
		}
		return stored{}, ErrNoKey // without the name: it is a secret
	}
	filter, ok := entriesOf(name)
	if !ok {
		return stored{}, noKey(name)
	}
	k, err := s.read(ctx, filter)
	if !errors.Is(err, natsconf.ErrNotFound) {
		return k, err
	}
	entries, err := s.list(ctx, natsconf.BucketKeys, "*")
	if err != nil {
		return stored{}, err
	}
	for _, e := range entries {
		if d, k, err := decodeKey(e.key, e.value); err == nil && d.id() == name {
			return stored{Key: k, entry: e.key, data: e.value, revision: e.revision}, nil
		}
	}
	return stored{}, noKey(name)
}

func noKey(name string) error {
	return fmt.Errorf("%w: %q; list them with: verifyd key list", ErrNoKey, name)
}

// read reads the entry that matches a filter. The error is natsconf.ErrNotFound where none does.
func (s *Store) read(ctx context.Context, filter string) (stored, error) {
	m, err := s.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketKeys),
		natsconf.BucketSubject(natsconf.BucketKeys, filter))
	if err != nil {
		return stored{}, fmt.Errorf("read key: %w", err)
	}
	entry := strings.TrimPrefix(m.Subject, natsconf.BucketSubject(natsconf.BucketKeys, ""))
	_, k, err := decodeKey(entry, m.Data)
	return stored{Key: k, entry: entry, data: m.Data, revision: m.Sequence}, err
}

// Keys lists all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	entries, err := s.list(ctx, natsconf.BucketKeys, ">")
	if err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(entries))
	for _, e := range entries {
		_, k, err := decodeKey(e.key, e.value)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, byAge)
	return keys, nil
}

func byAge(a, b Key) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}
