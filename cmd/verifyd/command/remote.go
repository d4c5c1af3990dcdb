package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/naming"
	"verifyd/edge/account/signing"
	"verifyd/edge/client/manage"
	"verifyd/sessions/proof"
	"verifyd/sessions/urlpolicy"
)

// remote is a Manager on a service on another machine.
type remote struct {
	remoteKeys
	remoteMembers

	c *manage.Client
}

func newRemote(c *manage.Client) remote { return remote{remoteKeys{c}, remoteMembers{c}, c} }

// accountFrom converts the service's account document to what commands use.
func accountFrom(a manage.Account) account.Account {
	own := account.Account{
		ID: a.ID, Name: a.Name, CreatedAt: a.CreatedAt, DisabledAt: or(a.DisabledAt), Quota: or(a.Quota),
		VerifiedAt: or(a.VerifiedAt), DisabledReason: a.DisabledReason, Level: proof.Level(or(a.Binding)),
		MaxUsers: or(a.MaxUsers), ReturnURL: or(a.ReturnURL), Colour: or(a.Colour),
	}
	if a.DeletesAt != nil {
		own.DeleteAskedAt = a.DeletesAt.Add(-account.DeleteGrace)
	}
	own.Branding = branding.Branding{
		Accent: or(a.Accent), AccentDark: or(a.AccentDark), Button: or(a.Button),
	}
	if l := a.Logo; l != nil {
		own.Branding.Logo = &branding.Logo{Digest: l.Digest, Width: l.Width, Height: l.Height}
	}
	for _, f := range a.FormerNames {
		own.Former = append(own.Former, naming.Former{Name: f.Name, Until: or(f.KeptUntil)})
	}
	return own
}

