package account

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// An account's id is made from the name that it was made with, so that two who make accounts of one name
// meet in one entry. For good, that entry is the name's: whoever takes the name writes it, on condition
// that nobody did since it was read. It holds
//
//   - the account that was made with the name, whatever it is called now;
//   - or what is left of that account once it is deleted, and the id of the account that has the name since;
//   - or nothing but the id of an account that took the name when it was renamed.
//
// A name that an account once had stays its own until it is deleted: who still writes the old name meets
// nobody else's account.

// title is a name as the store has it.
type title struct {
	entry  string  // of the name
	stored Account // what stands there; zero where nothing does, as is revision
	data   []byte
	at     uint64
	holder Account // who has the name, or had it before; zero: it is free
}

// title reads who has a name.
func (s *Store) title(ctx context.Context, name string) (t title, err error) {
	t.entry = idOf(name)
	a, e, err := s.remains(ctx, t.entry)
	if errors.Is(err, ErrNoAccount) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	t.stored, t.data, t.at = a, e.Value(), e.Revision()
	if a.exists() {
		t.holder = a
		return t, nil
	}
	if a.leadsTo == "" {
		return t, nil
	}
	t.holder, _, err = s.account(ctx, a.leadsTo)
	if errors.Is(err, ErrNoAccount) {
		t.holder, err = Account{}, nil
	}
	return t, err
}

// taken returns why the name cannot be taken for an account; nil: it can be.
func (t title) taken(name, id string) error {
	switch {
	case t.holder.ID == "", t.holder.ID == id:
		return nil
	case t.holder.Name == name:
		return fmt.Errorf("%w: %q", ErrAccountExists, name)
	default:
		return fmt.Errorf("%w: %q was the name of %s, which is called %q now and keeps its old names",
			ErrAccountExists, name, t.holder.ID, t.holder.Name)
	}
}

// leading returns the message that makes the name lead to an account.
func (s *Store) leading(t title, id string) (*nats.Msg, error) {
	if t.at > 0 {
		if err := rewritable(t.data, new(accountRecord)); err != nil {
			return nil, fmt.Errorf("account %s: %w", t.entry, err)
		}
	}
	record := t.stored
	record.ID, record.leadsTo = t.entry, id
	if record.CreatedAt.IsZero() {
		record.CreatedAt = s.instant()
	}
	data, err := encodeAccount(record, s.box)
	if err != nil {
		return nil, fmt.Errorf("encode name: %w", err)
	}
	return entryMsg(natsconf.BucketAccounts, t.entry, data, t.at), nil
}

// CreateAccount makes an account with a signing secret and, where given, its first owner. Its errors are
// ErrAccountExists and an *InputError.
func (s *Store) CreateAccount(ctx context.Context, by Actor, name string, owners ...Member) (Account, error) {
	if err := checkName(name); err != nil {
		return Account{}, err
	}
	now := s.instant()
	a := Account{Name: name, CreatedAt: now, Secrets: []Secret{{Value: newSigningSecret(), CreatedAt: now}}}
	for _, m := range owners {
		m.Role = RoleOwner
		m, err := s.newMember(m)
		if err != nil {
			return Account{}, err
		}
		if err := admit(&a, m); err != nil {
			return Account{}, err
		}
	}
	done, err := s.turn(ctx)
	if err != nil {
		return Account{}, err
	}
	defer done()
	if err := natsconf.Retry(ctx, func() error { return s.create(ctx, by, &a) }); err != nil {
		return Account{}, err
	}
	return a, s.ledger.conclude(ctx, a.last)
}

// create stores a new account under the id of its name, or under one of its own where an account that was
// deleted had that.
func (s *Store) create(ctx context.Context, by Actor, a *Account) error {
	t, err := s.title(ctx, a.Name)
	if err == nil {
		err = t.taken(a.Name, "")
	}
	if err != nil {
		return err
	}
	a.ID = t.entry
	if t.at > 0 {
		a.ID = newID()
	}
	a.last, err = s.draft(ctx, by, a.ID, AccountCreated, "", map[string]string{"name": a.Name})
	if err != nil {
		return err
	}
	data, err := encodeAccount(*a, s.box)
	if err != nil {
		return fmt.Errorf("encode account: %w", err)
	}
	if t.at > 0 {
		return s.under(ctx, t, *a, data, 0)
	}
	_, err = s.accounts.Create(ctx, a.ID, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyExists):
		err = natsconf.ErrConflict
	default:
		err = natsconf.Kind(err)
	}
	return s.unlessOurs(ctx, *a, fmt.Errorf("create account: %w", err))
}

// unlessOurs returns what an error of a write of an account means: nothing where what stands is what was
// written, since an answer may have been lost.
func (s *Store) unlessOurs(ctx context.Context, a Account, err error) error {
	if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
		return err
	}
	stands, _, rerr := s.remains(ctx, a.ID)
	if rerr == nil && stands.last != nil && stands.last.id == a.last.id {
		return nil
	}
	return err
}

