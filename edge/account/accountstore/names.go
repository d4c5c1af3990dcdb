package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

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

// nameEntry is the entry of a name, as it was read.
type nameEntry struct {
	id       string         // of the entry
	stored   record.Account // the record there; zero if there is none, as are data and revision
	data     []byte
	revision uint64
	holder   record.Account // the account that has the name, or had it before; zero: it is free
}

// readName reads which account has a name.
func (s accounts) readName(ctx context.Context, name string) (n nameEntry, err error) {
	n.id = account.IDOf(name)
	a, e, err := s.readEntry(ctx, n.id)
	if errors.Is(err, account.ErrNoAccount) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	n.stored, n.data, n.revision = a, e.Value, e.Revision
	if a.LeadsTo != "" {
		n.holder, _, err = s.account(ctx, a.LeadsTo)
		if !errors.Is(err, account.ErrNoAccount) {
			return n, err
		}
		n.holder = record.Account{}
	}
	if a.Exists() {
		n.holder = a
	}
	return n, nil
}

// readFreeName reads the entry of a name that the account of an id, empty for a new one, can take. Its error
// is ErrAccountExists.
func (s accounts) readFreeName(ctx context.Context, r requestedName, id string,
	now time.Time) (nameEntry, error) {
	n, err := s.readName(ctx, r.name)
	if err != nil {
		return n, err
	}
	return n, n.checkFree(r, id, now)
}

// checkFree refuses a name that is, or was, that of another account than id's, unless it is free by now.
func (n nameEntry) checkFree(r requestedName, id string, now time.Time) error {
	until, known := n.holder.KeptUntil(r.name)
	switch {
	case n.holder.ID == "", n.holder.ID == id:
		return nil
	case n.holder.Name == r.name:
		return fmt.Errorf("%w: %q", account.ErrAccountExists, r.name)
	case r.granted, known && !now.Before(until):
		return nil
	default:
		return kept(r.name, n.holder.Account, until)
	}
}

// kept is the error for a name of an account that has another name now, or is gone.
func kept(name string, by account.Account, until time.Time) error {
	now, end := fmt.Sprintf("is now called %q", by.Name), "while that account exists"
	if !by.Exists() {
		now = "was deleted"
	}
	if !until.IsZero() {
		end = "until " + entry.Stamp(until)
	}
	return fmt.Errorf("%w: %q was the name of %s, which %s; nobody else can take it %s",
		account.ErrAccountExists, name, by.ID, now, end)
}

// requestedName is a name that an account should get.
type requestedName struct {
	name    string
	granted bool // an operator allows it although it would be refused for its look
}

// checkName checks a name by itself. owner is the account that should get it, zero for a new one: a name that
// it had before and still keeps is not refused. own are the names of Store.OwnNames. The errors are
// errUnchanged if the owner has the name, ErrNotAllowed for an actor who grants a name and is not an
// operator, and an *input.Error.
func checkName(by access.Actor, owner account.Account, name string, grant bool, now time.Time,
	own []string) (requestedName, error) {
	if grant && by.Kind != access.ActorOperator {
		return requestedName{}, fmt.Errorf("%w: only an operator can grant a name", access.ErrNotAllowed)
	}
	clean, err := naming.Check(name)
	if err != nil {
		return requestedName{}, err
	}
	r := requestedName{clean, grant}
	until, _ := owner.KeptUntil(clean)
	switch {
	case owner.Name == clean && (!grant || owner.Granted):
		return r, errUnchanged
	case !grant && now.Before(until):
		return r, nil
	case account.IsID(clean): // commands take either, and one's name must not be another's id
		return r, &input.Error{Field: "name", Detail: fmt.Sprintf(
			"%q has the form of an account's id; choose another name, for example %q", clean, "Harbor Guild")}
	case grant:
		return r, nil
	default:
		return r, naming.Judge(clean, own...)
	}
}

