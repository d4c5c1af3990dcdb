package integrator

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
)

// againRate is how many callbacks an account may send again from here: a person who goes through a list of
// failed ones is not held up, a held-down Enter is. The same endpoint of the API counts towards its key's
// rate.
var againRate = account.Rate{Count: 1, Per: time.Second, Burst: 30}

// showResend answers GET /dashboard/sessions/{session}/resend: the question that comes before a delivered
// outcome is sent again.
func (h sessionPages) showResend(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	s, _, ok := h.session(ctx, w, r, v)
	switch {
	case !ok:
	case s.Delivery.State != facts.DeliveryDelivered: // the page has the button itself
		page.SeeOther(w, h.Prefix+paths.Of(pathSession, string(s.ID)))
	default:
		h.Draw(w, site.View{
			Page: "resend", Title: "Send again", Nav: "sessions", Visit: &v, Data: sessionData{
				View: s, Host: timeline.Host(s.Session),
			},
		})
	}
}

// resend answers POST /dashboard/sessions/{session}/resend. What was delivered is sent again only by who was
// asked first: a form that was drawn before the delivery leads to the question.
func (h sessionPages) resend(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	s, _, ok := h.session(ctx, w, r, v)
	if !ok {
		return
	}
	if s.Delivery.State == facts.DeliveryDelivered && page.Single(r.PostForm, "delivered") == "" {
		page.SeeOther(w, h.Prefix+paths.Of(pathResend, string(s.ID)))
		return
	}
	if d := h.again.Allow(account.Key{ID: v.Account.ID}, h.Now()); !d.Allowed {
		w.Header().Set("Retry-After", strconv.Itoa(int((d.RetryAfter+time.Second-1)/time.Second)))
		h.DrawProblem(w, &v, problemTooMany)
		return
	}
	to := paths.Of(pathSession, string(s.ID))
	_, err := h.Sessions.Resend(ctx, s.ID, v.Actor().String())
	switch {
	case errors.Is(err, facts.ErrDeliveryOpen):
		h.Done(w, site.FlashDeliveryOpen, to)
		return
	case errors.Is(err, facts.ErrNoDelivery):
		h.Done(w, flashNothingToSend, to)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	// It is asked for: that the log does not say so yet takes nothing back.
	if err := h.Accounts.Note(ctx, v.Actor(), v.Account.ID, audit.CallbackSent, string(s.ID),
		nil); err != nil {
		web.EventFrom(r.Context()).Err = err
	}
	h.Done(w, flashResent, to)
}
