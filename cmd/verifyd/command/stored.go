package command

import (
	"context"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
)

// stored is a Manager on the store.
type stored struct{ s *accountstore.Store }

func (m stored) Own(ctx context.Context, name string) (account.Account, error) {
	return OwnAccount(ctx, m.s, name)
}

func (m stored) List(ctx context.Context) ([]Listed, error) {
	accounts, err := m.s.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := m.s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	now, active := time.Now(), map[string]int{}
	for _, k := range keys {
		if st := k.State(now); st == account.KeyActive || st == account.KeyRolled {
			active[k.Account]++
		}
	}
	all := make([]Listed, len(accounts))
	for i, a := range accounts {
		all[i] = Listed{a, len(a.Members), active[a.ID]}
	}
	return all, nil
}

func (m stored) Create(ctx context.Context, name string, grantName bool) (account.Account, error) {
	if grantName {
		return m.s.GrantAccount(ctx, Operator(), name)
	}
	return m.s.CreateAccount(ctx, Operator(), name)
}

func (m stored) Rename(ctx context.Context, id, name string, grantName bool) (account.Account, error) {
	return m.s.RenameAccount(ctx, Operator(), id, name, grantName)
}

func (m stored) SetVerified(ctx context.Context, id, name string, verified bool) error {
	_, err := m.s.SetVerified(ctx, Operator(), id, name, verified)
	return err
}

func (m stored) SetQuota(ctx context.Context, id string, quota int64) error {
	return m.s.SetQuota(ctx, Operator(), id, quota)
}

func (m stored) SetBinding(ctx context.Context, id string, to accountstore.Binding) error {
	return m.s.SetBinding(ctx, Operator(), id, to)
}

func (m stored) SetReturnURL(ctx context.Context, id, to string) error {
	return m.s.SetReturnURL(ctx, Operator(), id, to)
}

func (m stored) SetColour(ctx context.Context, id, colour string) error {
	return m.s.SetColour(ctx, Operator(), id, colour)
}

func (m stored) Disable(ctx context.Context, id, reason string) error {
	_, err := m.s.Disable(ctx, Operator(), id, reason)
	return err
}

func (m stored) Enable(ctx context.Context, id string) (account.Account, error) {
	return m.s.Enable(ctx, Operator(), id)
}

func (m stored) AskDeletion(ctx context.Context, id string) (account.Account, error) {
	return m.s.AskDeletion(ctx, Operator(), id)
}

func (m stored) Restore(ctx context.Context, id string) (account.Account, error) {
	return m.s.Restore(ctx, Operator(), id)
}
