// Package keymirror keeps every account and API key in memory, so that a request reads nothing from
// JetStream.
//
// The mirror is the only reader on the path of a request. Until it has read everything, it knows no key. It
// never makes a revoked digest valid again.
package keymirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/edge/account/signing"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// Mirror is the actor that keeps every account and key in memory, by watching the two buckets
// (natsconf.Watch). Requests read an immutable snapshot of it without a lock. It may be served again after it
// stopped; the last snapshot stays in use meanwhile.
type Mirror struct {
	Now func() time.Time // tests move it; nil: the store's time

	conn *natsconf.Conn
	ring *secretbox.Ring // nil: the master key is never changed
	box  *secretbox.Box
	sign *signing.Keys
	log  zerolog.Logger
	now  atomic.Pointer[snapshot] // an empty one at first

	// Until when the entries of the two buckets were seen.
	accounts, keys natsconf.Freshness

	loaded chan struct{} // closed at the first snapshot
	once   sync.Once
}

type snapshot struct {
	keys     map[secrets.Digest]*account.Key // by pointer: both are copied once per request as it is
	accounts map[string]*account.Account
	// newer are the entries that a newer build has written, without the dot of a key's. Earlier knowledge of
	// them no longer holds: the newer build may have ended the key.
	newer map[string]bool

	once  sync.Once
	index index
}

// index finds things in a snapshot. It is made at the first query after a change, and queries are few: the
// dashboard's.
type index struct {
	keys     map[string][]account.Key              // by account, oldest first
	accounts map[access.Identity][]account.Account // by member, by name
	byName   []account.Account
}

func (s *snapshot) find() *index {
	s.once.Do(func() {
		s.index = index{keys: map[string][]account.Key{}, accounts: map[access.Identity][]account.Account{}}
		for _, k := range s.keys {
			s.index.keys[k.Account] = append(s.index.keys[k.Account], *k)
		}
		for _, keys := range s.index.keys {
			slices.SortFunc(keys, account.Key.Compare)
		}
		for _, a := range s.accounts {
			if !a.Exists() {
				continue
			}
			s.index.byName = append(s.index.byName, *a)
			for _, m := range a.Members {
				who := m.Identity()
				s.index.accounts[who] = append(s.index.accounts[who], *a)
			}
		}
		byName := func(a, b account.Account) int { return cmp.Compare(a.Name, b.Name) }
		slices.SortFunc(s.index.byName, byName)
		for _, accounts := range s.index.accounts {
			slices.SortFunc(accounts, byName)
		}
	})
	return &s.index
}

// New returns a mirror that knows no key until it is served.
func New(c *natsconf.Conn, key secretbox.Master, log zerolog.Logger) *Mirror {
	ring, _ := key.(*secretbox.Ring)
	m := &Mirror{
		conn: c, ring: ring, box: key.Box(record.SecretUse), sign: signing.New(key), log: log,
		loaded: make(chan struct{}),
	}
	m.now.Store(&snapshot{})
	return m
}

// errUnknownYet: the key is not known, and may have been made since the store was last seen. It is not waited
// for: anybody with made-up keys would take the places of others.
var errUnknownYet = fmt.Errorf("the key is not known, and new ones cannot be seen: %w",
	natsconf.ErrUnavailable)

