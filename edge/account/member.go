package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Member is a person in an account. Network and Subject are who it is; the rest may change.
type Member struct {
	// the identity network's namespace (Namespace), which is its id unless that was pointed at another provider
	Network string
	Subject string // who the person is there, for ever
	Name    string // as the network gave it; may be empty
	Email   string // only where the network verified it
	Role    Role
	Since   time.Time
}

// subjectBytes bounds who somebody is at a network.
const subjectBytes = 1024

// maxPeople bounds the members and open invites of an account: its record is read whole at each change.
const maxPeople = 200

var (
	// ErrNoMember is returned where the account has no such member.
	ErrNoMember = errors.New("no such member")
	// ErrAlreadyMember is returned for who is in the account already.
	ErrAlreadyMember = errors.New("already a member")
	// ErrLastOwner is returned where a change would leave an account without an owner.
	ErrLastOwner = errors.New("the last owner cannot go and stays owner; make somebody else an owner first")
	// ErrFull is returned where an account has as many members and open invites as it can.
	ErrFull = fmt.Errorf("an account has at most %d members and open invites", maxPeople)
)

func memberIndex(members []Member, network, subject string) int {
	return slices.IndexFunc(members, func(m Member) bool {
		return m.Network == network && m.Subject == subject
	})
}

// AddMember puts somebody into the account without an invite. Its errors are ErrAlreadyMember, ErrFull,
// ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) AddMember(ctx context.Context, by Actor, account string, m Member) (Account, error) {
	m, err := s.newMember(m)
	if err != nil {
		return Account{}, err
	}
	return s.change(ctx, by, account, ActionMembers, func(a *Account, _ time.Time) (deed, error) {
		return deed{what: MemberAdded, on: m.identity(), detail: m.detail()}, admit(a, m)
	})
}

// SetRole returns a member another role. Whoever may not invite any more has no open invites, either. A repeat
// is harmless. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) SetRole(ctx context.Context, by Actor, account, network, subject string, role Role) (Account,
	error) {
	if err := checkRole(role); err != nil {
		return Account{}, err
	}
	return s.change(ctx, by, account, ActionMembers, func(a *Account, _ time.Time) (deed, error) {
		i := memberIndex(a.Members, network, subject)
		if i < 0 {
			return deed{}, ErrNoMember
		}
		m := &a.Members[i]
		if m.Role == role {
			return deed{}, errUnchanged
		}
		d := deed{
			what: RoleChanged, on: m.identity(), detail: map[string]string{
				"name": m.Name, "from": string(m.Role), "to": string(role),
			},
		}
		was := m.Role
		m.Role = role
		if !role.May(ActionMembers) {
			d.detail["invites_withdrawn"] = some(dropInvites(a, m.who()))
		}
		return d, stillOwned(a, was)
	})
}

// RemoveMember takes somebody out of the account, and the invites that they have made with them. Everybody
// may leave by themselves. Its errors are ErrNoMember, ErrLastOwner, ErrNoAccount and ErrNotAllowed.
func (s *Store) RemoveMember(ctx context.Context, by Actor, account, network, subject string) (Account,
	error) {
	action := ActionMembers
	if by.Kind == ActorMember && by.Network == network && by.Subject == subject {
		action = ActionView
	}
	return s.change(ctx, by, account, action, func(a *Account, _ time.Time) (deed, error) {
		i := memberIndex(a.Members, network, subject)
		if i < 0 {
			return deed{}, ErrNoMember
		}
		m := a.Members[i]
		a.Members = slices.Delete(a.Members, i, i+1)
		d := deed{what: MemberRemoved, on: m.identity(), detail: m.detail()}
		d.detail["invites_withdrawn"] = some(dropInvites(a, m.who()))
		return d, stillOwned(a, m.Role)
	})
}

// some writes a number into the detail of a record; none is left out.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// admit adds a member.
func admit(a *Account, m Member) error {
	if memberIndex(a.Members, m.Network, m.Subject) >= 0 {
		return ErrAlreadyMember
	}
	if len(a.Members)+len(a.Invites) >= maxPeople {
		return ErrFull
	}
	a.Members = append(a.Members, m)
	return nil
}

// stillOwned refuses a change of a member who had a role, where that leaves no owner.
func stillOwned(a *Account, was Role) error {
	if was != RoleOwner || slices.ContainsFunc(a.Members, func(m Member) bool {
		return m.Role == RoleOwner
	}) {
		return nil
	}
	return ErrLastOwner
}

// newMember checks who is to become one. What the network says of a name is for people to read: it is
// cleaned, not refused.
func (s *Store) newMember(m Member) (Member, error) {
	if m.Network == "" || m.Subject == "" || !plain(m.Network, nameBytes) || len(m.Subject) > subjectBytes {
		return Member{}, &InputError{
			Field: "member", Detail: "a member has an identity network and a subject there of at most 1024 bytes",
		}
	}
	if err := checkRole(m.Role); err != nil {
		return Member{}, err
	}
	m.Name, m.Email, m.Since = readable(m.Name), readable(m.Email), s.instant()
	return m, nil
}

func (m Member) who() identity { return identity{m.Network, m.Subject} }

func (m Member) identity() string { return identityText(m.Network, m.Subject) }

func (m Member) detail() map[string]string {
	return map[string]string{"name": m.Name, "role": string(m.Role)}
}

// readable makes one line of at most nameBytes out of what another service calls somebody.
func readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, text)
	for i := range text { // cut between characters
		if i > nameBytes-4 {
			text = text[:i]
			break
		}
	}
	return strings.TrimSpace(text)
}
