// Package management names the problems that only the management interface has, by codes that never change
// their meaning. Package problem has their table.
package management

// The codes.
const (
	TokenMissing = "token_missing" // no Authorization header, several, or another scheme than Bearer
	// TokenInvalid: not an operator token of this service, unknown, revoked or expired
	TokenInvalid    = "token_invalid"
	ScopeMissing    = "scope_missing"     // the token lacks the scope in the detail
	AccountNotFound = "account_not_found" // no account with that id, or it was deleted
	APIKeyNotFound  = "api_key_not_found" //nolint:gosec // no key with that id
	MemberNotFound  = "member_not_found"  // the account has no such member
	InviteNotFound  = "invite_not_found"  // it was accepted or withdrawn, or never existed
	AccountExists   = "account_exists"    // the name is taken or reserved
	StateConflict   = "state_conflict"    // the state in the detail has to be changed first
	InvalidValue    = "invalid_value"     // an impossible value; errors names it
)
