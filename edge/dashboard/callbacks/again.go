package callbacks

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/redrive"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
)

// againRate is how many callbacks an account may send again from here: a whole page of failed ones at once,
// so that a person who goes through a list is not slowed down, but a held-down Enter key is. The same
// operation of the API counts towards the rate of its key.
var againRate = account.Rate{Count: 1, Per: time.Second, Burst: redrive.Max}

// session reads the session that a path names. It answers the request unless the session is the account's.
func (h *Handler) session(ctx context.Context, w http.ResponseWriter, r *http.Request,
	v site.Visit) (facts.View, bool) {
	id, err := sessions.ParseID(r.PathValue("session"))
	// never by its token, which would be in the address
	if err != nil || string(id) != r.PathValue("session") {
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return facts.View{}, false
	}
	web.EventFrom(r.Context()).Session = id
	s, err := h.Sessions.ReadOf(ctx, v.Account.ID, id)
	switch {
	case errors.Is(err, sessions.ErrNotFound), err == nil && s.Account != v.Account.ID:
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return facts.View{}, false
	case err != nil:
		h.Fail(w, r, &v, err)
		return facts.View{}, false
	}
	return s, true
}

// showResend answers GET /dashboard/sessions/{session}/resend: the question that comes before a delivered
// outcome is sent again.
func (h *Handler) showResend(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	s, ok := h.session(ctx, w, r, v)
	switch {
	case !ok:
	case s.Delivery.State != facts.DeliveryDelivered: // the page has the button itself
		page.SeeOther(w, h.Prefix+paths.Of(pathSession, string(s.ID)))
	default:
		h.Draw(w, site.View{
			Page: "resend", Title: "Send again", Nav: "sessions", Visit: &v,
			Data: struct{ ID, Host string }{string(s.ID), timeline.Host(s.Session)},
		})
	}
}

// resend answers POST /dashboard/sessions/{session}/resend. What was delivered is sent again only after the
// question: a form that was rendered before the delivery leads to it.
func (h *Handler) resend(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	s, ok := h.session(ctx, w, r, v)
	if !ok {
		return
	}
	if s.Delivery.State == facts.DeliveryDelivered && page.Single(r.PostForm, "delivered") == "" {
		page.SeeOther(w, h.Prefix+paths.Of(pathResend, string(s.ID)))
		return
	}
	if h.allowed(w, v, 1) == 0 {
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
	case errors.Is(err, facts.ErrResentOften):
		h.Done(w, flashResentOften, to)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	// It is requested already: a failure to record it takes nothing back.
	if err := h.Accounts.Note(ctx, v.Actor(), v.Account.ID, audit.CallbackSent, string(s.ID),
		nil); err != nil {
		web.EventFrom(r.Context()).Err = err
	}
	h.Done(w, flashResent, to)
}

// allowed takes up to n callbacks from the account's rate. If there are none, it answers when there will be
// one again.
func (h *Handler) allowed(w http.ResponseWriter, v site.Visit, n int) int {
	for i := range n {
		if d := h.again.Allow(rateOf(v), h.Now()); !d.Allowed {
			if i == 0 {
				w.Header().Set("Retry-After", strconv.FormatInt(web.Seconds(d.RetryAfter), 10))
			}
			return i
		}
	}
	return n
}
