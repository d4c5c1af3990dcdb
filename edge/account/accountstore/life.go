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
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/record"
	"verifyd/natsconf"
)

// lives changes an account's name, whether it is in service, and when it ends.
type lives struct{ accounts }

// maxFormer bounds the names that are kept for an account whose owners change it: otherwise they could keep
// any number from others. Operators have no such bound.
const maxFormer = 5

// RenameAccount changes the name of an account; its id stays, and so does everything that belongs to it. No
// other account can take the old name for naming.Kept; the account itself may take it back. With grant an
// operator allows a name as GrantAccount does, also the one that it has. A repeat is harmless. Its errors are
// ErrAccountExists, ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s lives) RenameAccount(ctx context.Context, by access.Actor, id, name string,
	grant bool) (account.Account, error) {
	var r renaming
	err := natsconf.Retry(ctx, func() (err error) {
		if r, err = s.planRename(ctx, by, id, name, grant); err != nil {
			return err
		}
		// before the turn, for which the account's other changes wait
		meetings, err := s.checkOthers(ctx, r.to, id, access.Identity{}, s.log.Instant())
		if err != nil {
			return err
		}
		done, err := s.log.Turn(ctx, id)
		if err != nil {
			return err
		}
		defer done()
		if r, err = s.planRename(ctx, by, id, name, grant); err != nil {
			return err
		}
		return s.storeRename(ctx, by, &r, meetings)
	})
	if err != nil {
		return unlessUnchanged(r.account, err)
	}
	return r.account.Account, s.log.Conclude(ctx, r.account.Last)
}

// renaming is a rename that is allowed, unless the name looks like another one.
type renaming struct {
	to       requestedName
	account  record.Account // with its new name
	revision uint64         // of the account as it was read
	name     nameEntry
	did      audit.Record
}

// planRename reads what a rename depends on, and judges all of it but the look of the name. It is called once
// more in the turn: the account, the name and the actor's rights may have changed since.
func (s lives) planRename(ctx context.Context, by access.Actor, id, name string,
	grant bool) (r renaming, err error) {
	a, e, err := s.readForChange(ctx, by, id, access.ActionAccount)
	if err != nil {
		return r, err
	}
	now := s.log.Instant()
	r.account, r.revision = a, e.Revision
	if r.to, err = checkName(by, a.Account, name, grant, now, s.own); err != nil {
		return r, fmt.Errorf("rename account %s: %w", id, err)
	}
	if r.name, err = s.readFreeName(ctx, r.to, id, now); err != nil {
		return r, fmt.Errorf("rename account %s: %w", id, err)
	}
	if err := record.AccountRewritable(e.Value); err != nil {
		return r, fmt.Errorf("rename account %s: %w", id, err)
	}
	r.did, err = applyName(&r.account, r.to, by, now)
	return r, err
}

// storeRename stores a renamed account, with the name that leads to it.
func (s lives) storeRename(ctx context.Context, by access.Actor, r *renaming, meetings []*nats.Msg) error {
	if r.name.id == r.account.ID { // it takes back the name that it was made with
		r.account.LeadsTo = ""
	}
	data, err := s.encode(ctx, by, &r.account, r.did)
	if err != nil {
		return err
	}
	return s.putNamed(ctx, r.name, r.account, data, r.revision, meetings)
}

// applyName changes the name of an account to one that it may have. The error is an *input.Error.
func applyName(a *record.Account, r requestedName, by access.Actor, now time.Time) (audit.Record, error) {
	if a.Name == r.name {
		a.Granted = true
		return audit.Record{What: audit.NameGranted, Detail: map[string]string{"name": r.name}}, nil
	}
	kept := 0
	for _, f := range a.Former {
		if now.Before(f.Until) && f.Name != r.name {
			kept++
		}
	}
	if kept >= maxFormer && by.Kind != access.ActorOperator {
		return audit.Record{}, input.Wrong("name", "%d former names are already kept for this account, "+
			"which is the limit; take one of them back, or ask the operator", kept)
	}
	until := now.Add(naming.Kept)
	d := audit.Record{What: audit.AccountRenamed, Detail: map[string]string{
		"from": a.Name, "to": r.name, "kept_until": entry.Stamp(until), "granted": grantedText(r.granted),
	}}
	if !a.VerifiedAt.IsZero() {
		d.Detail["verified_lost"] = "yes"
	}
	a.Former = append(slices.DeleteFunc(slices.Clone(a.Former), func(f naming.Former) bool {
		return f.Name == r.name || f.Name == a.Name
	}), naming.Former{Name: a.Name, Until: until})
	a.Name, a.Granted, a.VerifiedAt = r.name, r.granted, time.Time{}
	return d, nil
}

