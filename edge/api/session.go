package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/export"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// GET /sessions/{session} reads a session of the key's account. The session is named by its id or its token.
// ?wait= holds the answer, for at most that many seconds, until the session's state or its delivery's
// changes.
func (a *api) readSession(w http.ResponseWriter, r *http.Request) {
	view, p := whileWaiting(&a.guard, r, a.session)
	var wait time.Duration
	if p == nil {
		wait, p = waitOf(r.URL.Query())
	}
	if p == nil && wait > 0 {
		view, p = a.await(w, r, view, wait)
		if p == nil {
			_, p = a.authorize(r) // the key may have been revoked meanwhile
		}
	}
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusOK, "application/json", export.Document(view))
}

// POST /sessions/{session}/cancel takes a pending session back: it is completed as canceled, and no callback
// is sent. It answers as GET does. A repeat is harmless.
func (a *api) cancelSession(w http.ResponseWriter, r *http.Request) {
	view, p := whileWaiting(&a.guard, r, func(ctx context.Context, who account.Principal,
		r *http.Request) (facts.View, *problem.Problem) {
		view, p := a.session(ctx, who, r)
		if p == nil {
			view, p = a.cancel(ctx, view)
		}
		return view, p
	})
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusOK, "application/json", export.Document(view))
}

// whileWaiting finds out whose request it is, and makes a call to the store, for as long as a request waits.
func whileWaiting(g *guard, r *http.Request, ask func(context.Context, account.Principal,
	*http.Request) (facts.View, *problem.Problem)) (facts.View, *problem.Problem) {
	who, p := g.authorize(r)
	if p != nil {
		return facts.View{}, p
	}
	ctx, done, p := g.wait(r.Context())
	if p != nil {
		return facts.View{}, p
	}
	defer done()
	return ask(ctx, who, r)
}

// session reads the session that the path names, if the key's account owns it. A malformed name, another
// account's session and none at all look the same.
func (a *api) session(ctx context.Context, who account.Principal, r *http.Request) (facts.View,
	*problem.Problem) {
	id, err := sessions.ParseID(r.PathValue("session"))
	if err != nil {
		return facts.View{}, noSession()
	}
	view, err := a.Sessions.ReadOf(ctx, who.Account.ID, id)
	switch {
	case errors.Is(err, sessions.ErrNotFound):
		return facts.View{}, noSession()
	case err != nil:
		return facts.View{}, storeProblem(err)
	case view.Account != who.Account.ID, view.Test != who.Key.Test:
		return facts.View{}, noSession()
	}
	a.Sessions.Explain(ctx, &view)
	event := web.EventFrom(ctx)
	event.Session = id
	event.Follow(ctx, view.Trace)
	return view, nil
}

func (a *api) cancel(ctx context.Context, view facts.View) (facts.View, *problem.Problem) {
	if view.State == sessions.Pending {
		c, err := a.Sessions.Complete(ctx, view.Session, sessions.Outcome{
			State: sessions.Canceled, Reason: sessions.CanceledReason,
		})
		switch {
		case err == nil, errors.Is(err, sessions.ErrCompleted):
			view.Outcome, view.CompletedAt = c.Outcome, c.CompletedAt // ours, or the one that was faster
		case errors.Is(err, sessions.ErrExpired):
			view.State = sessions.Expired
		case errors.Is(err, sessions.ErrNotFound):
			return facts.View{}, noSession()
		default:
			return facts.View{}, storeProblem(err)
		}
	}
	switch view.State {
	case sessions.Canceled:
		return view, nil
	case sessions.Expired:
		return facts.View{}, &problem.Problem{
			Code:   problem.CodeSessionExpired,
			Detail: "The session expired at " + web.Timestamp(view.ExpiresAt) + "; no callback is sent.",
		}
	default:
		return facts.View{}, &problem.Problem{
			Code: problem.CodeSessionCompleted,
			Detail: "The session was completed before it could be canceled: it is " + string(view.State) +
				".",
		}
	}
}

// resendSession answers POST /sessions/{session}/resend: one more attempt at a delivery that has ended, with
// the same webhook-id. 202, since it is sent by a dispatcher, soon; GET shows how it ends. It counts towards
// the key's rate.
func (a *api) resendSession(w http.ResponseWriter, r *http.Request) {
	view, p := a.sendAgain(w.Header(), r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusAccepted, "application/json", export.Document(view))
}

// sendAgain counts towards the key's rate, as a start does, and is refused like one in a store that is nearly
// full: each is a POST to a receiver, and facts that are kept. It costs no quota, so all keys of an account
// share one more rate: the standard one, since a slow key must not slow the others.
func (a *api) sendAgain(h http.Header, r *http.Request) (facts.View, *problem.Problem) {
	who, p := a.authorize(r)
	if p == nil {
		p = a.withinRate(h, who, a.Now())
	}
	if p == nil {
		all := account.Principal{
			Account: who.Account, Key: account.Key{ID: who.Account.ID, Test: who.Key.Test},
		}
		p = a.withinRate(http.Header{}, all, a.Now()) // the answer's headers are about the key
	}
	if p == nil && a.StoreHigh() {
		p = storeFull(nil)
	}
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
	return a.resend(ctx, view)
}

func (a *api) resend(ctx context.Context, view facts.View) (facts.View, *problem.Problem) {
	_, err := a.Sessions.Resend(ctx, view.ID, web.EventFrom(ctx).Key)
	switch {
	case err == nil:
		view.Delivery.State = facts.DeliveryDue
		return view, nil
	case errors.Is(err, facts.ErrDeliveryOpen):
		return view, &problem.Problem{
			Code: problem.CodeDeliveryOpen, Detail: "The callback is waiting or being sent. Read the " +
				"session, and try again once its delivery has ended.",
		}
	case errors.Is(err, facts.ErrResentOften):
		return view, &problem.Problem{Code: problem.CodeNothingToSend,
			Detail: "The callback was sent again 100 times, which is as often as is possible."}
	case errors.Is(err, facts.ErrNoDelivery) && view.Lost:
		return view, &problem.Problem{Code: problem.CodeNothingToSend,
			Detail: "This service's store was damaged, and the session's callback URL " +
				"is among what it lost. Start a new session."}
	case errors.Is(err, facts.ErrNoDelivery):
		return view, &problem.Problem{
			Code:   problem.CodeNothingToSend,
			Detail: "The session is " + string(view.State) + ": only verified and failed sessions are sent.",
		}
	case errors.Is(err, sessions.ErrNotFound):
		return view, noSession()
	default:
		return view, storeProblem(err)
	}
}

func noSession() *problem.Problem {
	return &problem.Problem{
		Code:   problem.CodeSessionNotFound,
		Detail: "This account has no such session, or its results are no longer kept.",
	}
}
