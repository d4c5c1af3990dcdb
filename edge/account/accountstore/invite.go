package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/edge/account/record"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
)

// CreateInvite makes an invite. The token is returned only this once; it names the account, so that no search
// is needed. Its errors are ErrFull, ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s members) CreateInvite(ctx context.Context, by access.Actor, id string, role access.Role,
	whom string) (token string, i account.Invite, err error) {
	if err := input.Role(role); err != nil {
		return "", account.Invite{}, err
	}
	if err := input.Text("for", whom, input.NameBytes); err != nil {
		return "", account.Invite{}, err
	}
	secret, digest := secrets.NewToken()
	_, err = s.change(ctx, by, id, access.ActionMembers, func(a *account.Account) (audit.Record, error) {
		now := s.log.Instant()
		a.Invites = s.OpenInvites(ctx, *a)
		if a.Full() {
			return audit.Record{}, account.ErrFull
		}
		i = account.Invite{
			ID: record.InviteID(digest), Role: role, For: whom, By: by.String(), CreatedAt: now,
			ExpiresAt: now.Add(account.InviteLifetime), Digest: digest,
			Maker: by.Maker(),
		}
		if i.ExpiresAt, err = s.inviteEnd(ctx, *a, i); err != nil {
			return audit.Record{}, err
		}
		a.Invites = append(a.Invites, i)
		return audit.Record{What: audit.InviteCreated, On: i.ID, Detail: map[string]string{
			"role": string(role), "for": whom, "until": entry.Stamp(i.ExpiresAt),
		}}, nil
	})
	if err != nil {
		return "", account.Invite{}, err
	}
	return id + "." + secret, i, nil
}

// Invite reads the invite of a token, for a page that asks before it is accepted. Its errors are ErrNoInvite
// and ErrInviteExpired.
func (s members) Invite(ctx context.Context, token string) (account.Account, account.Invite, error) {
	id, digest, ok := splitInvite(token)
	if !ok {
		return account.Account{}, account.Invite{}, account.ErrNoInvite
	}
	a, _, err := s.account(ctx, id)
	if errors.Is(err, account.ErrNoAccount) {
		return account.Account{}, account.Invite{}, account.ErrNoInvite
	}
	if err != nil {
		return account.Account{}, account.Invite{}, err
	}
	i, err := a.OpenInvite(digest, s.now())
	if err == nil {
		_, err = s.inviteEnd(ctx, a.Account, i)
	}
	return a.Account, i, err
}

// AcceptInvite makes somebody a member, with the invite's role, and spends the invite. If several accept it
// at once, one succeeds. Its errors are ErrNoInvite, ErrInviteExpired, ErrAlreadyMember, which leaves the
// invite open, and an *input.Error.
func (s members) AcceptInvite(ctx context.Context, token string, m account.Member) (account.Account, error) {
	m.Role = access.RoleViewer // the invite's role replaces it
	m, err := m.Checked(s.log.Instant())
	if err != nil {
		return account.Account{}, err
	}
	// A token that somebody has made up takes no turn among the changes.
	if _, _, err := s.Invite(ctx, token); err != nil {
		return account.Account{}, err
	}
	id, digest, _ := splitInvite(token)
	join := func(a *account.Account) (audit.Record, error) {
		if a.MemberIndex(m.Network, m.Subject) >= 0 {
			return audit.Record{}, account.ErrAlreadyMember
		}
		i, err := a.OpenInvite(digest, s.log.Instant())
		if err == nil {
			_, err = s.inviteEnd(ctx, *a, i)
		}
		if err != nil {
			return audit.Record{}, err
		}
		m.Role = i.Role
		a.Invites = slices.DeleteFunc(a.Invites,
			func(other account.Invite) bool { return other.Digest == digest })
		a.Members, err = a.Admit(m)
		return audit.Record{What: audit.MemberJoined, On: m.Identity().String(),
			Detail: map[string]string{"name": m.Name, "role": string(m.Role), "invite": i.ID}}, err
	}
	a, err := s.change(ctx, m.Actor(), id, access.ActionInvited, join)
	if errors.Is(err, account.ErrNoAccount) {
		return account.Account{}, account.ErrNoInvite
	}
	return a, err
}

