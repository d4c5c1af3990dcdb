package login

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/network"
	"verifyd/edge/page"
)

type againData struct {
	To      string           // what somebody is about to do; empty: it is not known
	Next    string           // where the browser goes afterwards
	Network *network.Network // nil for a login by a link
}

// showAgain answers GET /dashboard/sign-in-again?act=…&next=…: why a fresh sign-in is needed, and the button
// that begins it.
func (h *Handler) showAgain(_ context.Context, w http.ResponseWriter, r *http.Request, l logins.Login) {
	q := r.URL.Query()
	d := againData{
		To: site.Act(page.Single(q, "act")).Words(), Next: paths.SafeNext(page.Single(q, "next")),
	}
	if h.Logins.Fresh(l) {
		page.SeeOther(w, h.Prefix+d.Next)
		return
	}
	i := slices.IndexFunc(h.Networks, func(n *network.Network) bool { return n.Namespace() == l.Network })
	if i >= 0 {
		d.Network = h.Networks[i]
	}
	h.Draw(w, site.View{
		Page: "signinagain", Title: "Sign in again", Flash: h.TakeFlash(w, r), FormAction: h.formAction(),
		Data: d,
	})
}

// renews reports whether a login may replace the browser's own, and selects the same account in it: it is the
// same person's, who has just signed in. Otherwise it answers the request, and nothing has changed. A login
// that has ended meanwhile is replaced by any.
func (h *Handler) renews(ctx context.Context, w http.ResponseWriter, r *http.Request, l *logins.Login) bool {
	old, err := h.Authenticate(ctx, r)
	switch {
	case errors.Is(err, logins.ErrNotLoggedIn):
		return true
	case err != nil:
		h.Fail(w, r, nil, err)
	case old.Network != l.Network || old.Subject != l.Subject:
		h.DrawProblem(w, nil, problemSomebodyElse)
	case l.SignedInAgo >= logins.FreshFor:
		h.DrawProblem(w, nil, problemNotAgain)
	default:
		l.Account = old.Account
		return true
	}
	return false
}
