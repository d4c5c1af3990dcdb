package api

import (
	"errors"
	"fmt"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/export"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

// Levels are the operator's choices of what sessions require to be proven.
type Levels struct {
	Default proof.Level // if neither the request nor the account sets one; empty: proof.Link
	Min     proof.Level // that a request may ask for; empty: proof.Link
}

// level returns what a session requires to be proven, as set by its request, or else by its account, or else
// by the operator. From the latter two it is never less than the operator allows.
func (a *api) level(who account.Principal, v verification) (proof.Level, *problem.Problem) {
	asked := v.level
	if asked == "" {
		asked = who.Account.Level.Or(a.Levels.Default).Or(proof.Link)
		if !asked.AtLeast(a.Levels.Min) {
			asked = a.Levels.Min
		}
	}
	var f problem.Fault
	switch {
	case !asked.AtLeast(a.Levels.Min):
		f.Detail = fmt.Sprintf("the field is %q; the operator of this service requires at least %q", asked,
			a.Levels.Min)
	case asked == proof.Account && !a.Proves(v.platform, who.Key.Test):
		f.Detail = fmt.Sprintf("the session asks for %q, and no identity network here proves who has an "+
			"account on the platform %.40q; ask for %q, or use a platform that one proves", asked, v.platform,
			proof.Code)
	default:
		return asked, nil
	}
	f.Field, f.Code = "binding", problem.FaultValue
	return "", request.Invalid(f)
}

// confirmation is what POST /sessions/{session}/confirm takes.
type confirmation struct{ user, code string }

// readConfirmation reads and checks its body, as strictly as that of a start.
func readConfirmation(r *http.Request) (confirmation, *problem.Problem) {
	body, p := request.Body(r)
	if p != nil {
		return confirmation{}, p
	}
	read, f := request.ReadMembers(body)
	if f != nil {
		return confirmation{}, request.Invalid(*f)
	}
	m := members{read}
	c := confirmation{user: m.text("platform_user_id", true), code: m.code("code")}
	return c, m.Problem()
}

// code reads a code as a user has typed it. Text that cannot be a code costs no try.
func (m members) code(name string) string {
	s, ok := m.Text(name, true)
	if !ok {
		return ""
	}
	code, ok := proof.ParseCode(s)
	if !ok {
		m.Faultf(name, problem.FaultValue, "the field is not a code; it must be the %d letters and digits "+
			"that the sign-in page shows, in any case, with or without spaces and hyphens", proof.CodeLength)
	}
	return code
}

// confirmations answers POST /sessions/{session}/confirm.
type confirmations struct{ *api }

// POST /sessions/{session}/confirm completes a session whose binding is "code", with the code that the user
// entered on the platform and the user who entered it. It answers as GET does. A repeat is harmless: the same
// code of the same user is one try. It counts towards the key's rate.
func (a confirmations) answer(w http.ResponseWriter, r *http.Request) {
	view, p := a.confirm(w.Header(), r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusOK, "application/json", export.Document(view))
}

func (a confirmations) confirm(h http.Header, r *http.Request) (facts.View, *problem.Problem) {
	who, p := a.authorize(r)
	if p == nil {
		p = a.withinRate(h, who, a.Now())
	}
	if p != nil {
		return facts.View{}, p
	}
	given, p := readConfirmation(r)
	if p != nil {
		return facts.View{}, p
	}
	ctx, done, p := a.wait(r.Context())
	if p != nil {
		return facts.View{}, p
	}
	defer done()
	view, p := a.session(ctx, who, r)
	if p != nil {
		return view, p
	}
	if p := confirmable(view); p != nil {
		return view, p
	}
	c, err := a.Sessions.Confirm(ctx, view.Session, given.user, given.code)
	if err != nil {
		return view, a.problem(view, c, err)
	}
	view.Outcome, view.CompletedAt = c.Outcome, c.CompletedAt
	if view.Delivery.State == facts.DeliveryNone {
		view.Delivery.State = facts.DeliveryDue
	}
	return view, nil
}

// confirmable returns why a session cannot be confirmed, as far as its state shows.
func confirmable(v facts.View) *problem.Problem {
	switch {
	case v.Level != proof.Code:
		return nothingToConfirm(fmt.Sprintf("The session asks for no code: its binding is %q.", v.Level))
	case v.State == sessions.Expired:
		return confirmationExpired(v)
	case v.State == sessions.Failed, v.State == sessions.Canceled:
		return nothingToConfirm("The session has ended: it is " + string(v.State) + ".")
	}
	return nil
}

func (a confirmations) problem(v facts.View, stands sessions.Completion, err error) *problem.Problem {
	wrong, isWrong := errors.AsType[*store.WrongCodeError](err)
	switch {
	case isWrong:
		detail := fmt.Sprintf("This is not the code of the session, or it was not given by the user of the "+
			"session; tries left: %d.", wrong.Left)
		if wrong.Left == 0 {
			detail = "This is not the code of the session, or it was not given by the user of the " +
				"session. It was the last try: the session has failed."
		}
		if !wrong.Again { // repeats are bounded by nothing but a rate, and the store keeps every event
			a.Sessions.Emit(timeline.Event{
				Name: timeline.EventWrongCode, Detail: fmt.Sprintf("%d tries left", wrong.Left),
			}.Of(v.Session))
		}
		return &problem.Problem{Code: problem.CodeWrongCode, Detail: detail, TriesLeft: &wrong.Left}
	case errors.Is(err, proof.ErrNothingToConfirm) && v.State != sessions.Pending: // its tries are forgotten
		return nothingToConfirm("The session has ended: it is " + string(v.State) + ".")
	case errors.Is(err, proof.ErrNothingToConfirm):
		return nothingToConfirm("The user has not signed in yet, so there is no code.")
	case errors.Is(err, sessions.ErrCompleted):
		return nothingToConfirm("The session has ended: it is " + string(stands.State) + ".")
	case errors.Is(err, sessions.ErrExpired):
		return confirmationExpired(v)
	default:
		return storeProblem(err)
	}
}

func nothingToConfirm(detail string) *problem.Problem {
	return &problem.Problem{Code: problem.CodeNothingToConfirm, Detail: detail}
}

func confirmationExpired(v facts.View) *problem.Problem {
	return &problem.Problem{
		Code: problem.CodeConfirmationExpired,
		Detail: "The session expired at " + web.Timestamp(v.ExpiresAt) + ", and its code with it; no " +
			"callback is sent.",
	}
}
