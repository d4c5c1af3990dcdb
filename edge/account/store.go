package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
)

// onceTries bounds how often a write-once entry is tried while another's, or one's own whose answer was lost,
// is on its way there.
const onceTries = 50

var (
	// ErrNoAccount is returned where there is no account of that name.
	ErrNoAccount = errors.New("no such account")
	// ErrAccountExists is returned where the name of a new account is taken.
	ErrAccountExists = errors.New("an account of that name exists already")
	// ErrNoKey is returned where there is no key of that id.
	ErrNoKey = errors.New("no such API key")
)

// Store creates and changes accounts, keys and members, and keeps the audit log of it. It is for the
// operator's commands and the dashboard; requests use the Mirror. Every change is one compare-and-set,
// whoever makes it where, and is in the audit log when it is acknowledged. Its methods are safe for
// concurrent use; beside the errors that each names they return natsconf's.
type Store struct {
	Now func() time.Time // tests move it; nil: time.Now

	conn           *natsconf.Conn
	accounts, keys jetstream.KeyValue
	uses           jetstream.KeyValue
	ledger         ledger
	box            *secretbox.Box
	changing       chan struct{} // holds one: whoever has the turn
}

// turn waits until no other change of this process is under way. Changes of other processes meet in the
// compare-and-set; without turns, hundreds at once here would race for each number of the audit log.
func (s *Store) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.changing <- struct{}{}:
		return func() { <-s.changing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another change: %w: %w", natsconf.ErrUnavailable, ctx.Err())
	}
}

// checkEntry is the entry of the accounts bucket that says which master key the store was made with. Account
// ids have another prefix.
const checkEntry = "master-key-check"

// MasterKeySubject is where the check of the master key stands. Each store has its own.
func MasterKeySubject() string { return natsconf.BucketSubject(natsconf.BucketAccounts, checkEntry) }

// ErrMasterKey is returned for a store that was made with another master key: its secrets would not open, and
// what this key sealed would not open for the others.
var ErrMasterKey = errors.New("this is not the master key that the store was made with")

// checkKey compares the check, and writes it where there is none yet. It looks first: a dispatcher's
// credential may only read.
func checkKey(ctx context.Context, accounts jetstream.KeyValue, key secretbox.Key) error {
	e, err := accounts.Get(ctx, checkEntry)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		_, err = accounts.Create(ctx, checkEntry, key.NewCheck())
		if err == nil {
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("write the check of the master key: %w", err)
		}
		e, err = accounts.Get(ctx, checkEntry)
	}
	if err != nil {
		return fmt.Errorf("read the check of the master key: %w", err)
	}
	if !key.Checks(e.Value()) {
		return ErrMasterKey
	}
	return nil
}

// NewStore binds to the buckets. The error is ErrMasterKey where the store belongs to another master key.
func NewStore(ctx context.Context, c *natsconf.Conn, key secretbox.Key) (*Store, error) {
	s := &Store{conn: c, ledger: ledger{conn: c}, changing: make(chan struct{}, 1), box: key.Box(secretUse)}
	for name, kv := range map[string]*jetstream.KeyValue{
		natsconf.BucketAccounts: &s.accounts, natsconf.BucketKeys: &s.keys, natsconf.BucketKeyUses: &s.uses,
	} {
		var err error
		if *kv, err = c.JS.KeyValue(ctx, name); err != nil {
			return nil, fmt.Errorf("open the bucket %s: %w", name, err)
		}
	}
	if err := checkKey(ctx, s.accounts, key); err != nil {
		return nil, err
	}
	return s, nil
}

// Account reads an account by its id, as it stands now. The error is ErrNoAccount where there is none any
// more.
func (s *Store) Account(ctx context.Context, id string) (Account, error) {
	a, _, err := s.account(ctx, id)
	return a, err
}

func (s *Store) account(ctx context.Context, id string) (Account, jetstream.KeyValueEntry, error) {
	a, e, err := s.remains(ctx, id)
	if err == nil && !a.exists() {
		err = ErrNoAccount
	}
	return a, e, err
}

// remains is account for what stands in the entry of an id in any case: an account, what is left of one that
// was deleted, or a name that leads to another account.
func (s *Store) remains(ctx context.Context, id string) (Account, jetstream.KeyValueEntry, error) {
	if !isAccountID(id) {
		return Account{}, nil, ErrNoAccount
	}
	e, err := s.accounts.Get(ctx, id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Account{}, nil, ErrNoAccount
	}
	if err != nil {
		return Account{}, nil, fmt.Errorf("read account: %w: %w", natsconf.ErrUnavailable, err)
	}
	a, err := decodeAccount(id, e.Value(), s.box)
	return a, e, err
}

// deed is what a change did, for its record.
type deed struct {
	what, on string
	detail   map[string]string
}

// takingAway are changes that cannot wait for a newer build, which has put more into the record than this one
// knows.
var takingAway = []string{MemberRemoved, AccountDisabled, AccountDeleted}

// errUnchanged is what an edit returns that finds nothing to do.
var errUnchanged = errors.New("unchanged")