// WithdrawInvite withdraws an invite. Its errors are ErrNoInvite, ErrNoAccount and ErrNotAllowed.
func (s members) WithdrawInvite(ctx context.Context, by access.Actor, id, invite string) (account.Account,
	error) {
	return s.changeNow(ctx, by, id, access.ActionMembers, func(a *account.Account) (audit.Record, error) {
		i := slices.IndexFunc(a.Invites, func(i account.Invite) bool { return i.ID == invite })
		if i < 0 {
			return audit.Record{}, fmt.Errorf("%w: %q", account.ErrNoInvite, invite)
		}
		d := audit.Record{What: audit.InviteWithdrawn, On: invite, Detail: map[string]string{
			"role": string(a.Invites[i].Role), "for": a.Invites[i].For,
		}}
		a.Invites = slices.Delete(a.Invites, i, i+1)
		return d, nil
	})
}

// OpenInvites returns the invites of an account that can still be accepted. One whose maker cannot be judged
// at the moment is among them: whoever accepts it is told.
func (s members) OpenInvites(ctx context.Context, a account.Account) []account.Invite {
	void := map[access.Identity]bool{} // by their maker: automation makes many
	return slices.DeleteFunc(slices.Clone(a.Invites), func(i account.Invite) bool {
		if _, known := void[i.Maker]; !known {
			_, err := s.inviteEnd(ctx, a, i)
			void[i.Maker] = errors.Is(err, account.ErrNoInvite)
		}
		return void[i.Maker] || !s.now().Before(i.ExpiresAt)
	})
}

// inviteEnd returns until when an invite can be accepted: no longer than the grant of its maker holds, who
// may be a login link or an operator. The error is ErrNoInvite if the maker may not invite any more. Their
// role or grant is read from the store at every use, so that no write has to reach the invite first.
func (s members) inviteEnd(ctx context.Context, a account.Account, i account.Invite) (time.Time, error) {
	var g grant.Grant
	var err error
	switch by := i.Maker.Actor(); by.Kind {
	case access.ActorMember:
		m, _ := a.Member(by.Network, by.Subject)
		g.Role = m.Role
	case access.ActorLink:
		g, err = s.grants.LoginLinkGrant(ctx, a.ID, by.ID)
	case access.ActorOperator, access.ActorKey:
		g, err = s.grants.OperatorGrant(ctx, by)
		g.Role = access.RoleOwner // what owners may do, operators may
	}
	switch {
	case errors.Is(err, grant.ErrNoLink), errors.Is(err, access.ErrNotAllowed),
		err == nil && !g.Role.May(access.ActionMembers):
		return time.Time{}, account.ErrNoInvite
	case err == nil && !g.Until.IsZero() && g.Until.Before(i.ExpiresAt):
		return g.Until, nil
	}
	return i.ExpiresAt, err
}

func splitInvite(token string) (id, digest string, ok bool) {
	id, secret, ok := strings.Cut(token, ".")
	if !ok || !account.IsID(id) {
		return "", "", false
	}
	digest, ok = secrets.DigestToken(secret)
	return id, digest, ok
}

// withdrawInvitesOf removes the invites of a revoked login link from the account's record. They let nobody in
// any more, whether that is written or not, so a record of a newer build is left to that build.
func (s members) withdrawInvitesOf(ctx context.Context, by access.Actor, id, link string) error {
	_, err := s.change(ctx, by, id, access.ActionMembers, func(a *account.Account) (audit.Record, error) {
		n := dropInvites(a, access.Identity{Subject: link})
		if n == 0 {
			return audit.Record{}, errUnchanged
		}
		return audit.Record{What: audit.InviteWithdrawn, On: link, Detail: map[string]string{
			"invites_withdrawn": some(n),
		}}, nil
	})
	if errors.Is(err, natsconf.ErrNewer) || errors.Is(err, account.ErrNoAccount) {
		return nil
	}
	return s.log.Uncertain(err)
}
