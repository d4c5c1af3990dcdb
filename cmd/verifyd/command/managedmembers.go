package command

import (
	"context"
	"net/url"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/client/manage"
	"verifyd/edge/dashboard/paths"
)

func (m stored) Members(ctx context.Context, id string) ([]account.Member, []account.Invite, error) {
	a, err := m.s.Account(ctx, id)
	return a.Members, a.Invites, err
}

func (m stored) Invite(ctx context.Context, id, base string, role access.Role, whom string) (link string,
	i account.Invite, err error) {
	token, i, err := m.s.CreateInvite(ctx, Operator(), id, role, whom)
	return base + paths.Invite + "?" + url.Values{"token": {token}}.Encode(), i, err
}

func (m stored) Withdraw(ctx context.Context, id, invite string) error {
	_, err := m.s.WithdrawInvite(ctx, Operator(), id, invite)
	return err
}

func (m stored) SetRole(ctx context.Context, id string, who access.Identity, role access.Role) error {
	_, err := m.s.SetRole(ctx, Operator(), id, who.Network, who.Subject, role)
	return err
}

func (m stored) Remove(ctx context.Context, id string, who access.Identity) error {
	_, err := m.s.RemoveMember(ctx, Operator(), id, who.Network, who.Subject)
	return err
}

func inviteFrom(i manage.Invite) account.Invite {
	return account.Invite{
		ID: i.ID, Role: access.Role(i.Role), For: i.For, By: i.By, CreatedAt: i.CreatedAt,
		ExpiresAt: i.ExpiresAt,
	}
}

func (m remote) Members(ctx context.Context, id string) (members []account.Member, invites []account.Invite,
	err error) {
	people, err := m.c.Members(ctx, id)
	for _, p := range people.Members {
		members = append(members, account.Member{
			Network: p.Network, Subject: p.Subject, Name: p.Name, Email: p.Email, Role: access.Role(p.Role),
			Since: p.Since,
		})
	}
	for _, i := range people.Invites {
		invites = append(invites, inviteFrom(i))
	}
	return members, invites, kindOf(err)
}

func (m remote) Invite(ctx context.Context, id, _ string, role access.Role, whom string) (string,
	account.Invite, error) {
	i, err := m.c.CreateInvite(ctx, id, string(role), whom)
	return i.Link, inviteFrom(i), kindOf(err)
}

func (m remote) Withdraw(ctx context.Context, id, invite string) error {
	_, err := m.c.WithdrawInvite(ctx, id, invite)
	return kindOf(err)
}

func (m remote) SetRole(ctx context.Context, id string, who access.Identity, role access.Role) error {
	_, err := m.c.SetRole(ctx, id, who.Network, who.Subject, string(role))
	return kindOf(err)
}

func (m remote) Remove(ctx context.Context, id string, who access.Identity) error {
	_, err := m.c.RemoveMember(ctx, id, who.Network, who.Subject)
	return kindOf(err)
}
