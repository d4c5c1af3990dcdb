package manage

import (
	"errors"
	"net/url"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/input"
	"verifyd/edge/problem"
	"verifyd/edge/request"
)

// kinds maps the errors of package accountstore to problems.
var kinds = []struct {
	err    error
	code   problem.Code
	detail string // empty: the error's own text
}{
	{account.ErrNoAccount, problem.CodeAccountNotFound,
		"There is no account with this id; accounts are named by their id, and GET /manage/accounts?name= " +
			"finds it."},
	{account.ErrNoKey, problem.CodeAPIKeyNotFound, "The account has no API key with this id."},
	{account.ErrNoMember, problem.CodeMemberNotFound, "The account has no such member."},
	{account.ErrNoInvite, problem.CodeInviteNotFound,
		"The account has no such invite: it was accepted or withdrawn."},
	{account.ErrAccountExists, problem.CodeAccountExists, ""},
	{account.ErrRolled, problem.CodeStateConflict, ""},
	{account.ErrKeyEnded, problem.CodeStateConflict, ""},
	{account.ErrRotating, problem.CodeStateConflict, ""},
	{account.ErrNotRotating, problem.CodeStateConflict, ""},
	{account.ErrLastOwner, problem.CodeStateConflict, ""},
	{account.ErrAlreadyMember, problem.CodeStateConflict, ""},
	{account.ErrFull, problem.CodeStateConflict, ""},
	{accountstore.ErrDeletionAsked, problem.CodeStateConflict,
		"The deletion of the account was requested; restore it first."},
	{access.ErrNotAllowed, problem.CodeTokenInvalid,
		"This operator token was revoked, or expired, while the request was in progress."},
}

// refusal returns the problem for an error of a change or a read.
func refusal(err error) *problem.Problem {
	if e, ok := errors.AsType[*input.Error](err); ok {
		f := problem.Fault{Field: e.Field, Code: problem.FaultValue, Detail: e.Detail}
		p := request.Invalid(f)
		p.Code, p.Cause = problem.CodeInvalidValue, err
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
		return nil, request.Invalid(problem.Fault{Code: problem.FaultParameter,
			Detail: "the query is not of the form name=value&name=value, percent-encoded"})
	}
	return &request.Parameters{Values: values}, nil
}
