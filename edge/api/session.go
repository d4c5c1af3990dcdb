package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// sessionDoc is a session as its integrator reads it. The callback URL and what the receiver answered are
// left out: the former carries the integrator's secrets, the latter the receiver's.
type sessionDoc struct {
	ID sessions.ID `json:"id"` // never the token
	// started with a test key: its outcome says nothing about anybody
	Test           bool   `json:"test"`
	Platform       string `json:"platform"`
	PlatformUserID string `json:"platform_user_id"`
	GuildID        string `json:"guild_id"`
	// what it asks to be proven, and what was; the latter is null where nothing was
	Binding  proof.Level     `json:"binding"`
	Reached  *proof.Level    `json:"reached"`
	State    sessions.State  `json:"state"`
	Step     proof.Step      `json:"step"`     // what a pending session waits for; empty: the user's sign-in
	Verified *bool           `json:"verified"` // null unless verified or failed
	Reason   sessions.Reason `json:"reason"`   // empty while pending and when verified
	// the identity network's rule that refused; empty for other reasons
	Rule        failure.Rule `json:"rule"`
	CreatedAt   string       `json:"created_at"`
	ExpiresAt   string       `json:"expires_at"`
	CompletedAt *string      `json:"completed_at"` // null while pending and when expired
	Delivery    deliveryDoc  `json:"delivery"`
}

type deliveryDoc struct {
	State    facts.DeliveryState `json:"state"`
	Attempts []attemptDoc        `json:"attempts"` // by number; never null
}

type attemptDoc struct {
	Number    int            `json:"number"`  // from 1
	Verdict   *facts.Verdict `json:"verdict"` // null while the attempt goes on
	Class     failure.Class  `json:"class"`   // what went wrong; empty where nothing did
	Status    *int           `json:"status"`  // the receiver's HTTP status; null where none was read
	ClaimedAt string         `json:"claimed_at"`
	EndedAt   *string        `json:"ended_at"` // null while the attempt goes on
}

// GET /sessions/{session} reads a session of the key's account. The session is named by its id or its token.
// ?wait= holds the answer, up to so many seconds, until the session's state or its delivery's changes.
func (a *api) readSession(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), a.StoreTimeout)
	defer cancel()
	view, p := a.session(ctx, r)
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
	web.WriteJSON(w, http.StatusOK, "application/json", document(view))
}

// POST /sessions/{session}/cancel takes a pending session back: it is completed as canceled, and no callback
// is sent. It answers as GET does. A repeat is harmless.
func (a *api) cancelSession(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), a.StoreTimeout)
	defer cancel()
	view, p := a.session(ctx, r)
	if p == nil {
		view, p = a.cancel(ctx, view)
	}
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusOK, "application/json", document(view))
}

// session reads the session that the path names, if the key's account owns it. A malformed name, another
// account's session and none at all look the same.
func (a *api) session(ctx context.Context, r *http.Request) (facts.View, *problem.Problem) {
	who, p := a.authorize(r)
	if p != nil {
		return facts.View{}, p
	}
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

// resendSession answers POST /sessions/{session}/resend: one more attempt at a delivery that has come to an
// end, with the same webhook-id. 202, since it is sent by a dispatcher, soon; GET shows how it ends. It
// counts towards the key's rate.
func (a *api) resendSession(w http.ResponseWriter, r *http.Request) {
	view, p := a.sendAgain(w.Header(), r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusAccepted, "application/json", document(view))
}

// sendAgain counts towards the key's rate, as a start does: each is a POST to somebody, and facts that are
// kept.
func (a *api) sendAgain(h http.Header, r *http.Request) (facts.View, *problem.Problem) {
	who, p := a.authorize(r)
	if p == nil {
		p = a.withinRate(h, who, a.Now())
	}
	if p != nil {
		return facts.View{}, p
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.StoreTimeout)
	defer cancel()
	view, p := a.session(ctx, r)
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
				"session, and ask again once its delivery has ended.",
		}
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

// document draws a view.
func document(v facts.View) sessionDoc {
	doc := sessionDoc{
		ID: v.ID, Test: v.Test, Platform: v.Platform, PlatformUserID: v.PlatformUserID, GuildID: v.GuildID,
		Binding: v.Level.Or(proof.Link), State: v.State, Reason: v.Reason, Rule: v.Rule,
		CreatedAt: web.Timestamp(v.CreatedAt), ExpiresAt: web.Timestamp(v.ExpiresAt),
		CompletedAt: timestampOrNull(v.CompletedAt),
		Delivery:    deliveryDoc{State: v.Delivery.State, Attempts: []attemptDoc{}},
	}
	if v.State == sessions.Verified || v.State == sessions.Failed {
		verified := v.Verified()
		doc.Verified = &verified
	}
	if v.State == sessions.Pending {
		doc.Step = v.Progress.Step()
	}
	if v.Reached != "" {
		doc.Reached = &v.Reached
	}
	for _, at := range v.Delivery.Attempts {
		doc.Delivery.Attempts = append(doc.Delivery.Attempts, attempt(at))
	}
	return doc
}

func attempt(at facts.Attempt) attemptDoc {
	doc := attemptDoc{Number: at.Claim.Number, ClaimedAt: web.Timestamp(at.Claim.At)}
	if r := at.Result; r != nil {
		doc.Verdict, doc.Class, doc.EndedAt = &r.Verdict, r.Class, timestampOrNull(r.At)
		if r.Status != 0 {
			doc.Status = &r.Status
		}
	}
	return doc
}

func timestampOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := web.Timestamp(t)
	return &s
}
