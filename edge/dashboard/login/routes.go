package login

import (
	"context"
	"net/http"

	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
)

// Routes returns the route table. GET includes HEAD, except for the return from an identity network: a HEAD
// there would spend the attempt.
func (h *Handler) Routes() []web.Route {
	posted := func(next http.HandlerFunc) http.Handler { return h.Posted(next) }
	a := accounts{h}
	return []web.Route{
		paths.Get(paths.Root, page.Guard(h.root)),
		paths.Get(paths.Root+"/", page.Guard(h.root)), // as people type it
		paths.Get(paths.Login, page.Guard(h.showLogin)),
		paths.Post(paths.Login, h.Posted(h.bounded(h.leave))),
		paths.Get(paths.Again, page.Guard(h.loggedIn(h.showAgain))),
		paths.Get(ReturnPath, page.Guard(h.finish)),
		paths.Post(ReturnPath, page.Guard(h.finish)),
		{Method: http.MethodHead, Path: ReturnPath, Name: paths.RouteName(ReturnPath),
			Handler: page.Guard(refuseHead)},
		paths.Get(pathLink, page.Guard(h.showLink)),
		paths.Post(pathLink, h.Posted(h.bounded(h.redeemLink))),
		paths.Post(pathLogout, posted(h.logout)),
		paths.Get(pathLogins, page.Guard(h.loggedIn(h.showLogins))),
		paths.Post(pathEndLogin, posted(h.loggedIn(h.endLogin))),

		paths.Get(paths.Invite, page.Guard(a.showInvite)),
		paths.Post(paths.Invite, posted(a.acceptInvite)),
		paths.Get(paths.NewAccount, page.Guard(a.showNewAccount)),
		paths.Post(paths.NewAccount, posted(h.loggedIn(a.makeAccount))),
		paths.Post(pathAccount, posted(a.chooseAccount)),
	}
}

// loggedIn passes on whoever is logged in, in whatever account, and denies others.
func (h *Handler) loggedIn(next func(context.Context, http.ResponseWriter, *http.Request,
	logins.Login)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := h.Within(r)
		defer cancel()
		l, err := h.Authenticate(ctx, r)
		if err != nil {
			h.Deny(w, r, site.Visit{}, err)
			return
		}
		next(ctx, w, r, l)
	}
}

func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}
