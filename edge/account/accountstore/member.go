package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/audit/life"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/edge/account/record"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// members changes the members of an account, and its invites.
type members struct{ *records }

// AddMember adds somebody to the account without an invite. Its errors are ErrAlreadyMember, ErrFull,
// ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s members) AddMember(ctx context.Context, by access.Actor, id string,
	m account.Member) (account.Account, error) {
	m, err := m.Checked(s.log.Instant())
	if err != nil {
		return account.Account{}, err
	}
	return s.change(ctx, by, id, access.ActionMembers, func(a *account.Account, _ time.Time) (effect, error) {
		all, err := a.Admit(m)
		a.Members = all
		return effect{what: audit.MemberAdded, on: m.Identity().String(), detail: m.Detail()}, err
	})
}

// SetRole changes a member's role. A member who may not invite any more has no open invites, either. A repeat
// is harmless. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s members) SetRole(ctx context.Context, by access.Actor, id, network, subject string,
	role access.Role) (account.Account, error) {
	if err := input.Role(role); err != nil {
		return account.Account{}, err
	}
	return s.change(ctx, by, id, access.ActionMembers, func(a *account.Account, _ time.Time) (effect, error) {
		i := a.MemberIndex(network, subject)
		if i < 0 {
			return effect{}, account.ErrNoMember
		}
		m := &a.Members[i]
		if m.Role == role {
			return effect{}, errUnchanged
		}
		d := effect{
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

// RemoveMember removes somebody from the account, with the invites that they have made. Everybody may leave
// by themselves. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount and ErrNotAllowed.
func (s members) RemoveMember(ctx context.Context, by access.Actor, id, network,
	subject string) (account.Account, error) {
	action := access.ActionMembers
	if by.Kind == access.ActorMember && by.Network == network && by.Subject == subject {
		action = access.ActionView
	}
	return s.change(ctx, by, id, action, func(a *account.Account, _ time.Time) (effect, error) {
		d, _, err := leave(a, access.Identity{Network: network, Subject: subject})
		return d, err
	})
}

// MoveMember removes somebody from one account and makes them a member of another, in one write. The role is
// the one that they had, or the one that is named. The invites that they have made are withdrawn. Only the
// operator may. Its errors are ErrNoMember, ErrLastOwner, ErrAlreadyMember, ErrFull, ErrNoAccount,
// ErrNotAllowed and an *input.Error.
func (s members) MoveMember(ctx context.Context, by access.Actor, from, to string, who access.Identity,
	role access.Role) (account.Member, error) {
	if from == to {
		return account.Member{}, &input.Error{Field: "to", Detail: "they are in that account; name " +
			"another one"}
	}
	if role != "" {
		if err := input.Role(role); err != nil {
			return account.Member{}, err
		}
	}
	done, err := s.log.Turn(ctx)
	if err != nil {
		return account.Member{}, err
	}
	defer done()
	var m account.Member
	var source, target record.Account
	err = natsconf.Retry(ctx, func() (err error) {
		m, source, target, err = s.move(ctx, by, [2]string{from, to}, who, role)
		return err
	})
	if err != nil {
		return account.Member{}, err
	}
	return m, errors.Join(s.log.Conclude(ctx, source.Last), s.log.Conclude(ctx, target.Last))
}

func (s members) move(ctx context.Context, by access.Actor, ids [2]string, who access.Identity,
	role access.Role) (m account.Member, source, target record.Account, err error) {
	var both [2]record.Account
	var entries [2]jetstream.KeyValueEntry
	for i, id := range ids {
		if both[i], entries[i], err = s.account(ctx, id); err == nil {
			err = s.log.Settle(ctx, both[i].Last)
		}
		if err == nil {
			err = s.permit(ctx, both[i].Account, by, access.ActionOperate)
		}
		if err == nil {
			err = record.AccountRewritable(entries[i].Value())
		}
		if err != nil {
			return m, source, target, fmt.Errorf("account %s: %w", id, err)
		}
	}
	source, target = both[0], both[1]
	left, m, err := leave(&source.Account, who)
	if err != nil {
		return m, source, target, err
	}
	if role != "" {
		m.Role = role
	}
	m.Since = s.log.Instant()
	if target.Members, err = target.Admit(m); err != nil {
		return m, source, target, fmt.Errorf("%s: %w", target.Name, err)
	}
	left.what, left.detail["to"] = life.MovedOut, target.ID
	came := effect{what: life.MovedIn, on: left.on, detail: m.Detail()}
	came.detail["from"] = source.ID
	both = [2]record.Account{source, target}
	msgs := make([]*nats.Msg, len(both))
	for i, d := range []effect{left, came} {
		if both[i].Last, err = s.log.Draft(ctx, by, ids[i], d.what, d.on, d.detail); err != nil {
			return m, source, target, err
		}
		data, err := both[i].Encode(s.box)
		if err != nil {
			return m, source, target, err
		}
		msgs[i] = entry.Message(topology.BucketAccounts, ids[i], data, entries[i].Revision())
	}
	err = s.conn.PublishBatch(ctx, topology.BucketStream(topology.BucketAccounts), msgs...)
	if err != nil {
		err = s.unlessStored(ctx, both[1], err)
	}
	return m, both[0], both[1], err
}

// leave removes somebody from the members, with the invites that they have made.
func leave(a *account.Account, who access.Identity) (effect, account.Member, error) {
	i := a.MemberIndex(who.Network, who.Subject)
	if i < 0 {
		return effect{}, account.Member{}, account.ErrNoMember
	}
	m := a.Members[i]
	a.Members = slices.Delete(a.Members, i, i+1)
	d := effect{what: audit.MemberRemoved, on: who.String(), detail: m.Detail()}
	d.detail["invites_withdrawn"] = some(dropInvites(a, who))
	return d, m, a.StillOwned(m.Role)
}

// some writes a number into the detail of a record; none is left out.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// dropInvites withdraws the invites of somebody who may not invite any more, and returns how many.
func dropInvites(a *account.Account, maker access.Identity) (dropped int) {
	before := len(a.Invites)
	a.Invites = a.InvitesWithout(maker)
	return before - len(a.Invites)
}

// People are how many people are known by a namespace: members, counted in each account, and operators.
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
		for _, member := range record.Outline("", m.Data()).Members {
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