// change lets edit alter an account, if the actor may, and stores it with the record of the change. It starts
// over when another change came first, so that edit may run several times. The errors are edit's,
// ErrNoAccount, ErrNotAllowed, and that of a record that a newer build has written.
func (s *Store) change(ctx context.Context, by Actor, id string, action Action,
	edit func(*Account, time.Time) (deed, error)) (Account, error) {
	done, err := s.turn(ctx)
	if err != nil {
		return Account{}, err
	}
	defer done()
	var a Account
	err = natsconf.Retry(ctx, func() (err error) {
		var e jetstream.KeyValueEntry
		if a, e, err = s.account(ctx, id); err != nil {
			return err
		}
		if err = s.ledger.settle(ctx, a.last, s.now()); err != nil {
			return err
		}
		if err = s.permit(ctx, a, by, action); err != nil {
			return err
		}
		d, err := edit(&a, s.instant())
		if err != nil {
			return err
		}
		if err = rewritable(e.Value(), new(accountRecord)); err != nil &&
			!slices.Contains(takingAway, d.what) {
			return fmt.Errorf("account %s: %w", id, err)
		}
		if a.last, err = s.draft(ctx, by, id, d.what, d.on, d.detail); err != nil {
			return err
		}
		data, err := encodeAccount(a, s.box)
		if err == nil {
			data, err = keeping(e.Value(), data, accountRecord{})
		}
		if err != nil {
			return fmt.Errorf("encode account: %w", err)
		}
		return s.putAccount(ctx, a, data, e.Revision())
	})
	if errors.Is(err, errUnchanged) {
		return a, nil
	}
	if err != nil {
		return Account{}, err
	}
	return a, s.ledger.conclude(ctx, a.last)
}

// put replaces an entry that has not changed since it was read. Its errors are natsconf's:
// ErrConflict where it has.
func (s *Store) put(ctx context.Context, kv jetstream.KeyValue, entry string, data []byte,
	revision uint64) error {
	_, err := kv.Update(ctx, entry, data, revision)
	switch {
	case err == nil:
		return s.conn.Durable(kv.Bucket())
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return natsconf.ErrConflict
	default:
		return fmt.Errorf("store the change: %w", natsconf.Kind(err))
	}
}

// SetQuota sets how many sessions an account may start in a UTC month; 0 restores the service's default. Its
// errors are ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) SetQuota(ctx context.Context, by Actor, id string, quota int64) error {
	if quota < 0 {
		return &InputError{
			Field: "quota", Detail: fmt.Sprintf(
				"%d is below zero; give a number of sessions, for example 5000, or 0 for the service's default", quota),
		}
	}
	_, err := s.change(ctx, by, id, actionOperate, func(a *Account, _ time.Time) (deed, error) {
		if a.Quota == quota {
			return deed{}, errUnchanged
		}
		d := deed{
			what: QuotaSet, detail: map[string]string{
				"from": strconv.FormatInt(a.Quota, 10), "to": strconv.FormatInt(quota, 10),
			},
		}
		a.Quota = quota
		return d, nil
	})
	return err
}

// Accounts lists all accounts by name.
func (s *Store) Accounts(ctx context.Context) ([]Account, error) {
	accounts, err := s.EveryAccount(ctx)
	return slices.DeleteFunc(accounts, func(a Account) bool { return !a.exists() }), err
}

// EveryAccount is Accounts with what is left of those that were deleted.
func (s *Store) EveryAccount(ctx context.Context) ([]Account, error) {
	records, err := s.records(ctx)
	return slices.DeleteFunc(records, func(a Account) bool { return a.Name == "" }), err
}

// records lists what stands in the entries of all accounts, by name.
func (s *Store) records(ctx context.Context) ([]Account, error) {
	entries, err := s.list(ctx, natsconf.BucketAccounts, ">")
	if err != nil {
		return nil, err
	}
	accounts := make([]Account, 0, len(entries))
	for _, e := range entries {
		a, err := decodeAccount(e.key, e.value, s.box)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b Account) int { return cmp.Compare(a.Name, b.Name) })
	return accounts, nil
}

// listed is an entry of a bucket.
type listed struct {
	key      string
	value    []byte
	revision uint64
}

// list reads the entries of a bucket whose names match, as they are now. A watch would tell them as a server
// knows them that may be behind the bucket's leader.
func (s *Store) list(ctx context.Context, bucket, filter string) ([]listed, error) {
	msgs, err := s.conn.Newest(ctx, natsconf.BucketStream(bucket), natsconf.BucketSubject(bucket, filter))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", bucket, err)
	}
	entries := make([]listed, 0, len(msgs))
	for _, m := range msgs {
		e := listed{key: strings.TrimPrefix(m.Subject(), natsconf.BucketSubject(bucket, "")), value: m.Data()}
		if e.key == checkEntry || natsconf.IsMarker(m.Headers()) {
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", bucket, err)
		}
		e.revision = meta.Sequence.Stream
		entries = append(entries, e)
	}
	return entries, nil
}

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Store) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// isAccountID keeps what is not an account's id out of subjects, where a dot or a star would mean something
// else.
func isAccountID(id string) bool {
	text, ok := strings.CutPrefix(id, accountPrefix)
	return ok && text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// LastUsed returns when keys were last used, to the hour; keys that never were are left out. Without ids it
// returns all.
func (s *Store) LastUsed(ctx context.Context, ids ...string) (map[string]time.Time, error) {
	used := map[string]time.Time{}
	if len(ids) == 0 {
		entries, err := s.list(ctx, natsconf.BucketKeyUses, ">")
		for _, e := range entries {
			used[e.key] = parseUse(e.value)
		}
		return withoutZero(used), err
	}
	for _, id := range ids {
		e, err := s.uses.Get(ctx, id)
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
