package accountstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/input"
)

// accounts changes accounts.
type accounts struct{ *records }

// Account reads an account by its id, as it stands now. The error is ErrNoAccount where there is none any
// more.
func (s accounts) Account(ctx context.Context, id string) (account.Account, error) {
	a, _, err := s.account(ctx, id)
	return a.Account, err
}

// SetQuota sets how many sessions an account may start in a UTC month; 0 restores the service's default. Its
// errors are ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s accounts) SetQuota(ctx context.Context, by access.Actor, id string, quota int64) error {
	if quota < 0 {
		return &input.Error{
			Field: "quota", Detail: fmt.Sprintf(
				"%d is below zero; give a number of sessions, for example 5000, or 0 for the service's "+
					"default", quota),
		}
	}
	_, err := s.change(ctx, by, id, access.ActionOperate, func(a *account.Account, _ time.Time) (deed,
		error) {
		if a.Quota == quota {
			return deed{}, errUnchanged
		}
		d := deed{
			what: audit.QuotaSet, detail: map[string]string{
				"from": strconv.FormatInt(a.Quota, 10), "to": strconv.FormatInt(quota, 10),
			},
		}
		a.Quota = quota
		return d, nil
	})
	return err
}

// Accounts lists all accounts by name.
func (s accounts) Accounts(ctx context.Context) ([]account.Account, error) {
	return s.those(ctx, account.Account.Exists)
}

// EveryAccount is Accounts with what is left of those that were deleted.
func (s accounts) EveryAccount(ctx context.Context) ([]account.Account, error) {
	return s.those(ctx, func(a account.Account) bool { return a.Name != "" })
}

// those lists the accounts that fulfil a condition.
func (s accounts) those(ctx context.Context, are func(account.Account) bool) ([]account.Account, error) {
	records, err := s.every(ctx)
	all := make([]account.Account, 0, len(records))
	for _, r := range records {
		if are(r.Account) {
			all = append(all, r.Account)
		}
	}
	return all, err
}

// SetDisabled takes an account out of service, or puts it back: its keys are refused, and its users can
// sign in no more, until it is enabled again. Outcomes that stand are delivered all the same. A repeat is
// harmless. Its errors are ErrNoAccount and ErrNotAllowed.
func (s accounts) SetDisabled(ctx context.Context, by access.Actor, id string,
	disabled bool) (account.Account, error) {
	return s.change(ctx, by, id, access.ActionOperate, func(a *account.Account, now time.Time) (deed, error) {
		switch {
		case a.DisabledAt.IsZero() != disabled:
			return deed{}, errUnchanged
		case disabled:
			a.DisabledAt = now
			return deed{what: audit.AccountDisabled}, nil
		default:
			a.DisabledAt = time.Time{}
			return deed{what: audit.AccountEnabled}, nil
		}
	})
}

// Deleted returns what is left of an account that was deleted, by its id. The error is ErrNoAccount where
// there is nothing.
func (s accounts) Deleted(ctx context.Context, id string) (account.Account, error) {
	a, _, err := s.remains(ctx, id)
	if err == nil && a.DeletedAt.IsZero() {
		err = account.ErrNoAccount
	}
	return a.Account, err
}
