package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"verifyd/edge/flow"
	"verifyd/sessions"
)

// releaseWithin bounds how long a browser's giving up is offered to JetStream: it only spares another one a wait.
const releaseWithin = 2 * time.Second

// takeSeat makes the guest's browser the one that signs in. Where that is not to be had it answers, and gives false.
func (h *Handler) takeSeat(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token) bool {
	seat, err := h.sessions.TakeSeat(r.Context(), s.ID, g.browser(s.ID))
	switch {
	case errors.Is(err, sessions.ErrSeatTaken):
		h.drawElsewhere(w, r, g, s, token, seat)
		return false
	case err != nil:
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
		return false
	}
	return true
}

// free says whether no other browser signs in for the session just now. Where one does, or nobody can say, it answers.
func (h *Handler) free(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token) bool {
	seat, err := h.sessions.SeatOf(r.Context(), s.ID)
	switch {
	case err != nil:
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
		return false
	case seat.Keeps(g.browser(s.ID), h.now()):
		h.drawElsewhere(w, r, g, s, token, seat)
		return false
	}
	return true
}

// stillOurs says whether a return comes to the browser that signs in, and not to one that another has taken over from since. That one
// is sent to the page, which says so, and its attempt stays whole.
func (h *Handler) stillOurs(
	ctx context.Context, w http.ResponseWriter, r *http.Request, g guest, f flow.Flow, s sessions.View, token sessions.Token,
) bool {
	seat, err := h.sessions.SeatOf(ctx, s.ID)
	switch {
	case err != nil:
		h.drawReadError(w, r, g, err, "?"+r.URL.RawQuery) // this very return
		return false
	case seat.Superseded(f.Browser):
		h.step(s, f.Network).Str("outcome", "superseded").Msg("a return came after another browser had taken over")
		h.toPage(w, g, token)
		return false
	}
	return true
}

// giveUp lets another browser begin at once. That it fails costs that one a wait.
func (h *Handler) giveUp(ctx context.Context, id sessions.ID, browser string) {
	if browser == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := h.sessions.LeaveSeat(ctx, id, browser); err != nil {
		h.log.Warn().Err(err).Str("sid", string(id)).Msg("a browser's giving up is not stored")
	}
}

// stop gives the attempt up as the user wishes.
func (h *Handler) stop(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token) {
	h.giveUp(r.Context(), s.ID, g.browser(s.ID))
	h.step(s, "").Msg("stopped on the sign-in page")
	h.toNotice(w, g, token, noteStopped, "")
}

// drawElsewhere says that another browser signs in just now, and how to go on here.
func (h *Handler) drawElsewhere(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token, seat sessions.Seat) {
	v := h.view(g, pageElsewhere)
	v.values["asker"], v.values["Asker"] = h.asker(g, s.Account)
	left := seat.Until().Sub(h.now())
	v.count = max(int((left+time.Minute-1)/time.Minute), 1)
	v.Test, v.Caution = s.Test, true
	v.Again, v.AgainWord = h.pageURL(token, g.chosen), "note.again"
	if r.Method != http.MethodPost { // what answers a press has no address that could be opened again
		v.Tongues = h.choices(g, url.Values{"session": {token.Reveal()}})
	}
	h.draw(w, v)
}

// addSeat says on a pending session's page that signing in has begun before.
func (h *Handler) addSeat(v *view, seat sessions.Seat, browser string) {
	switch {
	case seat.Browser == "" || seat.Free:
	case seat.Browser == browser:
		v.Note, v.Stop = "note.begun", true
	default:
		v.Note = "note.takeover"
	}
}
