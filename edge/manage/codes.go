package manage

import "verifyd/edge/problem"

// The codes of problems that no other interface has; package problem has their table.
const (
	// codeTokenMissing: no Authorization header, several, or another scheme than Bearer
	codeTokenMissing problem.Code = "token_missing"
	// codeTokenInvalid: not an operator token of this service, unknown, revoked or expired
	codeTokenInvalid    problem.Code = "token_invalid"
	codeScopeMissing    problem.Code = "scope_missing"     // the token lacks the scope that the detail names
	codeAccountNotFound problem.Code = "account_not_found" // no account of that id, or it was deleted
	codeAPIKeyNotFound  problem.Code = "api_key_not_found" //nolint:gosec // the account has no key of that id
	codeMemberNotFound  problem.Code = "member_not_found"  // the account has no such member
	codeInviteNotFound  problem.Code = "invite_not_found"  // it was accepted or withdrawn, or never was
	codeAccountExists   problem.Code = "account_exists"    // the name is another account's, or kept for one
	// codeStateConflict: what the detail says has to be changed first
	codeStateConflict problem.Code = "state_conflict"
	codeInvalidValue  problem.Code = "invalid_value" // a value that cannot be; errors names it
)
