package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit/life"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// An account's id is made from the name that it was made with, so that two callers that make accounts of one
// name meet in one entry. That entry belongs to the name permanently: an account that takes the name writes
// it, on condition that no other write did since it was read. It holds
//
//   - the account that was made with the name, whatever it is called now;
//   - or what is left of that account once it is deleted, and the id of the account that has the name since;
//   - or nothing but the id of an account that took the name when it was renamed.
//
// A name that an account once had stays its own for naming.Kept, also if the account is deleted: people who
// still write the old name do not meet another's account. Builds that recorded no end kept it while the
// account exists.

// title is a name as the store has it.
type title struct {
	entry  string         // of the name
	stored record.Account // the record there; zero if there is none, as is revision
	data   []byte
	at     uint64
	holder record.Account // the account that has the name, or had it before; zero: it is free
}

// title reads which account has a name.
func (s accounts) title(ctx context.Context, name string) (t title, err error) {
	t.entry = account.IDOf(name)
	a, e, err := s.remains(ctx, t.entry)
	if errors.Is(err, account.ErrNoAccount) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	t.stored, t.data, t.at = a, e.Value(), e.Revision()
	if a.LeadsTo != "" {
		t.holder, _, err = s.account(ctx, a.LeadsTo)
		if !errors.Is(err, account.ErrNoAccount) {
			return t, err
		}
		t.holder = record.Account{}
	}
	if a.Exists() {
		t.holder = a
	}
	return t, nil
}

// taken returns why the name cannot be taken for an account at an instant; nil: it can be.
func (t title) taken(w wanted, id string, now time.Time) error {
	until, known := t.holder.KeptUntil(w.name)
	switch {
	case t.holder.ID == "", t.holder.ID == id:
		return nil
	case t.holder.Name == w.name:
		return fmt.Errorf("%w: %q", account.ErrAccountExists, w.name)
	case w.granted, known && !now.Before(until):
		return nil
	default:
		return kept(w.name, t.holder.Account, until)
	}
}

// kept is the error for a name of an account that has another name now, or is gone.
func kept(name string, by account.Account, until time.Time) error {
	now, end := fmt.Sprintf("is called %q now", by.Name), "while that account exists"
	if !by.Exists() {
		now = "was deleted"
	}
	if !until.IsZero() {
		end = "until " + entry.Stamp(until)
	}
	return fmt.Errorf("%w: %q was the name of %s, which %s, and is nobody else's "+
		"%s", account.ErrAccountExists,
		name, by.ID, now, end)
}

// wanted is a name that an account should get.
type wanted struct {
	name    string
	granted bool // an operator allows it although it would be refused for its look
}

// want checks a name by itself. Its errors are ErrNotAllowed for an actor who grants a name and is not an
// operator, and an *input.Error.
func want(by access.Actor, name string, grant bool) (wanted, error) {
	if grant && by.Kind != access.ActorOperator {
		return wanted{}, fmt.Errorf("%w: only an operator grants a name", access.ErrNotAllowed)
	}
	clean, err := naming.Check(name)
	if err == nil && account.IsID(clean) { // commands take either, and one's name must not be another's id
		err = &input.Error{Field: "name", Detail: fmt.Sprintf(
			"%q has the form of an account's id; choose another name, for example %q", clean, "Harbor Guild")}
	}
	if err == nil && !grant {
		err = naming.Judge(clean)
	}
	return wanted{clean, grant}, err
}

// unlike refuses a name that looks like one that another account has, or had and keeps. It reads all of them:
// accounts of older builds are in no index. If two processes make two names that look alike at the same
// instant, both are made; Doubts reports them. The error is an *input.Error, or ErrAccountExists.
func (s accounts) unlike(ctx context.Context, w wanted, id string, now time.Time) error {
	entries, err := entry.List(ctx, s.conn, topology.BucketAccounts, ">")
	if err != nil {
		return err
	}
	look := naming.LookOf(w.name)
	for _, e := range entries {
		a := record.Outline(e.Key, e.Value)
		if a.ID == id || a.Name == "" {
			continue
		}
		if a.Exists() && look.Like(naming.LookOf(a.Name)) {
			if a.Name == w.name {
				return fmt.Errorf("%w: %q", account.ErrAccountExists, w.name)
			}
			return &input.Error{Field: "name", Detail: fmt.Sprintf(
				"%q looks like %q, which another account is called; choose a name that nobody takes for it",
				w.name, a.Name)}
		}
		for _, f := range formerOf(a) {
			if !w.granted && now.Before(f.Until) && look.Like(naming.LookOf(f.Name)) {
				return kept(w.name, a, f.Until)
			}
		}
	}
	return nil
}

// formerOf returns the names that an account no longer has: for a deleted account, its last one too.
func formerOf(a account.Account) []naming.Former {
	if a.DeletedAt.IsZero() {
		return a.Former
	}
	return append(slices.Clone(a.Former), naming.Former{Name: a.Name, Until: a.DeletedAt.Add(naming.Kept)})
}

// leading returns the message that makes the name lead to an account.
func (s accounts) leading(t title, id string) (*nats.Msg, error) {
	if t.at > 0 {
		if err := record.AccountRewritable(t.data); err != nil {
			return nil, fmt.Errorf("account %s: %w", t.entry, err)
		}
	}
	leading := t.stored
	leading.ID, leading.LeadsTo = t.entry, id
	if leading.CreatedAt.IsZero() {
		leading.CreatedAt = s.log.Instant()
	}
	data, err := leading.Encode(s.box)
	if err != nil {
		return nil, fmt.Errorf("encode name: %w", err)
	}
	return entry.Message(topology.BucketAccounts, t.entry, data, t.at), nil
}

