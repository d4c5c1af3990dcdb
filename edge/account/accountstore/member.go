package accountstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
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
	return s.change(ctx, by, id, access.ActionMembers, func(a *account.Account) (audit.Record, error) {
		all, err := a.Admit(m)
		a.Members = all
		return audit.Record{What: audit.MemberAdded, On: m.Identity().String(), Detail: m.Detail()}, err
	})
}

// SetRole changes a member's role. A member who may not invite any more has no open invites, either. A repeat
// is harmless. Without a network the subject is a member's address, here and in RemoveMember and MoveMember.
// Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s members) SetRole(ctx context.Context, by access.Actor, id, network, subject string,
	role access.Role) (account.Account, error) {
	if err := input.Role(role); err != nil {
		return account.Account{}, err
	}
	return s.changeNow(ctx, by, id, access.ActionMembers, func(a *account.Account) (audit.Record, error) {
		i := a.Find(access.Identity{Network: network, Subject: subject})
		if i < 0 {
			return audit.Record{}, account.ErrNoMember
		}
		m := &a.Members[i]
		if m.Role == role {
			return audit.Record{}, errUnchanged
		}
		d := audit.Record{What: audit.RoleChanged, On: m.Identity().String(), Detail: map[string]string{
			"name": m.Name, "from": string(m.Role), "to": string(role),
		}}
		was := m.Role
		m.Role = role
		if !role.May(access.ActionMembers) {
			d.Detail["invites_withdrawn"] = some(dropInvites(a, m.Identity()))
		}
		return d, a.StillOwned(was)
	})
}

// RemoveMember removes somebody from the account, with the invites that they have made. Everybody may leave
// by themselves. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount and ErrNotAllowed.
func (s members) RemoveMember(ctx context.Context, by access.Actor, id, network,
	subject string) (account.Account, error) {
	action, who := access.ActionMembers, access.Identity{Network: network, Subject: subject}
	if by.Kind == access.ActorMember && by.Maker().Is(who) {
		action = access.ActionView
	}
	return s.changeNow(ctx, by, id, action, func(a *account.Account) (audit.Record, error) {
		d, _, err := leave(a, who)
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
		return account.Member{}, input.Wrong("to", "they are in that account; name another one")
	}
	if role != "" {
		if err := input.Role(role); err != nil {
			return account.Member{}, err
		}
	}
	for _, id := range slices.Sorted(slices.Values([]string{from, to})) {
		done, err := s.log.Turn(ctx, id)
		if err != nil {
			return account.Member{}, err
		}
		defer done()
	}
	var m account.Member
	var source, target loaded
	err := natsconf.Retry(ctx, func() (err error) {
		if source, err = s.load(ctx, by, from); err != nil {
			return err
		}
		if target, err = s.load(ctx, by, to); err != nil {
			return err
		}
		m, err = s.move(ctx, by, &source, &target, who, role)
		return err
	})
	if err != nil {
		return account.Member{}, err
	}
	return m, errors.Join(s.log.Conclude(ctx, source.record.Last), s.log.Conclude(ctx, target.record.Last))
}

// loaded is an account as it was read.
type loaded struct {
	record record.Account
	entry  entry.Entry
}

func (s members) load(ctx context.Context, by access.Actor, id string) (loaded, error) {
	a, e, err := s.readForChange(ctx, by, id, access.ActionOperate)
	if err == nil {
		err = record.AccountRewritable(e.Value)
	}
	if err != nil {
		return loaded{}, fmt.Errorf("account %s: %w", id, err)
	}
	return loaded{a, e}, nil
}

// move stores both accounts, with somebody moved, and leaves the records of that in source and target.
func (s members) move(ctx context.Context, by access.Actor, source, target *loaded, who access.Identity,
	role access.Role) (account.Member, error) {
	left, m, err := leave(&source.record.Account, who)
	if err != nil {
		return m, err
	}
	if role != "" {
		m.Role = role
	}
	m.Since = s.log.Instant()
	if target.record.Members, err = target.record.Admit(m); err != nil {
		return m, fmt.Errorf("%s: %w", target.record.Name, err)
	}
	left.What, left.Detail["to"] = audit.MemberMovedOut, target.record.ID
	came := audit.Record{What: audit.MemberMovedIn, On: left.On, Detail: m.Detail()}
	came.Detail["from"] = source.record.ID
	out, err := s.message(ctx, by, source, left)
	if err != nil {
		return m, err
	}
	in, err := s.message(ctx, by, target, came)
	if err != nil {
		return m, err
	}
	return m, s.unlessStored(ctx, target.record,
		s.conn.PublishBatch(ctx, topology.BucketStream(topology.BucketAccounts), out, in))
}

// message returns the message that stores an account with the record of a change.
func (s members) message(ctx context.Context, by access.Actor, l *loaded, d audit.Record) (*nats.Msg, error) {
	data, err := s.encode(ctx, by, &l.record, d)
	if err != nil {
		return nil, err
	}
	return entry.Message(topology.BucketAccounts, l.record.ID, data, l.entry.Revision), nil
}

// leave removes somebody from the members, with the invites that they have made.
func leave(a *account.Account, who access.Identity) (audit.Record, account.Member, error) {
	i := a.Find(who)
	if i < 0 {
		return audit.Record{}, account.Member{}, account.ErrNoMember
	}
	m := a.Members[i]
	a.Members = slices.Delete(a.Members, i, i+1)
	d := audit.Record{What: audit.MemberRemoved, On: m.Identity().String(), Detail: m.Detail()}
	d.Detail["invites_withdrawn"] = some(dropInvites(a, m.Identity()))
	return d, m, a.StillOwned(m.Role)
}

// some writes a number into the detail of a record; none is left out.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// dropInvites withdraws the invites of somebody who may not invite any more, since one of them could be for
// themselves, and returns how many.
func dropInvites(a *account.Account, maker access.Identity) (dropped int) {
	before := len(a.Invites)
	a.Invites = slices.DeleteFunc(a.Invites, func(i account.Invite) bool { return i.Maker == maker })
	return before - len(a.Invites)
}

// People are how many people are known by a namespace: members, counted in each account, and operators.
type People struct{ Members, Operators int }

// PeopleOf counts members and operators by namespace. It opens no secret. Its errors are natsconf's.
func PeopleOf(ctx context.Context, c *natsconf.Conn) (map[string]People, error) {
	accounts, err := c.Newest(ctx, topology.BucketStream(topology.BucketAccounts),
		topology.BucketSubject(topology.BucketAccounts, record.AllAccounts))
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
	operators, err := grant.NewStore(c, audit.New(c, c.Clock.Now)).Operators(ctx)
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
