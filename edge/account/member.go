package account

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/account/input"
)

// Member is a person in an account. Network and Subject identify the person; the rest may change.
type Member struct {
	// the identity network's namespace (edge/account/namespace), which is its id unless that was pointed at
	// another provider
	Network string      `json:"network"`
	Subject string      `json:"subject"`         // who the person is there, permanently
	Name    string      `json:"name,omitempty"`  // as the network gave it; may be empty
	Email   string      `json:"email,omitempty"` // only if the network verified it
	Role    access.Role `json:"role"`
	Since   time.Time   `json:"since"`
}

// maxPeople bounds the members and open invites of an account: its record is read whole at each change.
const maxPeople = 200

var (
	// ErrNoMember is returned if the account has no such member.
	ErrNoMember = errors.New("no such member")
	// ErrAlreadyMember is returned for a person who is in the account already.
	ErrAlreadyMember = errors.New("already a member")
	// ErrLastOwner is returned if a change would leave an account without an owner.
	ErrLastOwner = errors.New("the last owner can neither leave nor change role; make somebody else an " +
		"owner first")
	// ErrFull is returned if an account has as many members and open invites as it can.
	ErrFull = fmt.Errorf("an account has at most %d members and open invites", maxPeople)
)

// MemberIndex returns the index of an identity among the members; -1: it is not there.
func (a Account) MemberIndex(network, subject string) int {
	return slices.IndexFunc(a.Members, func(m Member) bool {
		return m.Network == network && m.Subject == subject
	})
}

// Find returns the index of the member whom an identity or an address names (access.Identity.Is); -1: nobody.
func (a Account) Find(named access.Identity) int {
	return slices.IndexFunc(a.Members, func(m Member) bool { return m.Identity().Is(named) })
}

// Admit returns the members with another. Its errors are ErrAlreadyMember and ErrFull.
func (a Account) Admit(m Member) ([]Member, error) {
	if a.MemberIndex(m.Network, m.Subject) >= 0 {
		return nil, ErrAlreadyMember
	}
	if a.Full() {
		return nil, ErrFull
	}
	return append(a.Members, m), nil
}

// Owner identifies whose the account is, so that what one person's accounts use counts together: the owner
// who has been a member for longest. An account without one, as operators make it, is its own.
func (a Account) Owner() string {
	i := slices.IndexFunc(a.Members, func(m Member) bool { return m.Role == access.RoleOwner })
	if i < 0 {
		return a.ID
	}
	return a.Members[i].Identity().Person()
}

// Full reports whether nobody else can become a member or be invited.
func (a Account) Full() bool { return len(a.Members)+len(a.Invites) >= maxPeople }

// StillOwned refuses a change of a member who had a role, if that leaves no owner. The error is ErrLastOwner.
func (a Account) StillOwned(was access.Role) error {
	if was != access.RoleOwner || slices.ContainsFunc(a.Members, func(m Member) bool {
		return m.Role == access.RoleOwner
	}) {
		return nil
	}
	return ErrLastOwner
}

// Checked returns the member as they are to be stored, since an instant. A name from the network is for
// people to read: it is cleaned, not refused. The error is an *input.Error.
func (m Member) Checked(now time.Time) (Member, error) {
	if !input.IsIdentity(m.Network, m.Subject) {
		return Member{}, input.Wrong("member", "a member has an identity network and a subject there of at "+
			"most 1024 bytes without invisible characters")
	}
	if err := input.Role(m.Role); err != nil {
		return Member{}, err
	}
	m.Name, m.Email, m.Since = input.Readable(m.Name), input.Readable(m.Email), now
	return m, nil
}

// Identity is the member's identity.
func (m Member) Identity() access.Identity {
	return access.Identity{Network: m.Network, Subject: m.Subject}
}

// Actor is the member as an actor. The right to a change is read from the account, not from here.
func (m Member) Actor() access.Actor {
	return access.Actor{Kind: access.ActorMember, Network: m.Network, Subject: m.Subject, Name: m.Name}
}

// Detail is the member in a record of the audit log.
func (m Member) Detail() map[string]string {
	return map[string]string{"name": m.Name, "role": string(m.Role)}
}
