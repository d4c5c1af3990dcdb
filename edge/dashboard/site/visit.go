package site

import (
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/places"
)

// Visit is who makes a request, and in which account.
type Visit struct {
	Login    logins.Login
	Account  account.Account
	Role     access.Role
	Accounts []account.Account // all that the person is a member of, by name
	Operator bool
	Unread   int // notices of the account; 0 if they could not be counted
}

// May reports whether the visitor has the right to an action. While the account is disabled, its members can
// only view it and leave it, and restore one whose deletion an owner requested.
func (v Visit) May(a access.Action) bool {
	restores := a == access.ActionRestore && !v.Account.Barred()
	return v.Role.May(a) && (v.Account.DisabledAt.IsZero() || a == access.ActionView ||
		a == access.ActionAudit || restores)
}

// Actor is the visitor as the audit log names them.
func (v Visit) Actor() access.Actor {
	if v.Login.LinkID != "" {
		return grant.Link{ID: v.Login.LinkID, Account: v.Login.Account, Role: v.Login.Role}.Actor()
	}
	m, _ := v.Account.Member(v.Login.Network, v.Login.Subject)
	return m.Actor()
}

// Person identifies who the visitor is, in whatever account.
func (v Visit) Person() string {
	return v.Login.LinkID + access.Identity{Network: v.Login.Network, Subject: v.Login.Subject}.Person()
}

// Asks returns whose a bounded place is that the visit asks for: the account's owner's, and the person's.
func (v Visit) Asks() places.Request { return places.Request{Of: v.Account.Owner(), And: v.Person()} }

// Who is what the visitor is called.
func (v Visit) Who() string {
	switch {
	case v.Login.LinkID != "":
		return "Login link"
	case v.Login.Name != "":
		return v.Login.Name
	default:
		return v.Login.Subject
	}
}

// AsOperator is the visitor of an operator's page as the audit log names them.
func (v Visit) AsOperator() access.Actor {
	if v.Login.LinkID != "" {
		return grant.Link{ID: v.Login.LinkID, Operator: true}.Actor()
	}
	return access.OperatorWith(v.Login.Network, v.Login.Subject, v.Who())
}