func grantedText(granted bool) string {
	if granted {
		return "yes"
	}
	return ""
}

// Disable takes an account out of service: its keys are refused, and its users can no longer sign in, until
// it is enabled again. Existing outcomes are delivered all the same. The reason is for its members; it may be
// empty. A repeat is harmless. Its errors are ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s lives) Disable(ctx context.Context, by access.Actor, id, reason string) (account.Account, error) {
	if err := input.Text("reason", reason, input.ReasonBytes); err != nil {
		return account.Account{}, err
	}
	return s.changeNow(ctx, by, id, access.ActionOperate, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		if a.Barred() && a.DisabledReason == reason {
			return audit.Record{}, errUnchanged
		}
		if !a.Barred() {
			a.DisabledAt = after(a.DeleteAskedAt, now)
		}
		a.DisabledReason = reason
		return audit.Record{What: audit.AccountDisabled, Detail: map[string]string{"reason": reason}}, nil
	})
}

// after returns an instant that differs from another one: these instants distinguish an account that an
// operator disabled from one that only waits for its end.
func after(other, now time.Time) time.Time {
	if now.Equal(other) {
		return now.Add(time.Millisecond)
	}
	return now
}

// ErrDeletionAsked is returned if an account cannot be enabled, because its deletion was requested.
var ErrDeletionAsked = errors.New("its deletion was requested; cancel that first, with restore")

// Enable puts a disabled account back into service. A repeat is harmless. Its errors are ErrDeletionAsked,
// ErrNoAccount and ErrNotAllowed.
func (s lives) Enable(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionOperate, func(a *account.Account) (audit.Record, error) {
		switch {
		case !a.Barred() && !a.DeleteAskedAt.IsZero():
			return audit.Record{}, ErrDeletionAsked
		case !a.Barred():
			return audit.Record{}, errUnchanged
		}
		a.DisabledAt, a.DisabledReason = a.DeleteAskedAt, ""
		return audit.Record{What: audit.AccountEnabled}, nil
	})
}

// AskDeletion takes an account out of service. The account is deleted after account.DeleteGrace, unless it is
// restored before. A repeat is harmless, and begins no new grace. Its errors are ErrNoAccount, ErrNotAllowed
// and account.ErrDisabled.
func (s lives) AskDeletion(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.changeNow(ctx, by, id, access.ActionAccount, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		if !a.DeleteAskedAt.IsZero() {
			return audit.Record{}, errUnchanged
		}
		a.DeleteAskedAt = after(a.DisabledAt, now)
		if a.DisabledAt.IsZero() {
			a.DisabledAt = a.DeleteAskedAt
		}
		return audit.Record{What: audit.DeletionAsked,
			Detail: map[string]string{"at": entry.Stamp(a.DeletesAt())}}, nil
	})
}

// Restore withdraws the request to delete an account. One that an operator has disabled stays disabled, and
// only an operator restores it. A repeat is harmless. Its errors are ErrNoAccount, ErrNotAllowed and
// account.ErrDisabled.
func (s lives) Restore(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionRestore, func(a *account.Account) (audit.Record, error) {
		if a.DeleteAskedAt.IsZero() {
			return audit.Record{}, errUnchanged
		}
		if !a.Barred() {
			a.DisabledAt = time.Time{}
		}
		a.DeleteAskedAt = time.Time{}
		return audit.Record{What: audit.AccountRestored}, nil
	})
}

// SetVerified sets the mark that end users see next to an account's name, or removes it. The mark is for a
// name: an account that has another name by then does not get it. A repeat is harmless. Its errors are
// ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s lives) SetVerified(ctx context.Context, by access.Actor, id, name string,
	verified bool) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionOperate, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		switch {
		case a.VerifiedAt.IsZero() != verified:
			return audit.Record{}, errUnchanged
		case !verified:
			a.VerifiedAt = time.Time{}
			return audit.Record{What: audit.NameUnverified}, nil
		case a.Name != name:
			return audit.Record{}, input.Wrong("name",
				"the account is now called %q; check it before you verify that name", a.Name)
		}
		a.VerifiedAt = now
		return audit.Record{What: audit.NameVerified, Detail: map[string]string{"name": a.Name}}, nil
	})
}

// Deleted returns the rest of an account that was deleted, by its id. The error is ErrNoAccount if there is
// nothing.
func (s lives) Deleted(ctx context.Context, id string) (account.Account, error) {
	a, _, err := s.readEntry(ctx, id)
	if err == nil && a.DeletedAt.IsZero() {
		err = account.ErrNoAccount
	}
	return a.Account, err
}
