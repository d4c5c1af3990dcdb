package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/client/manage"
	handler "verifyd/edge/manage"
	"verifyd/edge/places"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
)

// Manager is the management interface (package edge/manage) as commands use it: that of a service, or that of
// this process on the store. The actor is the operator token, or the operator at the command line. An account
// is changed by its id.
//
// Where there is a store, it is used directly for what the interface does not do:
//
//   - an account is found by its name with the names that may have been meant (Find), and a key by the key
//     itself, which no path may hold (Roll, Revoke);
//   - names are judged by those of the service, which only its processes know (LearnNames);
//   - secrets are shown again, login links, operators and their tokens are granted and revoked, an account is
//     deleted at once, and a store is created (type Local, OnStoreOnly, Begin).
type Manager struct {
	*manage.Client

	st   *store.Store // nil: a service
	seen directory
}

// directory has what a service has in memory. It is empty but for lists.
type directory struct {
	names map[string]string
	keys  map[string][]account.Key
}

// Name is part of handler.Directory.
func (d directory) Name(id string) (string, bool) { name, ok := d.names[id]; return name, ok }

// Keys is part of handler.Directory.
func (d directory) Keys(id string) []account.Key { return d.keys[id] }

// onStore calls do with the interface of this process.
func onStore(do func(Manager) error) func(*store.Store) error {
	return func(st *store.Store) error {
		seen := directory{map[string]string{}, map[string][]account.Key{}}
		h, err := handler.New(handler.Config{
			Accounts: st.Accounts, Conn: st.Conn, Key: st.Ring, Directory: seen,
			Store: places.NewWaiting(places.DefaultStoreWait, places.DefaultWaiting),
		})
		if err != nil {
			return err
		}
		return do(Manager{manage.Over(h.Local(Operator())), st, seen})
	}
}

// Prepare reads what lists need. With natsconf.ErrNewer, which names what is left out of them, a list is
// shown all the same, and the command fails in the end: that error is in unread alone.
func (m Manager) Prepare(ctx context.Context) (unread, err error) {
	if m.st != nil {
		accounts, aerr := m.st.Accounts.EveryAccount(ctx) // including deleted ones, whose keys are listed
		keys, kerr := m.st.Accounts.Keys(ctx)
		for _, a := range accounts {
			m.seen.names[a.ID] = a.Name
		}
		for _, k := range keys {
			m.seen.keys[k.Account] = append(m.seen.keys[k.Account], k)
		}
		unread = errors.Join(aerr, kerr)
	}
	return unread, Lists(unread)
}

// Lists returns the errors beside which a list is not shown: all but natsconf.ErrNewer.
func Lists(err error) error {
	if errors.Is(err, natsconf.ErrNewer) {
		return nil
	}
	return err
}

// LearnNames asks the edges that run for the service's own names, which a command does not have among its
// settings, so that a name is judged here as it is there. Its error is natsconf.ErrUnavailable.
func (m Manager) LearnNames(ctx context.Context) error {
	if m.st == nil {
		return nil
	}
	all, err := fleet.Ask(ctx, m.st.Conn)
	var names []string
	for _, p := range all {
		names = append(names, p.Names...)
	}
	m.st.Accounts.OwnNames(names)
	return err
}

// Find returns the id of an account, by its name or its id.
func (m Manager) Find(ctx context.Context, name string) (id string, err error) {
	if m.st != nil {
		a, err := m.st.Accounts.AccountByName(ctx, name)
		return a.ID, BadInput(err)
	}
	if account.IsID(name) {
		return name, nil
	}
	found, err := m.AccountByName(ctx, name)
	if err != nil {
		return "", BadInput(err)
	}
	if found == nil {
		return "", config.Usage(fmt.Errorf("%w: %s; list them with: verifyd account list",
			account.ErrNoAccount, strconv.Quote(name)))
	}
	return found.ID, nil
}

// Own returns the account that a command is to change, by its name or its id; see OwnAccount. It has its id,
// its name and whether that is verified.
func (m Manager) Own(ctx context.Context, name string) (own account.Account, err error) {
	if m.st != nil {
		return OwnAccount(ctx, m.st.Accounts, name)
	}
	id, err := m.Find(ctx, name)
	if err != nil {
		return own, err
	}
	a, err := m.Account(ctx, id)
	if e, ok := errors.AsType[*manage.Error](err); ok && name == id && e.Code == manage.CodeScopeMissing {
		return account.Account{ID: id, Name: id}, nil // a token that is only for keys may not read accounts
	}
	if err != nil {
		return own, BadInput(err)
	}
	own = account.Account{ID: a.ID, Name: a.Name, VerifiedAt: Or(a.VerifiedAt)}
	if name == a.ID {
		return own, nil
	}
	by, at := access.Actor{}, time.Time{}
	if a.CreatedBy != nil {
		at = a.CreatedBy.At
		by = access.Actor{Kind: access.ActorKind(a.CreatedBy.Kind), Name: a.CreatedBy.Name}
	}
	return own, ownByName(own, a.Members, by, at, a.CreatedBy != nil)
}

// KeyHint returns the part of a key by which people recognize it: its prefix and last four characters.
func KeyHint(k account.Key) string { return k.Prefix() + "…" + k.Last4 }

// errNotStored is returned with what was created without knowing whether it is stored.
var errNotStored = fmt.Errorf("the store did not confirm it: %w", natsconf.ErrUncertain)

// Confirmed returns an error also if what was created may not be stored.
func Confirmed(stored bool, err error) error {
	if err == nil && !stored {
		return errNotStored
	}
	return err
}

// holder returns the id of the account that a key belongs to.
func (m Manager) holder(ctx context.Context, id string) (string, error) {
	k, err := m.KeyByID(ctx, id)
	if err != nil {
		return "", err
	}
	if k == nil {
		return "", fmt.Errorf("%w: %s; list them with: verifyd key list", account.ErrNoKey, strconv.Quote(id))
	}
	return k.Account, nil
}

// Roll puts a key in the place of another, by its id. With natsconf.ErrUncertain the new one is returned too.
func (m Manager) Roll(ctx context.Context, id string, grace time.Duration) (made manage.MadeKey, err error) {
	if m.st != nil {
		secret, k, err := m.st.Accounts.RollKey(ctx, Operator(), "", id, grace)
		return manage.MadeKey{Key: manage.Key{ID: k.ID, Replaces: &k.Replaces}, Secret: secret}, err
	}
	holder, err := m.holder(ctx, id)
	if err != nil {
		return made, err
	}
	if grace%time.Second != 0 {
		return made, errors.New("with --server, the grace is in whole seconds")
	}
	made, err = m.RollKey(ctx, holder, id, grace)
	return made, Confirmed(made.Stored, err)
}

// Revoke ends a key, by its id, and returns its id and when it ended.
func (m Manager) Revoke(ctx context.Context, id string) (ended string, at time.Time, err error) {
	if m.st != nil {
		k, err := m.st.Accounts.RevokeKey(ctx, Operator(), "", id)
		return k.ID, k.RevokedAt, err
	}
	holder, err := m.holder(ctx, id)
	if err != nil {
		return "", at, err
	}
	k, err := m.RevokeKey(ctx, holder, id)
	return k.ID, Or(k.RevokedAt), err
}

// Or returns the value of a pointer, or the zero value.
func Or[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// OrNull returns nil for the zero value, which is sent as null.
func OrNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