// Lookup returns the principal of an API key. The instant of the call decides whether the key has expired.
// Its errors are secrets.ErrMalformedKey, and account's ErrUnknownKey, ErrRevokedKey, *ExpiredKeyError,
// ErrDisabled and ErrNotReady; natsconf.ErrNewer, to ask an edge of that build; and natsconf.ErrUnavailable.
func (m *Mirror) Lookup(secret string) (account.Principal, error) {
	d, _, err := secrets.ParseKey(secret)
	if err != nil {
		return account.Principal{}, err
	}
	// before the snapshot: one that ends the doubt is taken then
	inDoubt, blind := m.InDoubt(), !m.BlindSince().IsZero()
	if !m.Ready() {
		return account.Principal{}, account.ErrNotReady
	}
	s := m.now.Load()
	if len(s.newer) > 0 && s.newer[d.EntryV1()] {
		return account.Principal{}, natsconf.ErrNewer
	}
	unknown := account.ErrUnknownKey
	if inDoubt || blind {
		unknown = errUnknownYet
	}
	k, ok := s.keys[d]
	if !ok {
		return account.Principal{}, unknown
	}
	switch k.State(m.clock()) {
	case account.KeyRevoked:
		return account.Principal{}, account.ErrRevokedKey
	case account.KeyExpired:
		return account.Principal{}, &account.ExpiredKeyError{At: k.ExpiresAt, Rolled: k.ReplacedBy != ""}
	case account.KeyActive, account.KeyRolled:
	}
	if s.newer[k.Account] {
		return account.Principal{}, natsconf.ErrNewer
	}
	a, ok := s.accounts[k.Account]
	if !ok {
		// its account's record has not come yet, or does not open
		return account.Principal{}, unknown
	}
	switch {
	case !a.Exists():
		return account.Principal{}, account.ErrRevokedKey // as it is about to be
	case !a.DisabledAt.IsZero():
		return account.Principal{}, account.ErrDisabled
	case inDoubt:
		return account.Principal{}, account.ErrNotReady
	}
	return account.Principal{Key: *k, Account: *a}, nil
}

// SeenSince reports whether all accounts and keys are known that were stored before an instant.
func (m *Mirror) SeenSince(t time.Time) bool { return m.accounts.SeenSince(t) && m.keys.SeenSince(t) }

// Account returns an account by its id, or the rest of one that was deleted.
func (m *Mirror) Account(id string) (account.Account, bool) {
	a, ok := m.now.Load().accounts[id]
	if !ok {
		return account.Account{}, false
	}
	return *a, true
}

// Name returns the name of an account by its id.
func (m *Mirror) Name(id string) (string, bool) {
	a, ok := m.Account(id)
	return a.Name, ok
}

// SigningSecrets returns the secrets that sign an account's callbacks now: the signing secrets, the current
// one first, then the private key of each.
func (m *Mirror) SigningSecrets(id string) ([]string, bool) {
	a, ok := m.Account(id)
	return m.sign.Secrets(a, m.clock()), ok
}

// Keys returns the keys of an account, oldest first. The caller does not change them.
func (m *Mirror) Keys(account string) []account.Key {
	return m.now.Load().find().keys[account]
}

// AccountsOf returns the accounts that somebody is a member of, by name. The caller does not change them.
func (m *Mirror) AccountsOf(network, subject string) []account.Account {
	return m.now.Load().find().accounts[access.Identity{Network: network, Subject: subject}]
}

// Accounts returns accounts by name, at most the given number, that follow the one named after; more reports
// that others follow. If text is not empty they are those whose name contains it, whatever the case, or whose
// id it is. The caller does not change them.
func (m *Mirror) Accounts(text, after string, limit int) (found []account.Account, more bool) {
	all := m.now.Load().find().byName
	from, is := slices.BinarySearchFunc(all, after, func(a account.Account, name string) int {
		return cmp.Compare(a.Name, name)
	})
	if is {
		from++
	}
	text = strings.ToLower(text)
	for _, a := range all[from:] {
		if a.ID != text && !strings.Contains(strings.ToLower(a.Name), text) {
			continue
		}
		if len(found) == limit {
			return found, true
		}
		found = append(found, a)
	}
	return found, false
}

func (m *Mirror) clock() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return m.conn.Clock.Now()
}

// Ready reports whether the mirror has seen everything once.
func (m *Mirror) Ready() bool {
	select {
	case <-m.loaded:
		return true
	default:
		return false
	}
}

