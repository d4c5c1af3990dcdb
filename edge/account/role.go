package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Role is what a member is in an account.
type Role string

// The roles, each with the rights of those after it.
const (
	RoleOwner     Role = "owner"
	RoleDeveloper Role = "developer"
	RoleViewer    Role = "viewer"
)

// Roles are all roles, the mightiest first.
func Roles() []Role { return []Role{RoleOwner, RoleDeveloper, RoleViewer} }

// ParseRole reads a role.
func ParseRole(s string) (Role, error) {
	for _, r := range Roles() {
		if string(r) == s {
			return r, nil
		}
	}
	return "", fmt.Errorf("%q is not a role; use owner, developer or viewer", s)
}

// Action is something that a member may want to do in an account.
type Action string

// The actions.
const (
	ActionView     Action = "view"    // sessions, deliveries, usage, keys without their secrets, members
	ActionAudit    Action = "audit"   // read the audit log
	ActionSend     Action = "send"    // send a callback again, send a test callback
	ActionKeys     Action = "keys"    // create, roll and revoke API keys
	ActionReveal   Action = "reveal"  // see the callback signing secrets
	ActionSecrets  Action = "secrets" // rotate the callback signing secret
	ActionBranding Action = "face"    // set what end users see of the account: where its link back leads, its colour
	ActionMembers  Action = "members" // invite, change roles, remove
	// the quota, the name, login links, disabling and deleting: the operator alone
	actionOperate Action = "operate"
	actionInvited Action = "invited" // accept an invite: who has its token, whoever they are
)

// rights is the table of what each role may do. What is not in it nobody may.
var rights = map[Action][]Role{
	ActionView:     {RoleOwner, RoleDeveloper, RoleViewer},
	ActionAudit:    {RoleOwner, RoleDeveloper},
	ActionSend:     {RoleOwner, RoleDeveloper},
	ActionKeys:     {RoleOwner, RoleDeveloper},
	ActionReveal:   {RoleOwner, RoleDeveloper},
	ActionSecrets:  {RoleOwner, RoleDeveloper},
	ActionBranding: {RoleOwner},
	ActionMembers:  {RoleOwner},
}

// May reports whether the role has the right to an action.
func (r Role) May(a Action) bool {
	return slices.Contains(rights[a], r)
}

// ErrNotAllowed is returned where the actor has no right to the change.
var ErrNotAllowed = errors.New("not allowed")

// permit checks an actor's right against the account, and against what makes somebody an operator or a login
// link good for anything, as they are stored now: who was removed or taken back a moment ago changes nothing,
// whatever a mirror or a page still shows. The error is ErrNotAllowed, or natsconf's.
//
// In an account that is disabled the operator alone changes anything; to the others the error is ErrDisabled.
func (s *Store) permit(ctx context.Context, a Account, by Actor, action Action) error {
	if !a.DisabledAt.IsZero() && by.Kind != ActorOperator {
		return ErrDisabled
	}
	if action == actionInvited {
		return nil
	}
	if by.Kind == ActorOperator {
		return s.permitOperator(ctx, by)
	}
	role, err := s.roleOf(ctx, a, by)
	if err != nil {
		return err
	}
	if !role.May(action) {
		return fmt.Errorf("%w: %s is %s of %s, which does not include the right to %q", ErrNotAllowed, by,
			role, a.Name, action)
	}
	return nil
}

// roleOf returns what an actor is in an account. The error is ErrNotAllowed for who is nothing there.
func (s *Store) roleOf(ctx context.Context, a Account, by Actor) (Role, error) {
	switch by.Kind {
	case ActorMember:
		m, ok := a.Member(by.Network, by.Subject)
		if !ok {
			return "", fmt.Errorf("%w: %s is not a member of %s", ErrNotAllowed, by, a.Name)
		}
		return m.Role, nil
	case ActorLink:
		g, err := s.LoginLinkGrant(ctx, a.ID, by.ID)
		if errors.Is(err, ErrNoLink) {
			return "", fmt.Errorf("%w: %s gives nothing in %s any more", ErrNotAllowed, by, a.Name)
		}
		return g.Role, err
	case ActorOperator, ActorKey:
	}
	return "", fmt.Errorf("%w: %s changes nothing in an account", ErrNotAllowed, by)
}

// permitOperator lets in who has the command line, and who is an operator by an identity or a login link at
// this moment.
func (s *Store) permitOperator(ctx context.Context, by Actor) error {
	if by.atCommandLine() {
		return nil
	}
	is, err := s.granted(ctx, Grant{Network: by.Network, Subject: by.Subject, Link: by.ID})
	if err == nil && !is {
		return fmt.Errorf("%w: %s is no operator any more", ErrNotAllowed, by)
	}
	return err
}
