package command

import (
	"context"
	"net/url"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/client/manage"
	"verifyd/edge/dashboard/paths"
)

// storedMembers are the members and invites of stored.
type storedMembers struct{ s *accountstore.Store }

// remoteMembers are those of remote.
type remoteMembers struct{ c *manage.Client }

func (m storedMembers) Members(ctx context.Context, id string) ([]account.Member, []account.Invite, error) {
	a, err := m.s.Account(ctx, id)
	return a.Members, m.s.OpenInvites(ctx, a), err
}

func (m storedMembers) Invite(ctx context.Context, id, base string, role access.Role, whom string) (
	link string, i account.Invite, err error) {
	token, i, err := m.s.CreateInvite(ctx, Operator(), id, role, whom)
	return base + paths.Invite + "?" + url.Values{"token": {token}}.Encode(), i, err
}

func (m storedMembers) Withdraw(ctx context.Context, id, invite string) error {
	_, err := m.s.WithdrawInvite(ctx, Operator(), id, invite)
	return err
}

func (m storedMembers) SetRole(ctx context.Context, id string, who access.Identity, role access.Role) error {
	_, err := m.s.SetRole(ctx, Operator(), id, who.Network, who.Subject, role)
	return err
}

func (m storedMembers) Remove(ctx context.Context, id string, who access.Identity) error {
	_, err := m.s.RemoveMember(ctx, Operator(), id, who.Network, who.Subject)
	return err
}

func (m storedMembers) Move(ctx context.Context, from, to string, who access.Identity, role access.Role) (
	access.Role, error) {
	moved, err := m.s.MoveMember(ctx, Operator(), from, to, who, role)
	return moved.Role, err
}

func inviteFrom(i manage.Invite) account.Invite {
	return account.Invite{
		ID: i.ID, Role: access.Role(i.Role), For: i.For, By: i.By, CreatedAt: i.CreatedAt,
		ExpiresAt: i.ExpiresAt,
	}
}

func (m remoteMembers) Members(ctx context.Context, id string) (members []account.Member,
	invites []account.Invite, err error) {
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

func (m remoteMembers) Invite(ctx context.Context, id, _ string, role access.Role, whom string) (string,
	account.Invite, error) {
	i, err := m.c.CreateInvite(ctx, id, string(role), whom)
	return i.Link, inviteFrom(i), kindOf(err)
}

func (m remoteMembers) Withdraw(ctx context.Context, id, invite string) error {
	_, err := m.c.WithdrawInvite(ctx, id, invite)
	return kindOf(err)
}

func (m remoteMembers) SetRole(ctx context.Context, id string, who access.Identity, role access.Role) error {
	_, err := m.c.SetRole(ctx, id, who.Network, who.Subject, string(role))
	return kindOf(err)
}

func (m remoteMembers) Remove(ctx context.Context, id string, who access.Identity) error {
	_, err := m.c.RemoveMember(ctx, id, who.Network, who.Subject)
	return kindOf(err)
}

func (m remoteMembers) Move(ctx context.Context, from, to string, who access.Identity, role access.Role) (
	access.Role, error) {
	there, err := m.c.MoveMember(ctx, from, to, who.Network, who.Subject, string(role))
	for _, p := range there.Members {
		if (access.Identity{Network: p.Network, Subject: p.Subject}).Is(who) {
			role = access.Role(p.Role)
		}
	}
	return role, kindOf(err)
}
