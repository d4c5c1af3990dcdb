package account

import (
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
	ActionView    Action = "view"    // sessions, deliveries, usage, keys without their secrets, members
	ActionAudit   Action = "audit"   // read the audit log
	ActionSend    Action = "send"    // send a callback again, send a test callback
	ActionKeys    Action = "keys"    // create, roll and revoke API keys
	ActionReveal  Action = "reveal"  // see the callback signing secrets
	ActionSecrets Action = "secrets" // rotate the callback signing secret
	ActionFace    Action = "face"    // set what end users see of the account: where its link back leads, its colour
	ActionMembers Action = "members" // invite, change roles, remove
	actionOperate Action = "operate" // set the quota, make login links: the operator alone
	actionInvited Action = "invited" // accept an invite: who has its token, whoever they are
)

// rights is the table of what each role may do. What is not in it nobody may.
var rights = map[Action][]Role{
	ActionView:    {RoleOwner, RoleDeveloper, RoleViewer},
	ActionAudit:   {RoleOwner, RoleDeveloper},
	ActionSend:    {RoleOwner, RoleDeveloper},
	ActionKeys:    {RoleOwner, RoleDeveloper},
	ActionReveal:  {RoleOwner, RoleDeveloper},
	ActionSecrets: {RoleOwner, RoleDeveloper},
	ActionFace:    {RoleOwner},
	ActionMembers: {RoleOwner},
}

// May says whether the role has the right to an action.
func (r Role) May(a Action) bool {
	return slices.Contains(rights[a], r)
}

// ErrNotAllowed is returned where the actor has no right to the change.
var ErrNotAllowed = errors.New("not allowed")

// permit checks an actor's right against the account as it is stored now, so that a member who was removed a moment ago changes
// nothing, whatever a mirror still shows. The error is ErrNotAllowed.
func permit(a Account, by Actor, action Action) error {
	if action == actionInvited {
		return nil
	}
	role := by.Role
	switch by.Kind {
	case ActorOperator:
		return nil
	case ActorLink:
	case ActorMember:
		m, ok := a.Member(by.Network, by.Subject)
		if !ok {
			return fmt.Errorf("%w: %s is not a member of %s", ErrNotAllowed, by, a.Name)
		}
		role = m.Role
	default:
		return fmt.Errorf("%w: %s changes nothing in an account", ErrNotAllowed, by)
	}
	if !role.May(action) {
		return fmt.Errorf("%w: %s is %s of %s, which does not include the right to %q", ErrNotAllowed, by, role, a.Name, action)
	}
	return nil
}