// or returns the value of a pointer, or the zero value.
func or[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// orNull returns nil for the zero value, which is sent as null.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// kindOf maps the service's problems to the errors of the store.
func kindOf(err error) error {
	e, ok := errors.AsType[*manage.Error](err)
	if !ok {
		return err
	}
	switch e.Code {
	case manage.CodeAccountNotFound:
		return fmt.Errorf("%w: %w", account.ErrNoAccount, err)
	case manage.CodeAPIKeyNotFound:
		return fmt.Errorf("%w: %w", account.ErrNoKey, err)
	default:
		return err
	}
}

// find returns the id of an account, by its name or its id.
func (m remote) find(ctx context.Context, name string) (id string, err error) {
	if account.IsID(name) {
		return name, nil
	}
	found, err := m.c.AccountByName(ctx, name)
	if err != nil {
		return "", BadInput(err)
	}
	if found == nil {
		return "", config.Usage(fmt.Errorf("%w: %s; list them with: verifyd account list",
			account.ErrNoAccount, strconv.Quote(name)))
	}
	return found.ID, nil
}

func (m remote) Own(ctx context.Context, name string) (account.Account, error) {
	id, err := m.find(ctx, name)
	if err != nil {
		return account.Account{}, err
	}
	a, err := m.c.Account(ctx, id)
	if e, ok := errors.AsType[*manage.Error](err); ok && name == id &&
		e.Code == manage.CodeScopeMissing {
		return account.Account{ID: id, Name: id}, nil // a token that is only for keys may not read accounts
	}
	if err != nil {
		return account.Account{}, BadInput(kindOf(err))
	}
	if name == a.ID {
		return accountFrom(a), nil
	}
	by, at := access.Actor{}, time.Time{}
	if a.CreatedBy != nil {
		at = a.CreatedBy.At
		by = access.Actor{Kind: access.ActorKind(a.CreatedBy.Kind), Name: a.CreatedBy.Name}
	}
	return accountFrom(a), ownByName(accountFrom(a), a.Members, by, at, a.CreatedBy != nil)
}

func (m remote) Show(ctx context.Context, name string) (shown Shown, err error) {
	id, err := m.find(ctx, name)
	if err != nil {
		return shown, err
	}
	a, err := m.c.Account(ctx, id)
	if err != nil {
		return shown, kindOf(err)
	}
	shown = Shown{Account: accountFrom(a), NoticeHost: or(a.NoticeHost)}
	secrets, err := m.c.Secrets(ctx, id)
	if err != nil {
		return shown, err
	}
	for _, s := range secrets {
		key := signing.PublicKey{Value: s.PublicKey, From: s.CreatedAt, Until: or(s.EndsAt)}
		shown.PublicKeys = append(shown.PublicKeys, key)
	}
	if shown.Members, shown.Invites, err = m.Members(ctx, id); err != nil {
		return shown, err
	}
	links, err := m.c.LoginLinks(ctx, id)
	if err != nil {
		return shown, err
	}
	for _, l := range links {
		shown.Links = append(shown.Links, grant.Grant{
			Link: l.ID, Role: access.Role(l.Role), By: l.By, Since: l.CreatedAt, Until: l.EndsAt,
		})
	}
	shown.Keys, err = m.keysOf(ctx, id)
	return shown, err
}

// maxAuditPage is the maximum of records in one answer of the service.
const maxAuditPage = 100

func (m remote) Audit(ctx context.Context, name, cursor string, limit int) (records []Record, next string,
	err error) {
	id, err := m.find(ctx, name)
	if err != nil {
		return nil, "", err
	}
	if limit < 1 || limit > maxAuditPage {
		limit = maxAuditPage
	}
	page, next, err := m.c.Audit(ctx, id, cursor, limit)
	for _, r := range page {
		who := r.Who
		if r.Identity != nil && *r.Identity != who {
			who += " (" + *r.Identity + ")"
		}
		records = append(records, Record{r.At, who, r.What, or(r.On), r.Detail})
	}
	return records, next, BadInput(kindOf(err))
}

func (m remote) List(ctx context.Context) (all []Listed, err error) {
	for a, err := range m.c.Accounts(ctx) {
		if err != nil {
			return nil, BadInput(err)
		}
		all = append(all, Listed{accountFrom(a), a.Members, a.Keys})
	}
	return all, nil
}

func (m remote) Create(ctx context.Context, name string, grantName bool) (account.Account, error) {
	a, err := m.c.CreateAccount(ctx, name, grantName)
	return accountFrom(a), kindOf(err)
}

func (m remote) change(ctx context.Context, id string, to manage.Changes) (account.Account, error) {
	a, err := m.c.ChangeAccount(ctx, id, to)
	return accountFrom(a), kindOf(err)
}

func (m remote) Rename(ctx context.Context, id, name string, grantName bool) (account.Account, error) {
	to := manage.Changes{"name": name}
	if grantName {
		to["grant_name"] = true
	}
	return m.change(ctx, id, to)
}

func (m remote) SetVerified(ctx context.Context, id, name string, verified bool) error {
	if !verified {
		name = ""
	}
	_, err := m.change(ctx, id, manage.Changes{"verified_name": orNull(name)})
	return err
}

func (m remote) SetQuota(ctx context.Context, id string, quota int64) error {
	_, err := m.change(ctx, id, manage.Changes{"quota": orNull(quota)})
	return err
}

func (m remote) SetBinding(ctx context.Context, id string, to accountstore.Binding) error {
	changes := manage.Changes{}
	if to.Level != nil {
		changes["binding"] = orNull(string(*to.Level))
	}
	if to.MaxUsers != nil {
		changes["max_users"] = orNull(*to.MaxUsers)
	}
	_, err := m.change(ctx, id, changes)
	return err
}

func (m remote) SetReturnURL(ctx context.Context, id, to string) error {
	_, err := m.change(ctx, id, manage.Changes{"return_url": orNull(to)})
	return err
}

func (m remote) SetColour(ctx context.Context, id, colour string) error {
	_, err := m.change(ctx, id, manage.Changes{"colour": orNull(colour)})
	return err
}

func (m remote) SetNoticeURL(ctx context.Context, id string, to urlpolicy.URL) error {
	_, err := m.change(ctx, id, manage.Changes{"notice_url": orNull(to.String())})
	return err
}

func (m remote) Disable(ctx context.Context, id, reason string) error {
	to := manage.Changes{"disabled": true}
	if reason != "" {
		to["disabled_reason"] = reason
	}
	_, err := m.change(ctx, id, to)
	return err
}

func (m remote) Enable(ctx context.Context, id string) (account.Account, error) {
	return m.change(ctx, id, manage.Changes{"disabled": false})
}

func (m remote) AskDeletion(ctx context.Context, id string) (account.Account, error) {
	a, err := m.c.DeleteAccount(ctx, id)
	return accountFrom(a), kindOf(err)
}

func (m remote) Restore(ctx context.Context, id string) (account.Account, error) {
	a, err := m.c.RestoreAccount(ctx, id)
	return accountFrom(a), kindOf(err)
}
