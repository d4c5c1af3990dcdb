package accountstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/record"
	"verifyd/edge/account/signing"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// records reads and writes the records of accounts.
type records struct {
	Now func() time.Time // set by tests; nil: the store's time

	conn     *natsconf.Conn
	box      *secretbox.Box
	sign     *signing.Keys
	log      *audit.Log
	grants   *grant.Store
	own      []string // see Store.OwnNames
	meetings *secretbox.Hash
}

func (s *records) account(ctx context.Context, id string) (record.Account, entry.Entry, error) {
	a, e, err := s.readEntry(ctx, id)
	if err == nil && !a.Exists() {
		err = account.ErrNoAccount
	}
	return a, e, err
}

// readEntry is account for anything in the entry of an id: an account, the rest of one that was deleted, or
// a name that leads to another account.
func (s *records) readEntry(ctx context.Context,
	id string) (record.Account, entry.Entry, error) {
	if !account.IsID(id) {
		return record.Account{}, entry.Entry{}, account.ErrNoAccount
	}
	e, err := entry.Get(ctx, s.conn, topology.BucketAccounts, id)
	if errors.Is(err, natsconf.ErrNotFound) {
		return record.Account{}, entry.Entry{}, account.ErrNoAccount
	}
	if err != nil {
		return record.Account{}, entry.Entry{}, fmt.Errorf("read account: %w", err)
	}
	a, err := record.DecodeAccount(id, e.Value, s.box)
	return a, e, err
}

// errUnchanged is what an edit returns that finds nothing to do.
var errUnchanged = errors.New("unchanged")

// change is changeNow in the account's turn.
func (s *records) change(ctx context.Context, by access.Actor, id string, action access.Action,
	edit func(*account.Account) (audit.Record, error)) (account.Account, error) {
	done, err := s.log.Turn(ctx, id)
	if err != nil {
		return account.Account{}, err
	}
	defer done()
	return s.changeNow(ctx, by, id, action, edit)
}

// changeNow lets edit alter an account, if the actor may, and stores it with the record of the change: edit
// returns what was done, on what, and its detail. It starts over when another change came first, so that edit
// may run several times. The errors are edit's,
// ErrNoAccount, ErrNotAllowed, and that of a record that a newer build has written.
func (s *records) changeNow(ctx context.Context, by access.Actor, id string, action access.Action,
	edit func(*account.Account) (audit.Record, error)) (account.Account, error) {
	var a record.Account
	err := natsconf.Retry(ctx, func() (err error) {
		var e entry.Entry
		if a, e, err = s.account(ctx, id); err == nil {
			err = s.permit(ctx, a.Account, by, action)
		}
		if err != nil {
			return err
		}
		d, err := edit(&a.Account)
		if err != nil {
			return cmp.Or(s.log.Repair(ctx, a.Last), err)
		}
		if err = record.AccountRewritable(e.Value); err != nil && !d.TakesAway() {
			return fmt.Errorf("account %s: %w", id, err)
		}
		d.Account, d.Who = a.ID, by
		if a.Last, err = s.log.Follow(ctx, a.Last, d); err != nil {
			return err
		}
		data, err := a.Encode(s.box)
		if err == nil {
			data, err = record.KeepAccount(e.Value, data)
		}
		if err != nil {
			return err
		}
		return s.putAccount(ctx, a, data, e.Revision)
	})
	if err != nil {
		return unlessUnchanged(a, err)
	}
	return a.Account, s.log.Conclude(ctx, a.Last)
}

// unlessUnchanged returns the result of a change that was not made: no error if there was nothing to change.
func unlessUnchanged(a record.Account, err error) (account.Account, error) {
	if errors.Is(err, errUnchanged) {
		return a.Account, nil
	}
	return account.Account{}, err
}

// encode returns an account as it is stored, with the record of a change that it gets.
func (s *records) encode(ctx context.Context, by access.Actor, a *record.Account,
	d audit.Record) (_ []byte, err error) {
	d.Account, d.Who = a.ID, by
	if a.Last, err = s.log.Draft(ctx, d); err != nil {
		return nil, err
	}
	return a.Encode(s.box)
}

// readForChange is account for an actor who may do that to it. The audit log has its last change by then.
func (s *records) readForChange(ctx context.Context, by access.Actor, id string,
	action access.Action) (record.Account, entry.Entry, error) {
	a, e, err := s.account(ctx, id)
	if err != nil {
		return a, e, err
	}
	if err := s.log.Repair(ctx, a.Last); err != nil {
		return a, e, err
	}
	return a, e, s.permit(ctx, a.Account, by, action)
}