// checkNoLookalike refuses a name that looks like one that another account has, or had and keeps. It reads
// all of them: accounts of older builds are in no index. So it is called before the turn, for which every
// other change waits. If two names that look alike are taken at the same instant, both are; Doubts reports
// them. The error is an *input.Error, or ErrAccountExists.
func (s accounts) checkNoLookalike(ctx context.Context, r requestedName, id string, now time.Time) error {
	entries, err := entry.List(ctx, s.conn, topology.BucketAccounts, ">")
	if err != nil {
		return err
	}
	look := naming.LookOf(r.name)
	for _, e := range entries {
		a := record.Outline(e.Key, e.Value)
		if a.ID == id || a.Name == "" {
			continue
		}
		if a.Exists() && look.Like(naming.LookOf(a.Name)) {
			if a.Name == r.name {
				return fmt.Errorf("%w: %q", account.ErrAccountExists, r.name)
			}
			return &input.Error{Field: "name", Detail: fmt.Sprintf(
				"%q looks like %q, the name of another account; choose one that nobody can mistake for it",
				r.name, a.Name)}
		}
		for _, f := range formerOf(a) {
			if !r.granted && now.Before(f.Until) && look.Like(naming.LookOf(f.Name)) {
				return kept(r.name, a, f.Until)
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

// pointerMessage returns the message that makes the name lead to an account.
func (s *records) pointerMessage(n nameEntry, id string) (*nats.Msg, error) {
	if n.revision > 0 {
		if err := record.AccountRewritable(n.data); err != nil {
			return nil, fmt.Errorf("account %s: %w", n.id, err)
		}
	}
	pointer := n.stored
	pointer.ID, pointer.LeadsTo = n.id, id
	if pointer.CreatedAt.IsZero() {
		pointer.CreatedAt = s.log.Instant()
	}
	data, err := pointer.Encode(s.box)
	if err != nil {
		return nil, fmt.Errorf("encode name: %w", err)
	}
	return entry.Message(topology.BucketAccounts, n.id, data, n.revision), nil
}

// CreateAccount makes an account with a signing secret and, if given, its first owner. Its errors are
// ErrAccountExists and an *input.Error.
func (s accounts) CreateAccount(ctx context.Context, by access.Actor, name string,
	owners ...account.Member) (account.Account, error) {
	return s.createAs(ctx, by, name, false, owners)
}

// GrantAccount is CreateAccount for a name that an operator lets an account have, though it is reserved,
// mixes scripts, or is kept for the account that had it before. The audit log records that.
func (s accounts) GrantAccount(ctx context.Context, by access.Actor, name string) (account.Account, error) {
	return s.createAs(ctx, by, name, true, nil)
}

func (s accounts) createAs(ctx context.Context, by access.Actor, name string, grant bool,
	owners []account.Member) (account.Account, error) {
	now := s.log.Instant()
	r, err := checkName(by, account.Account{}, name, grant, now, s.own)
	if err != nil {
		return account.Account{}, err
	}
	a := record.Account{Account: account.Account{
		Name: r.name, Granted: r.granted, CreatedAt: now,
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
	if _, err := s.readFreeName(ctx, r, "", now); err != nil {
		return account.Account{}, err
	}
	if err := s.checkNoLookalike(ctx, r, "", now); err != nil {
		return account.Account{}, err
	}
	done, err := s.log.Turn(ctx, account.IDOf(r.name))
	if err != nil {
		return account.Account{}, err
	}
	defer done()
	if err := natsconf.Retry(ctx, func() error { return s.create(ctx, by, r, &a) }); err != nil {
		return account.Account{}, err
	}
	return a.Account, s.log.Conclude(ctx, a.Last)
}

// create stores a new account under the id of its name, or under one of its own if a deleted account had that
// id.
func (s accounts) create(ctx context.Context, by access.Actor, r requestedName, a *record.Account) error {
	n, err := s.readFreeName(ctx, r, "", s.log.Instant())
	if err != nil {
		return err
	}
	a.ID = n.id
	if n.revision > 0 {
		a.ID = account.NewID()
	}
	data, err := s.encode(ctx, by, a, effect{what: life.Created, detail: map[string]string{
		"name": a.Name, "granted": grantedText(r.granted),
	}})
	if err != nil {
		return err
	}
	if n.revision > 0 {
		return s.putWithName(ctx, n, *a, data, 0)
	}
	if err = entry.Put(ctx, s.conn, topology.BucketAccounts, a.ID, data, 0); err != nil {
		return s.unlessStored(ctx, *a, fmt.Errorf("create account: %w", err))
	}
	return nil
}

// unlessStored returns what an error of a write of an account means: nil if the stored record is the one that
// was written, since an answer may have been lost.
func (s *records) unlessStored(ctx context.Context, a record.Account, err error) error {
	if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
		return err
	}
	stands, _, rerr := s.readEntry(ctx, a.ID)
	if rerr == nil && stands.Last != nil && stands.Last.ID == a.Last.ID {
		return nil
	}
	return err
}

// putWithName stores an account together with the name that leads to it. revision is the account's own; 0: it
// is new. The error is natsconf.ErrConflict if the name or the account has changed.
func (s *records) putWithName(ctx context.Context, n nameEntry, a record.Account, data []byte,
	revision uint64) error {
	pointer, err := s.pointerMessage(n, a.ID)
	if err != nil {
		return err
	}
	ours := entry.Message(topology.BucketAccounts, a.ID, data, revision)
	return s.unlessStored(ctx, a,
		s.conn.PublishBatch(ctx, topology.BucketStream(topology.BucketAccounts), pointer, ours))
}

// Doubt is an account whose name users may take for another's: it was made before such names were refused, or
// at the same instant as the other one.
type Doubt struct {
	Account account.Account // without its secrets
	Why     string
}

// Doubts reads the names of all accounts and returns those that would be refused today and that no operator
// has granted. It opens no secret. Its errors are natsconf's.
func Doubts(ctx context.Context, c *natsconf.Conn, own ...string) ([]Doubt, error) {
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
		_, err := checkName(access.Operator(""), account.Account{}, a.Name, false, time.Time{}, own)
		if err != nil {
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
