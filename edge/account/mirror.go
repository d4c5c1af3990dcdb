package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/seal"
)

// Mirror is the actor that keeps every account and key in memory, by watching the two buckets. Requests read an immutable
// snapshot of it without a lock. It may be served again after it stopped; the last snapshot stands meanwhile.
type Mirror struct {
	conn *natsconf.Conn
	box  *seal.Box
	log  zerolog.Logger
	now  atomic.Pointer[snapshot]

	loaded chan struct{} // closed at the first snapshot
	once   sync.Once
}

type snapshot struct {
	keys     map[digest]Key
	accounts map[string]Account
}

// NewMirror makes a mirror that knows nobody until it is served.
func NewMirror(c *natsconf.Conn, key seal.Key, log zerolog.Logger) *Mirror {
	return &Mirror{conn: c, box: key.Box(secretUse), log: log, loaded: make(chan struct{})}
}

// Lookup gives who an API key belongs to. Its errors are ErrMalformedKey, ErrUnknownKey, ErrRevokedKey and ErrNotReady.
func (m *Mirror) Lookup(secret string) (Principal, error) {
	d, _, err := parseSecret(secret)
	if err != nil {
		return Principal{}, err
	}
	s := m.now.Load()
	if s == nil {
		return Principal{}, ErrNotReady
	}
	k, ok := s.keys[d]
	if !ok {
		return Principal{}, ErrUnknownKey
	}
	if !k.RevokedAt.IsZero() {
		return Principal{}, ErrRevokedKey
	}
	a, ok := s.accounts[k.Account]
	if !ok {
		return Principal{}, ErrUnknownKey // its account's record has not come yet, or does not open
	}
	return Principal{Key: k, Account: a}, nil
}

// Account gives an account by its id.
func (m *Mirror) Account(id string) (Account, bool) {
	s := m.now.Load()
	if s == nil {
		return Account{}, false
	}
	a, ok := s.accounts[id]
	return a, ok
}

// Name gives the name of an account by its id.
func (m *Mirror) Name(id string) (string, bool) {
	a, ok := m.Account(id)
	return a.Name, ok
}

// SigningSecrets gives an account's callback signing secrets, newest first.
func (m *Mirror) SigningSecrets(id string) ([]string, bool) {
	a, ok := m.Account(id)
	return a.Secrets, ok
}

// Ready says whether the mirror has seen everything there is, once.
func (m *Mirror) Ready() bool { return m.now.Load() != nil }

// Loaded gives a channel that is closed when the mirror has seen everything there is for the first time.
func (m *Mirror) Loaded() <-chan struct{} { return m.loaded }

// String names the actor in the supervisor's log.
func (m *Mirror) String() string { return "key mirror" }

// Serve mirrors until ctx ends. Whenever the connection comes back it reads everything anew: a watch may have missed a
// revocation while it was away.
func (m *Mirror) Serve(ctx context.Context) error {
	for {
		back := m.conn.Back()
		err := m.watch(ctx, back)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err // the supervisor starts it again, after a while
		}
	}
}

// watch reads both buckets until the connection has come back, which returns nil.
func (m *Mirror) watch(ctx context.Context, back <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	accounts, err := m.watchBucket(ctx, natsconf.BucketAccounts)
	if err != nil {
		return err
	}
	defer stopWatch(accounts)
	keys, err := m.watchBucket(ctx, natsconf.BucketKeys)
	if err != nil {
		return err
	}
	defer stopWatch(keys)

	next := &snapshot{keys: map[digest]Key{}, accounts: map[string]Account{}}
	missing := 2 // buckets whose present content has not come in full
	for {
		select {
		case e, ok := <-accounts.Updates():
			if !ok {
				return errWatchEnded
			}
			missing = m.take(next, e, missing, m.putAccount)
		case e, ok := <-keys.Updates():
			if !ok {
				return errWatchEnded
			}
			missing = m.take(next, e, missing, m.putKey)
		case <-back:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if missing == 0 && len(accounts.Updates()) == 0 && len(keys.Updates()) == 0 {
			m.now.Store(next)
			m.once.Do(func() { close(m.loaded) })
			next = &snapshot{keys: maps.Clone(next.keys), accounts: maps.Clone(next.accounts)}
		}
	}
}

var errWatchEnded = errors.New("a watch ended by itself")

func (m *Mirror) watchBucket(ctx context.Context, bucket string) (jetstream.KeyWatcher, error) {
	kv, err := m.conn.JS.KeyValue(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", bucket, err)
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", bucket, err)
	}
	return w, nil
}

// take puts one entry into the next snapshot; nil is the watch's word for "that was all there is".
func (m *Mirror) take(next *snapshot, e jetstream.KeyValueEntry, missing int, put func(*snapshot, jetstream.KeyValueEntry) error) int {
	if e == nil {
		return missing - 1
	}
	if e.Key() == checkEntry {
		return missing
	}
	if err := put(next, e); err != nil {
		// One damaged entry must not lock everybody out; its owner is unknown until it is mended.
		m.log.Error().Err(err).Msg("an entry cannot be read")
	}
	return missing
}

func (m *Mirror) putAccount(next *snapshot, e jetstream.KeyValueEntry) error {
	a, err := decodeAccount(e.Key(), e.Value(), m.box)
	if err != nil {
		return err
	}
	next.accounts[a.ID] = a
	return nil
}

func (m *Mirror) putKey(next *snapshot, e jetstream.KeyValueEntry) error {
	d, k, err := decodeKey(e.Key(), e.Value())
	if err != nil {
		return err
	}
	if old, ok := m.known(next, d); ok && !old.RevokedAt.IsZero() && k.RevokedAt.IsZero() {
		m.log.Error().Str("key", k.ID).Msg("a revoked key came back unrevoked; it stays revoked")
		k = old
	}
	next.keys[d] = k
	return nil
}

// known gives what was seen of a key so far: in the snapshot that is being made, or in the one that stands.
func (m *Mirror) known(next *snapshot, d digest) (Key, bool) {
	if k, ok := next.keys[d]; ok {
		return k, true
	}
	if s := m.now.Load(); s != nil {
		k, ok := s.keys[d]
		return k, ok
	}
	return Key{}, false
}