// permit checks an actor's right against the account, and against the grants of operators and login links, as
// they are stored now: a member who was removed or a grant that was revoked a moment ago changes nothing,
// whatever a mirror or a page still shows. The error is ErrNotAllowed, or natsconf's.
//
// In a disabled account only the operator changes anything; for others the error is account.ErrDisabled. They
// may leave it, which takes the right to view it, and if only its owners took it out of service, restore it.
func (s *records) permit(ctx context.Context, a account.Account, by access.Actor,
	action access.Action) error {
	mayRestore := action == access.ActionRestore && !a.Barred()
	if !a.DisabledAt.IsZero() && by.Kind != access.ActorOperator && !mayRestore &&
		action != access.ActionView {
		return account.ErrDisabled
	}
	if action == access.ActionInvited {
		return nil
	}
	if by.Kind == access.ActorOperator {
		return s.grants.PermitOperator(ctx, by)
	}
	role, err := s.roleOf(ctx, a, by)
	if err != nil {
		return err
	}
	if !role.May(action) {
		return fmt.Errorf("%w: %s is %s of %s, which does not include the right to %q", access.ErrNotAllowed,
			by, role, a.Name, action)
	}
	return nil
}

// roleOf returns an actor's role in an account. The error is ErrNotAllowed for an actor who has none there.
func (s *records) roleOf(ctx context.Context, a account.Account, by access.Actor) (access.Role, error) {
	switch by.Kind {
	case access.ActorMember:
		m, ok := a.Member(by.Network, by.Subject)
		if !ok {
			return "", fmt.Errorf("%w: %s is not a member of %s", access.ErrNotAllowed, by, a.Name)
		}
		return m.Role, nil
	case access.ActorLink:
		g, err := s.grants.LoginLinkGrant(ctx, a.ID, by.ID)
		if errors.Is(err, grant.ErrNoLink) {
			return "", fmt.Errorf("%w: %s no longer grants anything in %s", access.ErrNotAllowed, by, a.Name)
		}
		return g.Role, err
	case access.ActorOperator, access.ActorKey:
	}
	return "", fmt.Errorf("%w: %s changes nothing in an account", access.ErrNotAllowed, by)
}

// put replaces an entry that has not changed since it was read. Its errors are natsconf's: ErrConflict if it
// has.
func (s *records) put(ctx context.Context, bucket, name string, data []byte, revision uint64) error {
	if err := entry.Put(ctx, s.conn, bucket, name, data, revision); err != nil {
		return fmt.Errorf("store the change: %w", err)
	}
	return nil
}

// listAccounts lists the records in the entries of all accounts, by name. Those that cannot be read are left
// out and reported. If a newer build has written some, it returns the others with natsconf.ErrNewer.
func (s *records) listAccounts(ctx context.Context) ([]record.Account, error) {
	entries, err := entry.List(ctx, s.conn, topology.BucketAccounts, record.AllAccounts)
	if err != nil {
		return nil, err
	}
	accounts := make([]record.Account, 0, len(entries))
	for _, e := range entries {
		if e.Key == storestate.CheckEntry {
			continue
		}
		a, derr := record.DecodeAccount(e.Key, e.Value, s.box)
		if derr != nil {
			err = errors.Join(err, s.log.LeaveOut(derr))
			continue
		}
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b record.Account) int { return cmp.Compare(a.Name, b.Name) })
	return accounts, err
}

// putAccount is put for an account.
func (s *records) putAccount(ctx context.Context, a record.Account, data []byte, revision uint64) error {
	if !a.DeletedAt.IsZero() {
		return s.putWithoutHistory(ctx, a.ID, data, revision)
	}
	return s.put(ctx, topology.BucketAccounts, a.ID, data, revision)
}

// putWithoutHistory is put for an account's record that keeps no earlier revision: those hold secrets, and
// members. Buckets that a build before 0.10.0 made keep five, so it is stored as often.
func (s *records) putWithoutHistory(ctx context.Context, id string, data []byte, revision uint64) error {
	stream := topology.BucketStream(topology.BucketAccounts)
	bucket, err := s.conn.JS.Stream(ctx, stream)
	if err != nil {
		return natsconf.Kind(err)
	}
	msgs := []*nats.Msg{entry.Message(topology.BucketAccounts, id, data, revision)}
	for range bucket.CachedInfo().Config.MaxMsgsPerSubject - 1 {
		msgs = append(msgs, &nats.Msg{Subject: msgs[0].Subject, Data: data})
	}
	if err := s.conn.PublishBatch(ctx, stream, msgs...); err != nil {
		return fmt.Errorf("store the change: %w", err)
	}
	return nil
}

func (s *records) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return s.conn.Clock.Now()
}

// PublicKeys returns the public keys that callbacks of an account are checked with now, the current one
// first.
func (s *records) PublicKeys(a account.Account) []signing.PublicKey { return s.sign.Public(a, s.now()) }
