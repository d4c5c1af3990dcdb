package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Invite is an open invitation into an account. It lies in the account's own record, so that becoming a
// member and spending the invite are one write.
type Invite struct {
	ID        string // "inv_" and 16 characters, from the token's digest
	Role      Role
	For       string // whom it is meant for, as the inviter wrote it; may be empty
	By        string // who invited, for people to read
	CreatedAt time.Time
	ExpiresAt time.Time

	digest string
	// who invited: a member, or a login link, which has its id and no network; empty: somebody else
	maker identity
}

// link returns the id of the login link that the invite was made under; empty where it was not.
func (i Invite) link() string {
	if i.maker.network != "" {
		return ""
	}
	return i.maker.subject
}

// InviteLifetime is how long an invite can be accepted.
const InviteLifetime = 7 * 24 * time.Hour

var (
	// ErrNoInvite is returned for an invite that was accepted or withdrawn, or never was.
	ErrNoInvite = errors.New("no such invite: it was accepted or withdrawn, or the link is not complete")
	// ErrInviteExpired is returned for an invite that nobody accepted in time.
	ErrInviteExpired = errors.New("the invite has expired; ask for a new one")
)

// CreateInvite makes an invite. The token is returned this once; it names the account, so that nothing needs
// to be searched for it. Its errors are ErrFull, ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) CreateInvite(ctx context.Context, by Actor, account string, role Role,
	whom string) (token string, i Invite, err error) {
	if err := checkRole(role); err != nil {
		return "", Invite{}, err
	}
	if err := checkText("for", whom, nameBytes); err != nil {
		return "", Invite{}, err
	}
	secret, digest := newToken()
	_, err = s.change(ctx, by, account, ActionMembers, func(a *Account, now time.Time) (deed, error) {
		a.Invites = slices.DeleteFunc(a.Invites, func(i Invite) bool { return !now.Before(i.ExpiresAt) })
		if len(a.Members)+len(a.Invites) >= maxPeople {
			return deed{}, ErrFull
		}
		i = Invite{
			ID: inviteID(digest), Role: role, For: whom, By: by.String(), CreatedAt: now,
			ExpiresAt: now.Add(InviteLifetime), digest: digest,
			maker: by.identity(),
		}
		if i.ExpiresAt, err = s.inviteEnd(ctx, account, i); err != nil {
			return deed{}, err
		}
		a.Invites = append(a.Invites, i)
		return deed{what: InviteCreated, on: i.ID,
			detail: map[string]string{"role": string(role), "for": whom, "until": stamp(i.ExpiresAt)}}, nil
	})
	if err != nil {
		return "", Invite{}, err
	}
	return account + "." + secret, i, nil
}

// Invite reads the invite of a token, for a page that asks before it is accepted. Its errors are ErrNoInvite
// and ErrInviteExpired.
func (s *Store) Invite(ctx context.Context, token string) (Account, Invite, error) {
	id, digest, ok := splitInvite(token)
	if !ok {
		return Account{}, Invite{}, ErrNoInvite
	}
	a, _, err := s.account(ctx, id)
	if errors.Is(err, ErrNoAccount) {
		return Account{}, Invite{}, ErrNoInvite
	}
	if err != nil {
		return Account{}, Invite{}, err
	}
	i, err := a.open(digest, s.now())
	if err == nil {
		_, err = s.inviteEnd(ctx, id, i)
	}
	return a, i, err
}

// AcceptInvite makes somebody a member, with the invite's role, and spends the invite. Of several who accept
// it at once one does. Its errors are ErrNoInvite, ErrInviteExpired, ErrAlreadyMember, which leaves the
// invite open, and an *InputError.
func (s *Store) AcceptInvite(ctx context.Context, token string, m Member) (Account, error) {
	id, digest, ok := splitInvite(token)
	if !ok {
		return Account{}, ErrNoInvite
	}
	m.Role = RoleViewer // the invite's role takes its place
	m, err := s.newMember(m)
	if err != nil {
		return Account{}, err
	}
	a, err := s.change(ctx, m.Actor(), id, actionInvited, func(a *Account, now time.Time) (deed, error) {
		if memberIndex(a.Members, m.Network, m.Subject) >= 0 {
			return deed{}, ErrAlreadyMember
		}
		i, err := a.open(digest, now)
		if err == nil {
			_, err = s.inviteEnd(ctx, id, i)
		}
		if err != nil {
			return deed{}, err
		}
		m.Role = i.Role
		a.Invites = slices.DeleteFunc(a.Invites, func(other Invite) bool { return other.digest == digest })
		return deed{what: MemberJoined, on: m.identity(),
			detail: map[string]string{"name": m.Name, "role": string(m.Role), "invite": i.ID}}, admit(a, m)
	})
	if errors.Is(err, ErrNoAccount) {
		return Account{}, ErrNoInvite
	}
	return a, err
}

// WithdrawInvite takes an invite back. Its errors are ErrNoInvite, ErrNoAccount and ErrNotAllowed.
func (s *Store) WithdrawInvite(ctx context.Context, by Actor, account, id string) (Account, error) {
	return s.change(ctx, by, account, ActionMembers, func(a *Account, _ time.Time) (deed, error) {
		i := slices.IndexFunc(a.Invites, func(i Invite) bool { return i.ID == id })
		if i < 0 {
			return deed{}, fmt.Errorf("%w: %q", ErrNoInvite, id)
		}
		d := deed{
			what: InviteWithdrawn, on: id, detail: map[string]string{
				"role": string(a.Invites[i].Role), "for": a.Invites[i].For,
			},
		}
		a.Invites = slices.Delete(a.Invites, i, i+1)
		return d, nil
	})
}

// dropInvites takes back what somebody invited who may not invite any more, and returns how many: one of them
// could be for themselves.
func dropInvites(a *Account, maker identity) (dropped int) {
	before := len(a.Invites)
	a.Invites = slices.DeleteFunc(a.Invites, func(i Invite) bool { return i.maker == maker })
	return before - len(a.Invites)
}

// inviteEnd returns until when an invite can be accepted: one that was made under a login link ends with what
// the link gives. The error is ErrNoInvite where that is over or was taken back, which is asked of the store
// at every use: no write has to reach the invite first.
func (s *Store) inviteEnd(ctx context.Context, account string, i Invite) (time.Time, error) {
	link := i.link()
	if link == "" {
		return i.ExpiresAt, nil
	}
	g, err := s.LoginLinkGrant(ctx, account, link)
	switch {
	case errors.Is(err, ErrNoLink) || err == nil && !g.Role.May(ActionMembers):
		return time.Time{}, ErrNoInvite
	case err == nil && g.Until.Before(i.ExpiresAt):
		return g.Until, nil
	}
	return i.ExpiresAt, err
}

// open returns the invite with a digest, if it can still be accepted.
func (a Account) open(digest string, now time.Time) (Invite, error) {
	i := slices.IndexFunc(a.Invites, func(i Invite) bool { return i.digest == digest })
	if i < 0 {
		return Invite{}, ErrNoInvite
	}
	if !now.Before(a.Invites[i].ExpiresAt) {
		return Invite{}, ErrInviteExpired
	}
	return a.Invites[i], nil
}

func splitInvite(token string) (account, digest string, ok bool) {
	account, secret, ok := strings.Cut(token, ".")
	if !ok || !isAccountID(account) {
		return "", "", false
	}
	digest, ok = digestToken(secret)
	return account, digest, ok
}

func inviteID(digest string) string { return shortID("inv_", digest) }
