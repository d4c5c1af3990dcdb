package account

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
)

const (
	nameBytes = 128 // what a page and a table can show
	// secretBytes of randomness in a signing secret, as Standard Webhooks recommends (24 to 64).
	secretBytes  = 32
	secretPrefix = "whsec_"
	// casTries bounds how often an update starts over because another one came first.
	casTries = 10
)

var (
	// ErrNoAccount is returned where there is no account of that name.
	ErrNoAccount = errors.New("no such account")
	// ErrNoKey is returned where there is no key of that id.
	ErrNoKey = errors.New("no such API key")
)

// Store creates and changes accounts and keys. It is for the operator's commands and the dashboard; requests use the Mirror.
type Store struct {
	accounts, keys jetstream.KeyValue
	box            *seal.Box
	now            func() time.Time
}

// checkEntry is the entry of the accounts bucket that tells which master key the store was made with. Account ids have another
// prefix.
const checkEntry = "master-key-check"

// ErrMasterKey is returned for a store that was made with another master key: its secrets would not open, and what this key
// sealed would not open for the others.
var ErrMasterKey = errors.New("this is not the master key that the store was made with")

// checkKey writes the check where there is none yet, and compares it otherwise.
func checkKey(ctx context.Context, accounts jetstream.KeyValue, key seal.Key) error {
	_, err := accounts.Create(ctx, checkEntry, key.NewCheck())
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("write the check of the master key: %w", err)
	}
	e, err := accounts.Get(ctx, checkEntry)
	if err != nil {
		return fmt.Errorf("read the check of the master key: %w", err)
	}
	if !key.Checks(e.Value()) {
		return ErrMasterKey
	}
	return nil
}

// NewStore binds to the two buckets. The error is ErrMasterKey where the store belongs to another master key.
func NewStore(ctx context.Context, c *natsconf.Conn, key seal.Key) (*Store, error) {
	accounts, err := c.JS.KeyValue(ctx, natsconf.BucketAccounts)
	if err != nil {
		return nil, fmt.Errorf("open the accounts: %w", err)
	}
	keys, err := c.JS.KeyValue(ctx, natsconf.BucketKeys)
	if err != nil {
		return nil, fmt.Errorf("open the keys: %w", err)
	}
	if err := checkKey(ctx, accounts, key); err != nil {
		return nil, err
	}
	return &Store{accounts: accounts, keys: keys, box: key.Box(secretUse), now: time.Now}, nil
}

// EnsureAccount gives the account of that name and makes it, with a signing secret, when it is missing. Harmless to repeat.
func (s *Store) EnsureAccount(ctx context.Context, name string) (Account, error) {
	if err := checkName(name); err != nil {
		return Account{}, err
	}
	a := Account{ID: idOf(name), Name: name, CreatedAt: s.instant(), Secrets: []string{newSigningSecret()}}
	data, err := encodeAccount(a, s.box)
	if err != nil {
		return Account{}, fmt.Errorf("encode account: %w", err)
	}
	_, err = s.accounts.Create(ctx, a.ID, data)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return s.AccountByName(ctx, name)
	}
	if err != nil {
		return Account{}, fmt.Errorf("create account: %w", err)
	}
	return a, nil
}

// AccountByName gives an account with its signing secrets. The error is ErrNoAccount when there is none.
func (s *Store) AccountByName(ctx context.Context, name string) (Account, error) {
	a, _, err := s.account(ctx, idOf(name))
	if errors.Is(err, ErrNoAccount) {
		return Account{}, fmt.Errorf("%w: %q", ErrNoAccount, name)
	}
	return a, err
}

func (s *Store) account(ctx context.Context, id string) (Account, uint64, error) {
	e, err := s.accounts.Get(ctx, id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Account{}, 0, ErrNoAccount
	}
	if err != nil {
		return Account{}, 0, fmt.Errorf("read account: %w", err)
	}
	a, err := decodeAccount(id, e.Value(), s.box)
	return a, e.Revision(), err
}

// SetQuota sets how many sessions an account may start in a UTC month; 0 restores the service's default.
func (s *Store) SetQuota(ctx context.Context, id string, quota int64) error {
	return again(func() error {
		a, revision, err := s.account(ctx, id)
		if err != nil {
			return err
		}
		a.Quota = quota
		data, err := encodeAccount(a, s.box)
		if err != nil {
			return fmt.Errorf("encode account: %w", err)
		}
		if _, err = s.accounts.Update(ctx, id, data, revision); err != nil {
			return fmt.Errorf("set quota: %w", err)
		}
		return nil
	})
}

