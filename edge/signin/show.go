package signin

import (
	"context"
	"errors"
	"net/http"

	"verifyd/edge"
	"verifyd/edge/page"
	"verifyd/sessions"
)

// show answers GET and HEAD /?session=…: the page of a session. It only reads. What draws link previews gets a card that is the same
// for every link, and the store is not even asked.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	g := h.guest(r, page.Single(q, "lang"))
	if previews(r) {
		h.draw(w, h.view(g, pageCard))
		return
	}
	token, err := sessions.ParseToken(page.Single(q, "session"))
	if err != nil {
		v := h.view(g, pageUnknown)
		v.Tongues = h.choices(g, nil)
		h.draw(w, v)
		return
	}
	s, err := h.read(r.Context(), r, token.ID())
	if err != nil {
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
		return
	}
	if s.State != sessions.Pending {
		h.draw(w, h.sessionView(g, s, token))
		return
	}
	h.showPending(w, r, g, s, token)
}

// showPending draws the question, or that somebody is answering it in another browser.
func (h *Handler) showPending(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token) {
	seat, err := h.sessions.SeatOf(r.Context(), s.ID)
	if err != nil {
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
		return
	}
	if r.Method == http.MethodGet {
		h.know(w, &g)
	}
	if opens(r) {
		h.stepped(s.Session, sessions.Event{Name: sessions.EventOpened})
	}
	if seat.Keeps(g.browser(s.ID), h.now()) {
		h.drawElsewhere(w, r, g, s, token, seat)
		return
	}
	q := r.URL.Query()
	v := h.sessionView(g, s, token)
	h.addSeat(&v, seat, g.browser(s.ID))
	h.addNotice(&v, notice(page.Single(q, "note")), page.Single(q, "network"), h.pageURL(token, g.chosen))
	addInApp(&v, r, h.origin+h.pageURL(token, g.chosen))
	h.draw(w, v)
}

// read reads a session, and notes on the request's log line whose it is.
func (h *Handler) read(ctx context.Context, r *http.Request, id sessions.ID) (sessions.View, error) {
	line := edge.LineOf(r.Context())
	line.Session = id
	s, err := h.sessions.Read(ctx, id)
	line.Account = s.Account
	line.Follow(ctx, s.Trace)
	return s, err
}

// drawReadError answers for a session that could not be read, or an attempt that could not be spent. again is where the user
// may try again, which repeats nothing.
func (h *Handler) drawReadError(w http.ResponseWriter, r *http.Request, g guest, err error, again string) {
	if errors.Is(err, sessions.ErrNotFound) {
		h.draw(w, h.view(g, pageUnknown))
		return
	}
	edge.LineOf(r.Context()).Err = err
	v := h.view(g, pageUnavailable)
	v.Again = again
	h.draw(w, v)
}
