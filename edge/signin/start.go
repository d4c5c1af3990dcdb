package signin

import (
	"context"
	"net/http"

	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/sessions"
	"verifyd/sessions/timeline"
)

const (
	// maxFormBytes bounds the form, which has about 150 bytes.
	maxFormBytes = 8 << 10

	actionContinue = "continue"
	actionDecline  = "decline"
	actionStop     = "stop"
)

// start answers POST /signin, a press on one of the page's buttons.
func (h *Handler) start(w http.ResponseWriter, r *http.Request) *reply {
	if err := h.csrf.Check(r); err != nil {
		h.log.Info().Err(err).Msg("a press on the sign-in page was refused")
		return &reply{page: h.view(h.visit(r, ""), pageForeign)}
	}
	if status := page.ReadForm(w, r, maxFormBytes); status != 0 {
		return h.replyMalformed(h.visit(r, ""), status)
	}
	vis := h.visit(r, page.Single(r.PostForm, "lang"))
	token, err := sessions.ParseToken(page.Single(r.PostForm, "session"))
	if err != nil {
		return &reply{page: h.view(vis, pageUnknown)}
	}
	vis.token = token
	vis.again = h.pageURL(vis)
	if re := h.checkStarts(vis); re != nil {
		return re
	}
	done, full := h.wait(vis, true)
	if full != nil {
		return full
	}
	defer done()
	if re := h.read(vis, h.sessions.ReadPending); re != nil {
		return re
	}
	if vis.status.State != sessions.Pending || h.closed(vis.status) {
		return h.toPage(vis) // which says so
	}
	switch page.Single(r.PostForm, "action") {
	case actionDecline:
		return h.decline(vis)
	case actionContinue:
		return h.leave(w, vis, done)
	case actionStop:
		return h.stop(vis)
	default:
		return h.replyMalformed(vis, http.StatusBadRequest)
	}
}

// replyMalformed is for what our page does not send. The page to start from is there where the session is
// known.
func (p *pages) replyMalformed(vis *visit, status int) *reply {
	v := p.view(vis, pageMalformed)
	v.status, v.Again = status, vis.again
	return &reply{page: v}
}

// decline completes the session as the user wishes.
func (h *Handler) decline(vis *visit) *reply {
	if re := h.checkDecline(vis); re != nil {
		return re
	}
	o := sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
	standing, note := h.complete(vis.r.Context(), vis.status.Session, o)
	h.step(vis.status, "").outcome(o, standing, note).Msg("declined on the sign-in page")
	return h.toEnd(vis, note, "")
}

// leave sends the browser to the identity network, with a cookie to know it again by. done ends the wait for
// the store: people who wait for a network take no places of those who wait for the store.
func (h *Handler) leave(w http.ResponseWriter, vis *visit, done func()) *reply {
	r, s := vis.r, vis.status
	progress, err := h.sessions.ProgressOf(r.Context(), s.Session)
	if err != nil {
		return h.replyReadError(vis, err)
	}
	if progress.Network != "" {
		return h.toPage(vis) // where the code is, or that it is elsewhere
	}
	n, platform := h.next(s.Session, page.Single(r.PostForm, "network"), progress, vis.browser())
	if n == nil {
		return h.replyMalformed(vis, http.StatusBadRequest)
	}
	id := n.ID()
	if vis.id == "" { // the page that has this button set a cookie
		h.step(s, id).Str("outcome", "no_cookie").Msg("a press came without the page's cookie")
		v := h.view(vis, pageCookies)
		v.Again = vis.again
		return &reply{page: v}
	}
	if re := h.acquireLease(vis); re != nil {
		return re
	}
	f := flow.Flow{
		About: vis.token.Reveal(), Network: id, Attempt: network.NewAttempt(), IssuedAt: h.now(),
		Browser: vis.browser(), Lang: vis.chosen, Platform: platform,
	}
	done()
	ctx, cancel := context.WithTimeout(vis.r.Context(), h.judgeWithin)
	defer cancel()
	to, err := n.AuthURL(ctx, f.Attempt)
	if err != nil {
		t := failureOf(err)
		h.step(s, id).failure(t).Msg("a sign-in could not start")
		h.recordFailure(s.Session, id, t)
		h.giveUp(vis.r.Context(), s.ID, f.Browser)
		return h.toNotice(vis, t.note, id)
	}
	h.cookies.MakeRoom(w, r)
	if err := h.cookies.Keep(w, f, s.ExpiresAt.Add(lateReturn)); err != nil {
		return h.replyReadError(vis, err)
	}
	h.step(s, id).Msg("a sign-in started")
	h.stepped(s.Session, timeline.Event{Name: timeline.EventSignIn, Network: id})
	return &reply{to: to}
}
