package signin

import (
	"net/http"
	"time"

	"verifyd/edge"
	"verifyd/edge/limit"
	"verifyd/sessions"
)

// mayStart reports whether a press may be looked at. Where there were too many, it answers, before the store
// is asked.
func (h *Handler) mayStart(w http.ResponseWriter, r *http.Request, vis visitor, token sessions.Token) bool {
	address := edge.EventFrom(r.Context()).ClientIP
	wait := h.attempts.Start(limit.TripSignIn, address, string(token.ID()), h.now())
	return wait == 0 || h.drawOften(w, vis, token, wait, h.pageURL(token, vis.chosen))
}

// mayReturn reports whether a return may be looked at. Where there were too many, it answers: the attempt
// stays whole and its code is not posted, so that the same return counts once the wait is over.
func (h *Handler) mayReturn(w http.ResponseWriter, r *http.Request, vis visitor, token sessions.Token) bool {
	address := edge.EventFrom(r.Context()).ClientIP
	wait := h.attempts.Return(limit.TripSignIn, address, string(token.ID()), h.now())
	return wait == 0 || h.drawOften(w, vis, token, wait, "?"+r.URL.RawQuery)
}

// drawOften says how long to wait before another try, which again leads to. It returns false.
func (h *Handler) drawOften(w http.ResponseWriter, vis visitor, token sessions.Token, wait time.Duration,
	again string) bool {
	h.log.Info().Str("sid", string(token.ID())).Str("outcome", "too_often").Dur("wait", wait).
		Msg("an attempt to sign in was put off")
	v := h.view(vis, pageOften)
	v.count = int((wait + time.Second - 1) / time.Second)
	v.retryAfter, v.Again = v.count, again
	h.draw(w, v)
	return false
}
