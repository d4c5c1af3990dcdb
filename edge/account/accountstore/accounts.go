package accountstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
)

// accounts changes accounts.
type accounts struct{ *records }

// Account reads an account by its id, as it is now. The error is ErrNoAccount if there is none any more.
func (s accounts) Account(ctx context.Context, id string) (account.Account, error) {
	a, _, err := s.account(ctx, id)
	return a.Account, err
}

// SetQuota sets how many sessions an account may start in a UTC month; 0 restores the service's default. Its
// errors are ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s accounts) SetQuota(ctx context.Context, by access.Actor, id string, quota int64) error {
	if quota < 0 {
		return input.Wrong("quota", "%d is below zero; give a number of sessions, for example 5000, or 0 "+
			"for the service's default", quota)
	}
	_, err := s.change(ctx, by, id, access.ActionOperate, func(a *account.Account) (audit.Record, error) {
		if a.Quota == quota {
			return audit.Record{}, errUnchanged
		}
		d := audit.Record{What: audit.QuotaSet, Detail: map[string]string{
			"from": strconv.FormatInt(a.Quota, 10), "to": strconv.FormatInt(quota, 10),
		}}
		a.Quota = quota
		return d, nil
	})
	return err
}

// Accounts lists all accounts by name.
func (s accounts) Accounts(ctx context.Context) ([]account.Account, error) {
	return s.those(ctx, account.Account.Exists)
}

// EveryAccount is Accounts, including the rests of those that were deleted.
func (s accounts) EveryAccount(ctx context.Context) ([]account.Account, error) {
	return s.those(ctx, func(a account.Account) bool { return a.Name != "" })
}

// those lists the accounts that fulfil a condition.
func (s accounts) those(ctx context.Context, are func(account.Account) bool) ([]account.Account, error) {
	records, err := s.listAccounts(ctx)
	all := make([]account.Account, 0, len(records))
	for _, r := range records {
		if are(r.Account) {
			all = append(all, r.Account)
		}
	}
	return all, err
}

// EnsureAccount returns the account of that name and makes it, with a signing secret, if it is missing. It is
// harmless to repeat.
func (s accounts) EnsureAccount(ctx context.Context, by access.Actor, name string) (account.Account, error) {
	a, err := s.CreateAccount(ctx, by, name)
	if errors.Is(err, account.ErrAccountExists) {
		return s.AccountByName(ctx, name)
	}
	return a, err
}

// AccountByName returns an account, by its name or its id, with its signing secrets. The error is
// ErrNoAccount if there is none, and names the nearest names.
func (s accounts) AccountByName(ctx context.Context, name string) (account.Account, error) {
	if account.IsID(name) {
		a, _, err := s.readEntry(ctx, name)
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
	t, err := s.readName(ctx, name)
	if clean := naming.Clean(name); err == nil && t.holder.ID == "" && clean != name {
		name = clean
		t, err = s.readName(ctx, name)
	}
	switch {
	case err != nil:
		return account.Account{}, err
	case t.holder.ID == "":
		return account.Account{}, s.noAccount(ctx, name)
	case t.holder.Name != name:
		return account.Account{}, fmt.Errorf("%w: %q was the name of %s, which is now called %q; %s",
			account.ErrNoAccount, name, t.holder.ID, t.holder.Name, listThem)
	}
	return t.holder.Account, nil
}

// listThem explains how accounts are found.
const listThem = "list them with: verifyd account list"

// noAccount is the error for a name that no account has, with the names that may have been meant.
func (s accounts) noAccount(ctx context.Context, name string) error {
	accounts, err := s.Accounts(ctx)
	names := make([]string, len(accounts))
	for i, a := range accounts {
		names[i] = a.Name
	}
	help := listThem
	if near := naming.Nearest(name, names); err == nil && len(near) > 0 { // a help, and no more
		help = "there is " + strings.Join(near, ", ") + "; " + listThem
	}
	return fmt.Errorf("%w: %q; %s", account.ErrNoAccount, name, help)
}
