package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit/life"
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
	done, err := s.log.Turn(ctx)
	if err != nil {
		return account.Account{}, err
	}
	defer done()
	var a record.Account
	err = natsconf.Retry(ctx, func() (err error) {
		a, err = s.rename(ctx, by, id, name, grant)
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

func (s lives) rename(ctx context.Context, by access.Actor, id, name string,
	grant bool) (record.Account, error) {
	a, e, err := s.account(ctx, id)
	if err == nil {
		err = s.log.Settle(ctx, a.Last)
	}
	if err == nil {
		err = s.permit(ctx, a.Account, by, access.ActionAccount)
	}
	if err != nil {
		return a, err
	}
	w, err := want(by, name, grant)
	now := s.log.Instant()
	if a.Name == w.name && (!grant || a.Granted) {
		return a, errUnchanged
	}
	if until, known := a.KeptUntil(w.name); known && now.Before(until) && !grant {
		err = nil // it was its name already
	}
	var t title
	if err == nil {
		t, err = s.title(ctx, w.name)
	}
	if err == nil {
		err = t.taken(w, id, now)
	}
	if err == nil {
		err = s.unlike(ctx, w, id, now)
	}
	if err == nil {
		err = record.AccountRewritable(e.Value())
	}
	if err != nil {
		return a, fmt.Errorf("rename account %s: %w", id, err)
	}
	d, err := call(&a, w, by, now)
	if err != nil {
		return a, err
	}
	if a.Last, err = s.log.Draft(ctx, by, id, d.what, "", d.detail); err != nil {
		return a, err
	}
	if t.entry == id { // it takes back the name that it was made with
		a.LeadsTo = ""
	}
	data, err := a.Encode(s.box)
	if err != nil {
		return a, err
	}
	if t.entry == id {
		return a, s.put(ctx, s.kv, id, data, e.Revision())
	}
	return a, s.under(ctx, t, a, data, e.Revision())
}

// call changes the name of an account to one that it may have. The error is an *input.Error.
func call(a *record.Account, w wanted, by access.Actor, now time.Time) (effect, error) {
	if a.Name == w.name {
		a.Granted = true
		return effect{what: life.NameGranted, detail: map[string]string{"name": w.name}}, nil
	}
	kept := 0
	for _, f := range a.Former {
		if now.Before(f.Until) && f.Name != w.name {
			kept++
		}
	}
	if kept >= maxFormer && by.Kind != access.ActorOperator {
		return effect{}, &input.Error{Field: "name", Detail: fmt.Sprintf(
			"%d earlier names are kept for this account already, which is the limit; take one of them "+
				"back, or "+
				"ask the operator", kept)}
	}
	until := now.Add(naming.Kept)
	d := effect{what: life.Renamed, detail: map[string]string{
		"from": a.Name, "to": w.name, "kept_until": entry.Stamp(until), "granted": grantedText(w.granted),
	}}
	if !a.VerifiedAt.IsZero() {
		d.detail["verified_lost"] = "yes"
	}
	a.Former = append(slices.DeleteFunc(slices.Clone(a.Former), func(f naming.Former) bool {
		return f.Name == w.name || f.Name == a.Name
	}), naming.Former{Name: a.Name, Until: until})
	a.Name, a.Granted, a.VerifiedAt = w.name, w.granted, time.Time{}
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
	return s.change(ctx, by, id, access.ActionOperate, func(
		a *account.Account, now time.Time) (effect, error) {
		if a.Barred() && a.DisabledReason == reason {
			return effect{}, errUnchanged
		}
		if !a.Barred() {
			a.DisabledAt = after(a.DeleteAskedAt, now)
		}
		a.DisabledReason = reason
		return effect{what: life.Disabled, detail: map[string]string{"reason": reason}}, nil
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
var ErrDeletionAsked = errors.New("its deletion was asked for; take that back, with restore")

// Enable puts a disabled account back into service. A repeat is harmless. Its errors are ErrDeletionAsked,
// ErrNoAccount and ErrNotAllowed.
func (s lives) Enable(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionOperate, func(a *account.Account, _ time.Time) (effect, error) {
		switch {
		case !a.Barred() && !a.DeleteAskedAt.IsZero():
			return effect{}, ErrDeletionAsked
		case !a.Barred():
			return effect{}, errUnchanged
		}
		a.DisabledAt, a.DisabledReason = a.DeleteAskedAt, ""
		return effect{what: life.Enabled}, nil
	})
}

// AskDeletion takes an account out of service. The account is deleted after account.DeleteGrace, unless it is
// restored before. A repeat is harmless, and begins no new grace. Its errors are ErrNoAccount, ErrNotAllowed
// and account.ErrDisabled.
func (s lives) AskDeletion(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionAccount, func(
		a *account.Account, now time.Time) (effect, error) {
		if !a.DeleteAskedAt.IsZero() {
			return effect{}, errUnchanged
		}
		a.DeleteAskedAt = after(a.DisabledAt, now)
		if a.DisabledAt.IsZero() {
			a.DisabledAt = a.DeleteAskedAt
		}
		return effect{
			what: life.DeletionAsked, detail: map[string]string{"at": entry.Stamp(a.DeletesAt())},
		}, nil
	})
}

// Restore withdraws the request to delete an account. One that an operator has disabled stays disabled, and
// only an operator restores it. A repeat is harmless. Its errors are ErrNoAccount, ErrNotAllowed and
// account.ErrDisabled.
func (s lives) Restore(ctx context.Context, by access.Actor, id string) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionRestore, func(a *account.Account, _ time.Time) (effect, error) {
		if a.DeleteAskedAt.IsZero() {
			return effect{}, errUnchanged
		}
		if !a.Barred() {
			a.DisabledAt = time.Time{}
		}
		a.DeleteAskedAt = time.Time{}
		return effect{what: life.Restored}, nil
	})
}

// SetVerified sets the mark that end users see next to an account's name, or removes it. The mark is for a
// name: an account that has another name by then does not get it. A repeat is harmless. Its errors are
// ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s lives) SetVerified(ctx context.Context, by access.Actor, id, name string,
	verified bool) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionOperate, func(
		a *account.Account, now time.Time) (effect, error) {
		switch {
		case a.VerifiedAt.IsZero() != verified:
			return effect{}, errUnchanged
		case !verified:
			a.VerifiedAt = time.Time{}
			return effect{what: life.Unverified}, nil
		case a.Name != name:
			return effect{}, &input.Error{Field: "name", Detail: fmt.Sprintf(
				"the account is called %q now; look at it again before you vouch for that name", a.Name)}
		}
		a.VerifiedAt = now
		return effect{what: life.Verified, detail: map[string]string{"name": a.Name}}, nil
	})
}

// Deleted returns the rest of an account that was deleted, by its id. The error is ErrNoAccount if there is
// nothing.
func (s lives) Deleted(ctx context.Context, id string) (account.Account, error) {
	a, _, err := s.remains(ctx, id)
	if err == nil && a.DeletedAt.IsZero() {
		err = account.ErrNoAccount
	}
	return a.Account, err
}
