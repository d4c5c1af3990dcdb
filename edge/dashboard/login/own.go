package login

import (
	"context"
	"errors"
	"net/http"

	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
)

type loginsData struct {
	Who    string
	This   string // the ID of the login that asks
	Logins []logins.Login
}

// showLogins answers GET /dashboard/logins: the logins of whoever asks, in whatever account.
func (h *Handler) showLogins(ctx context.Context, w http.ResponseWriter, r *http.Request, l logins.Login) {
	own, err := h.Logins.Own(ctx, l)
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	h.Draw(w, site.View{
		Page: "logins", Title: "Your logins", Flash: h.TakeFlash(w, r),
		Data: loginsData{site.Visit{Login: l}.Who(), l.ID(), own},
	})
}

// endLogin answers POST /dashboard/logins/end. It has no rate: nothing keeps anybody from ending a login.
func (h *Handler) endLogin(ctx context.Context, w http.ResponseWriter, r *http.Request, l logins.Login) {
	id := page.Single(r.PostForm, "login")
	switch err := h.Logins.EndOwn(ctx, l, id); {
	case errors.Is(err, logins.ErrNotLoggedIn):
		h.Done(w, site.FlashGone, pathLogins)
	case err != nil:
		h.Fail(w, r, nil, err)
	case id == l.ID():
		h.SetLoginCookie(w, "", -1)
		h.Done(w, flashLoggedOut, paths.Login)
	default:
		h.Done(w, flashLoginEnded, pathLogins)
	}
}
