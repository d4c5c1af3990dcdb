package accountstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/edge/account/record"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// members changes who is in an account, and who is invited.
type members struct{ *records }

// AddMember puts somebody into the account without an invite. Its errors are ErrAlreadyMember, ErrFull,
// ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s members) AddMember(ctx context.Context, by access.Actor, id string,
	m account.Member) (account.Account, error) {
	m, err := m.Checked(s.log.Instant())
	if err != nil {
		return account.Account{}, err
	}
	return s.change(ctx, by, id, access.ActionMembers, func(a *account.Account, _ time.Time) (deed, error) {
		all, err := a.Admit(m)
		a.Members = all
		return deed{what: audit.MemberAdded, on: m.Identity().String(), detail: m.Detail()}, err
	})
}

// SetRole returns a member another role. Whoever may not invite any more has no open invites, either. A
// repeat is harmless. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount, ErrNotAllowed and an
// *input.Error.
func (s members) SetRole(ctx context.Context, by access.Actor, id, network, subject string,
	role access.Role) (account.Account, error) {
	if err := input.Role(role); err != nil {
		return account.Account{}, err
	}
	return s.change(ctx, by, id, access.ActionMembers, func(a *account.Account, _ time.Time) (deed, error) {
		i := a.MemberIndex(network, subject)
		if i < 0 {
			return deed{}, account.ErrNoMember
		}
		m := &a.Members[i]
		if m.Role == role {
			return deed{}, errUnchanged
		}
		d := deed{
			what: audit.RoleChanged, on: m.Identity().String(), detail: map[string]string{
				"name": m.Name, "from": string(m.Role), "to": string(role),
			},
		}
		was := m.Role
		m.Role = role
		if !role.May(access.ActionMembers) {
			d.detail["invites_withdrawn"] = some(dropInvites(a, m.Identity()))
		}
		return d, a.StillOwned(was)
	})
}

// RemoveMember takes somebody out of the account, and the invites that they have made with them. Everybody
// may leave by themselves. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount and ErrNotAllowed.
func (s members) RemoveMember(ctx context.Context, by access.Actor, id, network,
	subject string) (account.Account, error) {
	action := access.ActionMembers
	if by.Kind == access.ActorMember && by.Network == network && by.Subject == subject {
		action = access.ActionView
	}
	return s.change(ctx, by, id, action, func(a *account.Account, _ time.Time) (deed, error) {
		i := a.MemberIndex(network, subject)
		if i < 0 {
			return deed{}, account.ErrNoMember
		}
		m := a.Members[i]
		a.Members = slices.Delete(a.Members, i, i+1)
		d := deed{what: audit.MemberRemoved, on: m.Identity().String(), detail: m.Detail()}
		d.detail["invites_withdrawn"] = some(dropInvites(a, m.Identity()))
		return d, a.StillOwned(m.Role)
	})
}

// some writes a number into the detail of a record; none is left out.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// dropInvites takes back what somebody invited who may not invite any more, and returns how many.
func dropInvites(a *account.Account, maker access.Identity) (dropped int) {
	before := len(a.Invites)
	a.Invites = a.InvitesWithout(maker)
	return before - len(a.Invites)
}

// People are how many know themselves by a namespace: members, each in each account, and operators.
type People struct{ Members, Operators int }

// PeopleOf counts members and operators by namespace. It opens no secret. Its errors are natsconf's.
func PeopleOf(ctx context.Context, c *natsconf.Conn) (map[string]People, error) {
	accounts, err := c.Newest(ctx, topology.BucketStream(topology.BucketAccounts),
		topology.BucketSubject(topology.BucketAccounts, ">"))
	if err != nil {
		return nil, fmt.Errorf("read the accounts' members: %w", err)
	}
	people := map[string]People{}
	for _, m := range accounts {
		for _, member := range record.Members(m.Data()) {
			p := people[member.Network]
			p.Members++
			people[member.Network] = p
		}
	}
	operators, err := grant.NewStore(c, nil, time.Now).Operators(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range slices.DeleteFunc(operators, func(g grant.Grant) bool { return g.Link != "" }) {
		p := people[g.Network]
		p.Operators++
		people[g.Network] = p
	}
	return people, nil
}