// KeyOptions are what an operator may choose for a key; the zero value takes the service's defaults.
type KeyOptions struct {
	Test      bool
	RateLimit Rate
	Policy    sessions.Policy
}

// CreateKey makes an API key of an account. The secret is returned this once and cannot be had again.
func (s *Store) CreateKey(ctx context.Context, account string, o KeyOptions) (secret string, k Key, err error) {
	secret = newSecret(o.Test)
	d, _, err := parseSecret(secret)
	if err != nil {
		return "", Key{}, err
	}
	k = Key{
		ID: d.id(), Account: account, Test: o.Test, Last4: secret[len(secret)-4:], RateLimit: o.RateLimit, Policy: o.Policy,
		CreatedAt: s.instant(),
	}
	data, err := encodeKey(k)
	if err != nil {
		return "", Key{}, fmt.Errorf("encode key: %w", err)
	}
	if _, err := s.keys.Create(ctx, d.String(), data); err != nil {
		return "", Key{}, fmt.Errorf("create key: %w", err)
	}
	return secret, k, nil
}

// RevokeKey ends a key, named by its id or by the key itself, for good. Repeating it is harmless. The error is ErrNoKey when
// there is none.
func (s *Store) RevokeKey(ctx context.Context, name string) (Key, error) {
	d, err := s.find(ctx, name)
	if err != nil {
		return Key{}, err
	}
	var k Key
	err = again(func() error {
		e, err := s.keys.Get(ctx, d.String())
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		if _, k, err = decodeKey(d.String(), e.Value()); err != nil || !k.RevokedAt.IsZero() {
			return err
		}
		k.RevokedAt = s.instant()
		data, err := encodeKey(k)
		if err != nil {
			return fmt.Errorf("encode key: %w", err)
		}
		if _, err = s.keys.Update(ctx, d.String(), data, e.Revision()); err != nil {
			return fmt.Errorf("revoke key: %w", err)
		}
		return nil
	})
	return k, err
}

func (s *Store) find(ctx context.Context, name string) (digest, error) {
	if d, _, err := parseSecret(name); err == nil {
		if _, err := s.keys.Get(ctx, d.String()); err == nil {
			return d, nil
		}
		return digest{}, ErrNoKey // without the name: it is a secret
	}
	entries, err := list(ctx, s.keys)
	if err != nil {
		return digest{}, err
	}
	for _, e := range entries {
		if d, _, err := decodeKey(e.Key(), e.Value()); err == nil && d.id() == name {
			return d, nil
		}
	}
	return digest{}, fmt.Errorf("%w: %q; list them with: verifyd key list", ErrNoKey, name)
}

// Keys lists all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	entries, err := list(ctx, s.keys)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(entries))
	for _, e := range entries {
		_, k, err := decodeKey(e.Key(), e.Value())
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return keys, nil
}

// Accounts lists all accounts by name.
func (s *Store) Accounts(ctx context.Context) ([]Account, error) {
	entries, err := list(ctx, s.accounts)
	if err != nil {
		return nil, err
	}
	accounts := make([]Account, 0, len(entries))
	for _, e := range entries {
		a, err := decodeAccount(e.Key(), e.Value(), s.box)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b Account) int { return cmp.Compare(a.Name, b.Name) })
	return accounts, nil
}

func list(ctx context.Context, kv jetstream.KeyValue) ([]jetstream.KeyValueEntry, error) {
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kv.Bucket(), err)
	}
	defer stopWatch(w)
	var entries []jetstream.KeyValueEntry
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return nil, fmt.Errorf("list %s: %w", kv.Bucket(), natsconf.ErrUnavailable)
			}
			if e == nil { // everything there is has come
				return entries, nil
			}
			if e.Key() != checkEntry {
				entries = append(entries, e)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("list %s: %w", kv.Bucket(), ctx.Err())
		}
	}
}

// stopWatch ends a watch and reads out what it still holds: its goroutine waits for a reader otherwise, for good.
func stopWatch(w jetstream.KeyWatcher) {
	_ = w.Stop()
	for range w.Updates() { // until it is closed
	}
}

// again repeats a read-and-update that another one overtook.
func again(update func() error) error {
	var err error
	for range casTries {
		if err = update(); !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
	}
	return err
}

func (s *Store) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

func newSigningSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

func checkName(name string) error {
	if name == "" || len(name) > nameBytes || !utf8.ValidString(name) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("account name %q: want 1 to %d bytes of printable text without spaces around it, for example %q",
			name, nameBytes, "Harbor Guild")
	}
	return nil
}
