package signin

import (
	"context"
	"errors"
	"net/http"

	"verifyd/edge"
	"verifyd/edge/page"
	"verifyd/sessions"
)

// show answers GET and HEAD /?session=…: the page of a session. It only reads.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	token, err := sessions.ParseToken(page.Single(q, "session"))
	if err != nil {
		h.draw(w, h.view(pageUnknown))
		return
	}
	s, err := h.read(r.Context(), r, token.ID())
	if err != nil {
		h.drawReadError(w, r, err, h.pageURL(token))
		return
	}
	v := h.sessionView(s, token)
	h.addNotice(&v, notice(page.Single(q, "note")), page.Single(q, "network"), h.pageURL(token))
	h.draw(w, v)
}

// read reads a session, and notes on the request's log line whose it is.
func (h *Handler) read(ctx context.Context, r *http.Request, id sessions.ID) (sessions.View, error) {
	line := edge.LineOf(r.Context())
	line.Session = id
	s, err := h.sessions.Read(ctx, id)
	line.Account = s.Account
	return s, err
}

// drawReadError answers for a session that could not be read, or an attempt that could not be spent. again is where the user
// may try again, which repeats nothing.
func (h *Handler) drawReadError(w http.ResponseWriter, r *http.Request, err error, again string) {
	if errors.Is(err, sessions.ErrNotFound) {
		h.draw(w, h.view(pageUnknown))
		return
	}
	edge.LineOf(r.Context()).Err = err
	v := h.view(pageUnavailable)
	v.Again = again
	h.draw(w, v)
}
