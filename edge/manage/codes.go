package manage

import "verifyd/edge/problem"

// The codes of problems that only this interface has; package problem has their table.
const (
	// codeTokenMissing: no Authorization header, several, or another scheme than Bearer
	codeTokenMissing problem.Code = "token_missing"
	// codeTokenInvalid: not an operator token of this service, unknown, revoked or expired
	codeTokenInvalid    problem.Code = "token_invalid"
	codeScopeMissing    problem.Code = "scope_missing"     // the token lacks the scope in the detail
	codeAccountNotFound problem.Code = "account_not_found" // no account with that id, or it was deleted
	codeAPIKeyNotFound  problem.Code = "api_key_not_found" //nolint:gosec // no key with that id
	codeMemberNotFound  problem.Code = "member_not_found"  // the account has no such member
	codeInviteNotFound  problem.Code = "invite_not_found"  // it was accepted or withdrawn, or never existed
	codeAccountExists   problem.Code = "account_exists"    // the name is taken or reserved
	// codeStateConflict: the state in the detail has to be changed first
	codeStateConflict problem.Code = "state_conflict"
	codeInvalidValue  problem.Code = "invalid_value" // an impossible value; errors names it
)
