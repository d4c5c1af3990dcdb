package problem

import "net/http"

// The codes of problems that only the management interface has. They never change their meaning either.
const (
	// CodeTokenMissing: no Authorization header, several, or another scheme than Bearer
	CodeTokenMissing Code = "token_missing"
	// CodeTokenInvalid: not an operator token of this service, unknown, revoked or expired
	CodeTokenInvalid Code = "token_invalid"
	CodeScopeMissing Code = "scope_missing" // the token lacks the scope in the detail
	// CodeAccountNotFound: no account with that id, or it was deleted
	CodeAccountNotFound Code = "account_not_found"
	CodeAPIKeyNotFound  Code = "api_key_not_found" //nolint:gosec // no key with that id
	CodeMemberNotFound  Code = "member_not_found"  // the account has no such member
	CodeInviteNotFound  Code = "invite_not_found"  // it was accepted or withdrawn, or never existed
	CodeAccountExists   Code = "account_exists"    // the name is taken or reserved
	CodeStateConflict   Code = "state_conflict"    // the state in the detail has to be changed first
	CodeInvalidValue    Code = "invalid_value"     // an impossible value; errors names it
)

// managing has the problems that only the management interface uses.
var managing = map[Code]kind{
	CodeTokenMissing:    {http.StatusUnauthorized, "An operator token is required"},
	CodeTokenInvalid:    {http.StatusUnauthorized, "The operator token is not valid"},
	CodeScopeMissing:    {http.StatusForbidden, "The operator token lacks a scope"},
	CodeAccountNotFound: {http.StatusNotFound, "There is no such account"},
	CodeAPIKeyNotFound:  {http.StatusNotFound, "There is no such API key"},
	CodeMemberNotFound:  {http.StatusNotFound, "There is no such member"},
	CodeInviteNotFound:  {http.StatusNotFound, "There is no such invite"},
	CodeAccountExists:   {http.StatusConflict, "The name is taken"},
	CodeStateConflict:   {http.StatusConflict, "The state does not allow this"},
	CodeInvalidValue:    {http.StatusUnprocessableEntity, "A value is not accepted"},
}
