package manage

import (
	"errors"
	"net/url"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/input"
	"verifyd/edge/problem"
	"verifyd/edge/problem/fault"
	"verifyd/edge/problem/management"
	"verifyd/edge/request"
)

// kinds maps the errors of package accountstore to problems.
var kinds = []struct {
	err    error
	code   problem.Code
	detail string // empty: the error's own text
}{
	{account.ErrNoAccount, management.AccountNotFound,
		"There is no account with this id; accounts are named by their id, and GET /manage/accounts?name= " +
			"finds it."},
	{account.ErrNoKey, management.APIKeyNotFound, "The account has no API key with this id."},
	{account.ErrNoMember, management.MemberNotFound, "The account has no such member."},
	{account.ErrNoInvite, management.InviteNotFound,
		"The account has no such invite: it was accepted or withdrawn."},
	{account.ErrAccountExists, management.AccountExists, ""},
	{account.ErrRolled, management.StateConflict, ""},
	{account.ErrKeyEnded, management.StateConflict, ""},
	{account.ErrRotating, management.StateConflict, ""},
	{account.ErrNotRotating, management.StateConflict, ""},
	{account.ErrLastOwner, management.StateConflict, ""},
	{account.ErrAlreadyMember, management.StateConflict, ""},
	{account.ErrFull, management.StateConflict, ""},
	{accountstore.ErrDeletionAsked, management.StateConflict,
		"The deletion of the account was requested; restore it first."},
	{access.ErrNotAllowed, management.TokenInvalid,
		"This operator token was revoked, or expired, while the request was in progress."},
}

// refusal returns the problem for an error of a change or a read.
func refusal(err error) *problem.Problem {
	if e, ok := errors.AsType[*input.Error](err); ok {
		f := problem.Fault{Field: e.Field, Code: fault.Value, Detail: e.Detail}
		p := request.Invalid(f)
		p.Code, p.Cause = management.InvalidValue, err
		return p
	}
	for _, k := range kinds {
		if !errors.Is(err, k.err) {
			continue
		}
		detail := k.detail
		if detail == "" {
			detail = sentence(err.Error())
		}
		return &problem.Problem{Code: k.code, Detail: detail, Cause: err}
	}
	return request.StoreProblem(err)
}

// sentence turns an error's text into a sentence.
func sentence(text string) string {
	if text[0] >= 'a' && text[0] <= 'z' {
		text = string(text[0]-'a'+'A') + text[1:]
	}
	return text + "."
}

// body reads the body of a request, which may have only members with these names.
func (c call) body(names ...string) (*request.Members, *problem.Problem) {
	data, p := request.Body(c.http)
	if p != nil {
		return nil, p
	}
	m, f := request.ReadMembers(data)
	if f != nil {
		return nil, request.Invalid(*f)
	}
	m.Only(names...)
	return m, nil
}

// query reads the query of a request.
func (c call) query() (*request.Parameters, *problem.Problem) {
	values, err := url.ParseQuery(c.http.URL.RawQuery)
	if err != nil {
		return nil, request.Invalid(problem.Fault{Code: fault.Parameter,
			Detail: "the query is not of the form name=value&name=value, percent-encoded"})
	}
	return &request.Parameters{Values: values}, nil
}