// under stores an account together with the name that leads to it. revision is the account's own; 0: it is
// new. The error is natsconf.ErrConflict where the name or the account has changed.
func (s *Store) under(ctx context.Context, t title, a Account, data []byte, revision uint64) error {
	lead, err := s.leading(t, a.ID)
	if err != nil {
		return err
	}
	account := entryMsg(natsconf.BucketAccounts, a.ID, data, revision)
	err = s.conn.PublishBatch(ctx, natsconf.BucketStream(natsconf.BucketAccounts), lead, account)
	if err == nil {
		return nil
	}
	return s.unlessOurs(ctx, a, err)
}

// RenameAccount returns an account another name; its id stays, and so does all that belongs to it. A repeat
// is harmless. Its errors are ErrAccountExists, also for a name that another account had before,
// ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) RenameAccount(ctx context.Context, by Actor, id, name string) (Account, error) {
	if err := checkName(name); err != nil {
		return Account{}, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return Account{}, err
	}
	defer done()
	var a Account
	err = natsconf.Retry(ctx, func() (err error) {
		a, err = s.rename(ctx, by, id, name)
		return err
	})
	if errors.Is(err, errUnchanged) {
		return a, nil
	}
	if err != nil {
		return Account{}, err
	}
	return a, s.ledger.conclude(ctx, a.last)
}

func (s *Store) rename(ctx context.Context, by Actor, id, name string) (Account, error) {
	a, e, err := s.account(ctx, id)
	if err == nil {
		err = s.ledger.settle(ctx, a.last, s.now())
	}
	if err == nil {
		err = s.permit(ctx, a, by, actionOperate)
	}
	if err == nil && a.Name == name {
		err = errUnchanged
	}
	if err != nil {
		return a, err
	}
	t, err := s.title(ctx, name)
	if err == nil {
		err = t.taken(name, id)
	}
	if err == nil {
		err = rewritable(e.Value(), new(accountRecord))
	}
	if err != nil {
		return a, fmt.Errorf("rename account %s: %w", id, err)
	}
	a.last, err = s.draft(ctx, by, id, AccountRenamed, "", map[string]string{"from": a.Name, "to": name})
	if err != nil {
		return a, err
	}
	a.Name = name
	data, err := encodeAccount(a, s.box)
	if err != nil {
		return a, fmt.Errorf("encode account: %w", err)
	}
	if t.entry == id { // it takes back the name that it was made with
		return a, s.put(ctx, s.accounts, id, data, e.Revision())
	}
	return a, s.under(ctx, t, a, data, e.Revision())
}

// EnsureAccount returns the account of that name and makes it, with a signing secret, when it is missing.
// Harmless to repeat.
func (s *Store) EnsureAccount(ctx context.Context, by Actor, name string) (Account, error) {
	a, err := s.CreateAccount(ctx, by, name)
	if errors.Is(err, ErrAccountExists) {
		return s.AccountByName(ctx, name)
	}
	return a, err
}

// AccountByName returns an account, by its name or its id, with its signing secrets. The error is
// ErrNoAccount where there is none, and says which names are near.
func (s *Store) AccountByName(ctx context.Context, name string) (Account, error) {
	if isAccountID(name) {
		a, _, err := s.remains(ctx, name)
		switch {
		case err == nil && a.exists():
			return a, nil
		case err == nil && !a.DeletedAt.IsZero():
			return Account{}, fmt.Errorf("%w: %s was deleted on %s; %s", ErrNoAccount, name,
				stamp(a.DeletedAt), listThem)
		case err != nil && !errors.Is(err, ErrNoAccount):
			return Account{}, err
		}
	}
	t, err := s.title(ctx, name)
	switch {
	case err != nil:
		return Account{}, err
	case t.holder.ID == "":
		return Account{}, s.noAccount(ctx, name)
	case t.holder.Name != name:
		return Account{}, fmt.Errorf("%w: %q was the name of %s, which is called %q now; %s",
			ErrNoAccount, name, t.holder.ID, t.holder.Name, listThem)
	}
	return t.holder, nil
}

// MadeBy returns who made an account and when, as its audit log says. known is false where the log does not
// reach back so far.
func (s *Store) MadeBy(ctx context.Context, id string) (by Actor, at time.Time, known bool, err error) {
	if !isAccountID(id) {
		return Actor{}, time.Time{}, false, ErrNoAccount
	}
	r, err := s.ledger.read(ctx, id, 1)
	if errors.Is(err, natsconf.ErrNotFound) {
		return Actor{}, time.Time{}, false, nil
	}
	if err != nil || r.What != AccountCreated {
		return Actor{}, time.Time{}, false, err
	}
	return r.Who, r.At, true, nil
}

// newID makes an account's id that no name makes.
func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return accountPrefix + idEncoding.EncodeToString(b[:])[:20]
}

// entryMsg is a message that replaces an entry of a bucket which has not changed since it was read;
// revision 0: which is new.
func entryMsg(bucket, entry string, data []byte, revision uint64) *nats.Msg {
	return &nats.Msg{
		Subject: natsconf.BucketSubject(bucket, entry), Data: data,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {fmt.Sprint(revision)}},
	}
}