// BlindSince returns since when changes may not be seen, for instance while the connection is lost or the
// buckets have no leader; zero while the snapshot matches the store.
func (m *Mirror) BlindSince() time.Time {
	var since time.Time
	for _, at := range []time.Time{m.conn.LostSince(), m.accounts.StaleSince(), m.keys.StaleSince()} {
		if since.IsZero() || !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	return since
}

// InDoubt reports whether a server that may no longer lead a bucket is all that answers (natsconf.Freshness).
func (m *Mirror) InDoubt() bool { return m.keys.InDoubt() || m.accounts.InDoubt() }

// Loaded returns a channel that is closed when the mirror has seen everything there is for the first time.
func (m *Mirror) Loaded() <-chan struct{} { return m.loaded }

// String names the actor in the supervisor's log.
func (m *Mirror) String() string { return "key mirror" }

// Serve mirrors until ctx ends, or a bucket has lost entries that were seen in it: then everything must be
// read again.
func (m *Mirror) Serve(ctx context.Context) error {
	accounts := m.conn.Watch(ctx, topology.BucketAccounts, ">", &m.accounts)
	defer accounts.Close()
	keys := m.conn.Watch(ctx, topology.BucketKeys, ">", &m.keys)
	defer keys.Close()

	next := &snapshot{
		keys: map[secrets.Digest]*account.Key{}, accounts: map[string]*account.Account{},
		newer: map[string]bool{},
	}
	missing := 2 // buckets whose present content has not come in full
	ofAccounts, ofKeys := 0, 0
	for {
		select {
		case e, ok := <-accounts.Updates():
			if !ok {
				return accounts.Err()
			}
			ofAccounts++
			missing = m.take(next, e, missing, m.putAccount)
		case e, ok := <-keys.Updates():
			if !ok {
				return keys.Err()
			}
			ofKeys++
			missing = m.take(next, e, missing, m.putKey)
		case <-ctx.Done():
			return ctx.Err()
		}
		if missing == 0 && len(accounts.Updates()) == 0 && len(keys.Updates()) == 0 {
			m.now.Store(next)
			m.once.Do(func() { close(m.loaded) })
			m.accounts.Taken(ofAccounts)
			m.keys.Taken(ofKeys)
			ofAccounts, ofKeys = 0, 0
			next = &snapshot{
				keys: maps.Clone(next.keys), accounts: maps.Clone(next.accounts),
				newer: maps.Clone(next.newer),
			}
		}
	}
}

// take puts one entry into the next snapshot; nil is the watch's word for "that was all there is".
func (m *Mirror) take(next *snapshot, e *natsconf.Entry, missing int,
	put func(*snapshot, *natsconf.Entry) error) int {
	if e == nil {
		return missing - 1
	}
	if e.Key == storestate.CheckEntry {
		m.ring.See(e.Value)
		return missing
	}
	err := put(next, e)
	if name := strings.Replace(e.Key, ".", "", 1); errors.Is(err, natsconf.ErrNewer) {
		next.newer[name] = true
	} else {
		delete(next.newer, name)
	}
	if err != nil {
		// One damaged entry must not lock everybody out; its owner is unknown until it is repaired.
		m.log.Error().Err(err).Msg("an entry cannot be read")
	}
	return missing
}

func (m *Mirror) putAccount(next *snapshot, e *natsconf.Entry) error {
	if record.IsMeeting(e.Key) {
		return nil
	}
	r, err := record.DecodeAccount(e.Key, e.Value, m.box)
	if err != nil {
		return err
	}
	a := r.Account
	old := last(next.accounts, m.now.Load().accounts, a.ID)
	if old != nil && !old.DeletedAt.IsZero() && a.DeletedAt.IsZero() {
		m.log.Error().Str("account", a.ID).
			Msg("an account that was deleted came back as it was before; it stays deleted")
		return nil
	}
	next.accounts[a.ID] = &a
	return nil
}

func (m *Mirror) putKey(next *snapshot, e *natsconf.Entry) error {
	d, k, err := record.DecodeKey(e.Key, e.Value)
	if err != nil {
		return err
	}
	old := last(next.keys, m.now.Load().keys, d)
	if old != nil && k.Revives(*old) {
		m.log.Error().Str("key", k.ID).Msg("a key that had ended came back as it was before; it stays ended")
		next.keys[d] = old
		return nil
	}
	next.keys[d] = &k.Key
	return nil
}

// last returns what was seen last under a name; nil: nothing was.
func last[K comparable, V any](next, now map[K]*V, name K) *V {
	if v := next[name]; v != nil {
		return v
	}
	return now[name]
}
