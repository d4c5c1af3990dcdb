package login

import (
	"net/http"

	"verifyd/edge/dashboard/paths"
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
		paths.Get(ReturnPath, page.Guard(h.finish)),
		paths.Post(ReturnPath, page.Guard(h.finish)),
		{Method: http.MethodHead, Path: ReturnPath, Name: paths.RouteName(ReturnPath),
			Handler: page.Guard(refuseHead)},
		paths.Get(pathLink, page.Guard(h.showLink)),
		paths.Post(pathLink, h.Posted(h.bounded(h.redeemLink))),
		paths.Post(pathLogout, posted(h.logout)),
		paths.Get(pathLogins, page.Guard(h.showLogins)),
		paths.Post(pathEndLogin, posted(h.endLogin)),

		paths.Get(paths.Invite, page.Guard(a.showInvite)),
		paths.Post(paths.Invite, posted(a.acceptInvite)),
		paths.Get(paths.NewAccount, page.Guard(a.showNewAccount)),
		paths.Post(paths.NewAccount, posted(a.makeAccount)),
		paths.Post(pathAccount, posted(a.chooseAccount)),
	}
}

func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}
