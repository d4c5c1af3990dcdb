package accountstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
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
	entry  string         // of the name
	stored record.Account // what stands there; zero where nothing does, as is revision
	data   []byte
	at     uint64
	holder record.Account // who has the name, or had it before; zero: it is free
}

// title reads who has a name.
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
	if a.Exists() {
		t.holder = a
		return t, nil
	}
	if a.LeadsTo == "" {
		return t, nil
	}
	t.holder, _, err = s.account(ctx, a.LeadsTo)
	if errors.Is(err, account.ErrNoAccount) {
		t.holder, err = record.Account{}, nil
	}
	return t, err
}

// taken returns why the name cannot be taken for an account; nil: it can be.
func (t title) taken(name, id string) error {
	switch {
	case t.holder.ID == "", t.holder.ID == id:
		return nil
	case t.holder.Name == name:
		return fmt.Errorf("%w: %q", account.ErrAccountExists, name)
	default:
		return fmt.Errorf("%w: %q was the name of %s, which is called %q now and keeps its old names",
			account.ErrAccountExists, name, t.holder.ID, t.holder.Name)
	}
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

// CreateAccount makes an account with a signing secret and, where given, its first owner. Its errors are
// ErrAccountExists and an *input.Error.
func (s accounts) CreateAccount(ctx context.Context, by access.Actor, name string,
	owners ...account.Member) (account.Account, error) {
	if err := account.CheckName(name); err != nil {
		return account.Account{}, err
	}
	now := s.log.Instant()
	a := record.Account{Account: account.Account{
		Name: name, CreatedAt: now, Secrets: []account.Secret{{Value: secrets.NewSigning(), CreatedAt: now}},
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
	if err := natsconf.Retry(ctx, func() error { return s.create(ctx, by, &a) }); err != nil {
		return account.Account{}, err
	}
	return a.Account, s.log.Conclude(ctx, a.Last)
}

// create stores a new account under the id of its name, or under one of its own where an account that was
// deleted had that.
func (s accounts) create(ctx context.Context, by access.Actor, a *record.Account) error {
	t, err := s.title(ctx, a.Name)
	if err == nil {
		err = t.taken(a.Name, "")
	}
	if err != nil {
		return err
	}
	a.ID = t.entry
	if t.at > 0 {
		a.ID = account.NewID()
	}
	a.Last, err = s.log.Draft(ctx, by, a.ID, audit.AccountCreated, "", map[string]string{"name": a.Name})
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
	return s.unlessOurs(ctx, *a, fmt.Errorf("create account: %w", err))
}

// unlessOurs returns what an error of a write of an account means: nothing where what stands is what was
// written, since an answer may have been lost.
func (s accounts) unlessOurs(ctx context.Context, a record.Account, err error) error {
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
// new. The error is natsconf.ErrConflict where the name or the account has changed.
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
	return s.unlessOurs(ctx, a, err)
}

// RenameAccount returns an account another name; its id stays, and so does all that belongs to it. A repeat
// is harmless. Its errors are ErrAccountExists, also for a name that another account had before,
// ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s accounts) RenameAccount(ctx context.Context, by access.Actor, id, name string) (account.Account,
	error) {
	if err := account.CheckName(name); err != nil {
		return account.Account{}, err
	}
	done, err := s.log.Turn(ctx)
	if err != nil {
		return account.Account{}, err
	}
	defer done()
	var a record.Account
	err = natsconf.Retry(ctx, func() (err error) {
		a, err = s.rename(ctx, by, id, name)
		return err
	})
	if errors.Is(err, errUnchanged) {
		return a.Account, nil
	}
	if err != nil {
		return account.Account{}, err
	}
	return a.Account, s.log.Conclude(ctx, a.Last)
}

func (s accounts) rename(ctx context.Context, by access.Actor, id, name string) (record.Account, error) {
	a, e, err := s.account(ctx, id)
	if err == nil {
		err = s.log.Settle(ctx, a.Last)
	}
	if err == nil {
		err = s.permit(ctx, a.Account, by, access.ActionOperate)
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
		err = record.AccountRewritable(e.Value())
	}
	if err != nil {
		return a, fmt.Errorf("rename account %s: %w", id, err)
	}
	a.Last, err = s.log.Draft(ctx, by, id, audit.AccountRenamed, "", map[string]string{"from": a.Name,
		"to": name})
	if err != nil {
		return a, err
	}
	a.Name = name
	data, err := a.Encode(s.box)
	if err != nil {
		return a, err
	}
	if t.entry == id { // it takes back the name that it was made with
		return a, s.put(ctx, s.kv, id, data, e.Revision())
	}
	return a, s.under(ctx, t, a, data, e.Revision())
}

// EnsureAccount returns the account of that name and makes it, with a signing secret, when it is missing.
// Harmless to repeat.
func (s accounts) EnsureAccount(ctx context.Context, by access.Actor, name string) (account.Account, error) {
	a, err := s.CreateAccount(ctx, by, name)
	if errors.Is(err, account.ErrAccountExists) {
		return s.AccountByName(ctx, name)
	}
	return a, err
}

// AccountByName returns an account, by its name or its id, with its signing secrets. The error is
// ErrNoAccount where there is none, and says which names are near.
func (s accounts) AccountByName(ctx context.Context, name string) (account.Account, error) {
	if account.IsID(name) {
		a, _, err := s.remains(ctx, name)
		switch {
		case err == nil && a.Exists():
			return a.Account, nil
		case err == nil && !a.DeletedAt.IsZero():
			return account.Account{}, fmt.Errorf("%w: %s was deleted on %s; %s", account.ErrNoAccount, name,
				entry.Stamp(a.DeletedAt), listThem)
		case err != nil && !errors.Is(err, account.ErrNoAccount):
			return account.Account{}, err
		}
	}
	t, err := s.title(ctx, name)
	switch {
	case err != nil:
		return account.Account{}, err
	case t.holder.ID == "":
		return account.Account{}, s.noAccount(ctx, name)
	case t.holder.Name != name:
		return account.Account{}, fmt.Errorf("%w: %q was the name of %s, which is called %q now; %s",
			account.ErrNoAccount, name, t.holder.ID, t.holder.Name, listThem)
	}
	return t.holder.Account, nil
}

// maxNearest bounds the names that are offered for one that nobody has.
const maxNearest = 3

// listThem says how accounts are found.
const listThem = "list them with: verifyd account list"

// noAccount is the error for a name that nobody has, with the names that may have been meant.
func (s accounts) noAccount(ctx context.Context, name string) error {
	accounts, err := s.Accounts(ctx)
	if err != nil { // the names are a help, and no more
		return fmt.Errorf("%w: %q; %s", account.ErrNoAccount, name, listThem)
	}
	near := nearest(name, accounts)
	if len(near) == 0 {
		return fmt.Errorf("%w: %q; %s", account.ErrNoAccount, name, listThem)
	}
	return fmt.Errorf("%w: %q; there is %s; %s", account.ErrNoAccount, name, strings.Join(near, ", "),
		listThem)
}

// nearest returns the quoted names that differ least from one: by a third of its letters at most, or by what
// stands around it.
func nearest(name string, accounts []account.Account) []string {
	type candidate struct {
		name string
		off  int
	}
	var near []candidate
	wanted := []rune(strings.ToLower(name))
	for _, a := range accounts {
		lower := strings.ToLower(a.Name)
		off := distance(wanted, []rune(lower))
		if off <= max(2, len(wanted)/3) || len(wanted) > 2 && strings.Contains(lower, string(wanted)) {
			near = append(near, candidate{strconv.Quote(a.Name), off})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.off, b.off) })
	var names []string
	for _, c := range near[:min(len(near), maxNearest)] {
		names = append(names, c.name)
	}
	return names
}

// distance counts the letters to add, take away or change that lead from one text to another (Levenshtein).
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			change := diagonal
			if x != y {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