// CreateAccount makes an account with a signing secret and, if given, its first owner. Its errors are
// ErrAccountExists and an *input.Error.
func (s accounts) CreateAccount(ctx context.Context, by access.Actor, name string,
	owners ...account.Member) (account.Account, error) {
	w, err := want(by, name, false)
	if err != nil {
		return account.Account{}, err
	}
	return s.createAs(ctx, by, w, owners)
}

// GrantAccount is CreateAccount for a name that an operator lets an account have, though it is reserved,
// mixes scripts, or is kept for the account that had it before. The audit log records that.
func (s accounts) GrantAccount(ctx context.Context, by access.Actor, name string) (account.Account, error) {
	w, err := want(by, name, true)
	if err != nil {
		return account.Account{}, err
	}
	return s.createAs(ctx, by, w, nil)
}

func (s accounts) createAs(ctx context.Context, by access.Actor, w wanted,
	owners []account.Member) (account.Account, error) {
	now := s.log.Instant()
	a := record.Account{Account: account.Account{
		Name: w.name, Granted: w.granted, CreatedAt: now,
		Secrets: []account.Secret{{Value: secrets.NewSigning(), CreatedAt: now}},
	}}
	for _, m := range owners {
		m.Role = access.RoleOwner
		m, err := m.Checked(now)
		if err != nil {
			return account.Account{}, err
		}
		if a.Members, err = a.Admit(m); err != nil {
			return account.Account{}, err
		}
	}
	done, err := s.log.Turn(ctx)
	if err != nil {
		return account.Account{}, err
	}
	defer done()
	if err := natsconf.Retry(ctx, func() error { return s.create(ctx, by, w, &a) }); err != nil {
		return account.Account{}, err
	}
	return a.Account, s.log.Conclude(ctx, a.Last)
}

// create stores a new account under the id of its name, or under one of its own if a deleted account had that
// id.
func (s accounts) create(ctx context.Context, by access.Actor, w wanted, a *record.Account) error {
	t, err := s.title(ctx, a.Name)
	if err == nil {
		err = t.taken(w, "", s.log.Instant())
	}
	if err == nil {
		err = s.unlike(ctx, w, "", s.log.Instant())
	}
	if err != nil {
		return err
	}
	a.ID = t.entry
	if t.at > 0 {
		a.ID = account.NewID()
	}
	a.Last, err = s.log.Draft(ctx, by, a.ID, life.Created, "", map[string]string{"name": a.Name,
		"granted": grantedText(w.granted)})
	if err != nil {
		return err
	}
	data, err := a.Encode(s.box)
	if err != nil {
		return err
	}
	if t.at > 0 {
		return s.under(ctx, t, *a, data, 0)
	}
	_, err = s.kv.Create(ctx, a.ID, data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyExists):
		err = natsconf.ErrConflict
	default:
		err = natsconf.Kind(err)
	}
	return s.unlessStored(ctx, *a, fmt.Errorf("create account: %w", err))
}

// unlessStored returns what an error of a write of an account means: nil if the stored record is the one that
// was written, since an answer may have been lost.
func (s *records) unlessStored(ctx context.Context, a record.Account, err error) error {
	if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
		return err
	}
	stands, _, rerr := s.remains(ctx, a.ID)
	if rerr == nil && stands.Last != nil && stands.Last.ID == a.Last.ID {
		return nil
	}
	return err
}

// under stores an account together with the name that leads to it. revision is the account's own; 0: it is
// new. The error is natsconf.ErrConflict if the name or the account has changed.
func (s accounts) under(ctx context.Context, t title, a record.Account, data []byte, revision uint64) error {
	lead, err := s.leading(t, a.ID)
	if err != nil {
		return err
	}
	ours := entry.Message(topology.BucketAccounts, a.ID, data, revision)
	err = s.conn.PublishBatch(ctx, topology.BucketStream(topology.BucketAccounts), lead, ours)
	if err == nil {
		return nil
	}
	return s.unlessStored(ctx, a, err)
}

// Doubt is an account whose name users may take for another's: it was made before such names were refused, or
// at the same instant as the other one.
type Doubt struct {
	Account account.Account // without its secrets
	Why     string
}

// Doubts reads the names of all accounts and returns those that would be refused today and that no operator
// has granted. It opens no secret. Its errors are natsconf's.
func Doubts(ctx context.Context, c *natsconf.Conn) ([]Doubt, error) {
	entries, err := entry.List(ctx, c, topology.BucketAccounts, ">")
	if err != nil {
		return nil, err
	}
	var doubts []Doubt
	first := map[string]account.Account{} // by how its name looks
	for _, e := range entries {
		a := record.Outline(e.Key, e.Value)
		if !a.Exists() || a.Granted {
			continue
		}
		if _, err := want(access.Operator(""), a.Name, false); err != nil {
			doubts = append(doubts, Doubt{a, err.Error()})
		}
		for i, look := range naming.LookOf(a.Name) {
			look = fmt.Sprint(i, look)
			if other, known := first[look]; known && other.ID != a.ID {
				doubts = append(doubts, Doubt{a, fmt.Sprintf("it looks like %q (%s)", other.Name, other.ID)})
				break
			}
			first[look] = a
		}
	}
	return doubts, nil
}
