package access

import (
	"errors"
	"fmt"
	"slices"
)

// Role is a member's role in an account.
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
	if slices.Contains(Roles(), Role(s)) {
		return Role(s), nil
	}
	return "", fmt.Errorf("%q is not a role; use owner, developer or viewer", s)
}

// Action is something that a member may want to do in an account.
type Action string

// The actions.
const (
	ActionView    Action = "view"    // sessions, deliveries, usage, keys without their secrets, members
	ActionExport  Action = "export"  // take all sessions away as a file
	ActionAudit   Action = "audit"   // read the audit log
	ActionSend    Action = "send"    // send a callback again, send a test callback
	ActionKeys    Action = "keys"    // create, roll and revoke API keys
	ActionReveal  Action = "reveal"  // see the callback signing secrets
	ActionSecrets Action = "secrets" // rotate the callback signing secret
	ActionNotices Action = "notices" // set the address that notices go to
	// ActionBranding: set what end users see of the account: the address of its link back, its colour
	ActionBranding Action = "face"
	ActionMembers  Action = "members" // invite, change roles, remove
	ActionAccount  Action = "account" // another name, and requesting its end
	ActionRestore  Action = "restore" // withdraw the request for its end
	ActionOperate  Action = "operate" // quota, login links, disabling, the verified mark: only the operator
	ActionInvited  Action = "invited" // accept an invite: anyone who has its token
)

// rights is the table of what each role may do. An action that is not in it is not allowed to anybody.
var rights = map[Action][]Role{
	ActionView:     {RoleOwner, RoleDeveloper, RoleViewer},
	ActionExport:   {RoleOwner, RoleDeveloper, RoleViewer},
	ActionAudit:    {RoleOwner, RoleDeveloper},
	ActionSend:     {RoleOwner, RoleDeveloper},
	ActionKeys:     {RoleOwner, RoleDeveloper},
	ActionReveal:   {RoleOwner, RoleDeveloper},
	ActionSecrets:  {RoleOwner, RoleDeveloper},
	ActionNotices:  {RoleOwner, RoleDeveloper},
	ActionBranding: {RoleOwner},
	ActionMembers:  {RoleOwner},
	ActionAccount:  {RoleOwner},
	ActionRestore:  {RoleOwner},
}

// May reports whether the role has the right to an action.
func (r Role) May(a Action) bool {
	return slices.Contains(rights[a], r)
}

// ErrNotAllowed is returned if the actor has no right to the change.
var ErrNotAllowed = errors.New("not allowed")

// ErrLogFull is returned for a change of an account that has as many records in the audit log as are kept for
// one account, unless an operator makes it or it takes a right away.
var ErrLogFull = errors.New("the account's audit log has as many records as are kept for one account; only " +
	"operators change the account now, or changes that take rights away")
