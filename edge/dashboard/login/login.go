package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"verifyd/edge/account/grant"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
)

// root answers GET /dashboard: it redirects to the sessions.
func (h *Handler) root(w http.ResponseWriter, _ *http.Request) {
	page.SeeOther(w, h.Prefix+paths.Sessions)
}

// showLogin answers GET /dashboard/login.
func (h *Handler) showLogin(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.Within(r)
	defer cancel()
	next := paths.SafeNext(page.Single(r.URL.Query(), "next"))
	// An invite is for a particular person, and a login link is not: a visitor with a login link logs in once
	// more.
	if l, err := h.Authenticate(ctx, r); err == nil &&
		(l.Subject != "" || !strings.HasPrefix(next, paths.Invite)) {
		page.SeeOther(w, h.Prefix+next)
		return
	}
	h.Draw(w, site.View{
		Page: "login", Title: "Log in", Flash: h.TakeFlash(w, r), FormAction: h.formAction(),
		Data: loginData{Networks: h.Networks, Next: next},
	})
}

type loginData struct {
	Networks []*network.Network
	Next     string // where the browser goes afterwards
}

// formAction returns the form-action of the login's pages; see package signin.
func (h *Handler) formAction() string {
	sources := []string{"'self'", "https:"}
	for _, n := range h.Networks {
		for _, source := range page.PlainSources(n.AuthorizationOrigin(), h.HTTPS) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	return strings.Join(sources, " ")
}

// leave answers POST /dashboard/login: it sends the browser to an identity network, with a cookie to
// recognize it by. With again set, the network is to have the person sign in again.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request) {
	n := h.network(page.Single(r.PostForm, "network"))
	if n == nil {
		h.DrawProblem(w, nil, site.ProblemMalformed)
		return
	}
	f := flow.Flow{
		About: paths.SafeNext(page.Single(r.PostForm, "next")), Network: n.ID(),
		Attempt:  network.NewAttempt(),
		IssuedAt: h.Now(),
		Browser:  flow.BrowserHash(h.browsers.Know(w, h.browsers.Of(r)), browserUse),
	}
	if page.Single(r.PostForm, "again") != "" {
		f.Attempt.MaxAge = logins.FreshFor
	}
	to, err := n.AuthURL(r.Context(), f.Attempt)
	if err != nil {
		h.failed(w, f, err)
		return
	}
	h.flows.MakeRoom(w, r)
	if err := h.flows.Keep(w, f, h.Now().Add(flowLife)); err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	page.SeeOther(w, to)
}

// again is the page on which a sign-in that came to nothing can be tried once more.
func again(f flow.Flow) string {
	if f.Attempt.MaxAge > 0 {
		return paths.Again + "?" + form.Query("next", f.About)
	}
	return paths.Login
}

// failed redirects to the login after a try without a verdict of the network.
func (h *Handler) failed(w http.ResponseWriter, f flow.Flow, err error) {
	code := flashFailed
	line := h.Log.Info().Str("network", f.Network)
	if t, ok := errors.AsType[*network.Error](err); ok {
		line = line.Str("stage", t.Stage).Str("class", t.Class)
		if network.Passing(t.Class) {
			code = flashUnreachable
		}
	}
	line.Msg("a login to the dashboard did not finish")
	h.Done(w, code, again(f))
}

// finishWithin bounds the time from the return to the login: spending the attempt, asking the provider,
// storing the login.
const finishWithin = 25 * time.Second

// finish answers GET /dashboard/login/{network}/callback, the browser's way back from the identity network.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if r.Method == http.MethodPost {
		q = nil // a form comes without the flow's cookie
	}
	f, ok := h.find(w, r, q.Get("state"))
	if !ok || err != nil {
		if !h.codes.Spend(r, q) {
			page.SeeOther(w, r.URL.EscapedPath()) // without the code
			return
		}
		h.DrawProblem(w, nil, problemLost)
		return
	}
	if wait := h.Attempts.Return(limit.TripDashboard, web.EventFrom(r.Context()).ClientIP, "",
		h.Now()); wait > 0 {
		h.drawOften(w, wait, "reload this page")
		return
	}
	// The code can be posted only once, so what follows continues even if the browser does not wait.
	ctx, cancel := wait.For(context.WithoutCancel(r.Context()), finishWithin)
	defer cancel()
	switch err := h.Sessions.RedeemUntil(ctx, flow.Hash(f.Attempt.State), f.IssuedAt.Add(flowLife)); {
	case errors.Is(err,
		sessions.ErrRedeemed): // a reload of the return: the login that it made is in the cookie
		page.SeeOther(w, h.Prefix+f.About)
		return
	case err != nil:
		h.Fail(w, r, nil, err)
		return
	}
	spent, err := h.codes.Spent(ctx, q)
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	if spent {
		h.failed(w, f, errElsewhere)
		return
	}
	who, err := h.judge(ctx, f, q, r.PathValue("network"))
	switch {
	case errors.Is(err, network.ErrDeclined):
		h.Done(w, flashDeclined, again(f))
	case err != nil:
		h.failed(w, f, err)
	default:
		h.Attempts.Vouched(limit.TripDashboard, web.EventFrom(r.Context()).ClientIP)
		l := logins.Login{
			Network: h.network(f.Network).Namespace(), Subject: who.Subject, Name: who.DisplayName,
			Email: who.Email, SignedInAgo: who.SignedInAgo,
		}
		if f.Attempt.MaxAge == 0 || h.renews(ctx, w, r, &l) {
			h.begin(ctx, w, r, l, f.About)
		}
	}
}

// find returns the flow that a return with this state belongs to. The flow of another browser is not found,
// and its code is not posted.
func (h *Handler) find(w http.ResponseWriter, r *http.Request, state string) (flow.Flow, bool) {
	f, ok := h.flows.Find(w, r, state)
	if !ok || h.Now().After(f.IssuedAt.Add(flowLife)) {
		return flow.Flow{}, false
	}
	if !h.browsers.Began(r, f.Browser, browserUse) {
		h.Attempts.OtherBrowser(limit.TripDashboard)
		return flow.Flow{}, false
	}
	return f, true
}

// bounded limits the attempts to log in that an address may start.
func (h *Handler) bounded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := h.Attempts.Start(limit.TripDashboard, web.EventFrom(r.Context()).ClientIP, "",
			h.Now()); wait > 0 {
			h.drawOften(w, wait, "go back, and press the button again")
			return
		}
		next(w, r)
	})
}

// drawOften answers with how long to wait, and what to do then.
func (h *Handler) drawOften(w http.ResponseWriter, wait time.Duration, then string) {
	seconds := int((wait + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	p := problemOften
	p.Next = fmt.Sprintf("Wait %d seconds, then %s.", seconds, then)
	if seconds == 1 {
		p.Next = fmt.Sprintf("Wait a second, then %s.", then)
	}
	h.DrawProblem(w, nil, p)
}

// errElsewhere: the code of a return came to another browser before.
var errElsewhere = errors.New("the code came to another browser before")

// errMixUp: a return came at another network's address, or at one that is no longer configured.
var errMixUp = errors.New("the return belongs to another network")

// judge returns the identity for the return of a spent attempt. Its errors are network's and errMixUp.
func (h *Handler) judge(ctx context.Context, f flow.Flow, q url.Values, arrivedAt string) (network.Identity,
	error) {
	n := h.network(f.Network)
	// a mix-up: its code may be meant for the other network (RFC 9700 §4.4.2)
	if n == nil || arrivedAt != f.Network {
		return network.Identity{}, errMixUp
	}
	ret, err := network.ParseReturn(q)
	if err != nil {
		return network.Identity{}, err
	}
	return n.Redeem(ctx, f.Attempt, ret)
}

// begin logs somebody in, under a new token, and ends the login that the browser had before.
func (h *Handler) begin(ctx context.Context, w http.ResponseWriter, r *http.Request, l logins.Login,
	next string) {
	if old, err := h.Authenticate(ctx, r); err == nil {
		if err := h.Logins.End(ctx, old); err != nil {
			h.Fail(w, r, nil, err)
			return
		}
	}
	token, err := h.Logins.Begin(ctx, l)
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	h.SetLoginCookie(w, token, int(logins.Lifetime/time.Second))
	h.Log.Info().Str("network", l.Network).Str("link", l.LinkID).Msg("somebody logged in to the dashboard")
	page.SeeOther(w, h.Prefix+next)
}

// showLink answers GET /dashboard/link?token=…: a button, since chat applications open links to draw
// previews.
func (h *Handler) showLink(w http.ResponseWriter, r *http.Request) {
	h.Draw(w, site.View{Page: "link", Title: "Log in by link", Data: page.Single(r.URL.Query(), "token")})
}

// redeemLink answers POST /dashboard/link.
func (h *Handler) redeemLink(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.Within(r)
	defer cancel()
	link, err := h.Accounts.RedeemLoginLink(ctx, page.Single(r.PostForm, "token"))
	switch {
	case errors.Is(err, grant.ErrNoLink), errors.Is(err, grant.ErrLinkExpired),
		errors.Is(err, grant.ErrLinkUsed):
		h.DrawProblem(w, nil, problemLoginLink)
	case err != nil:
		h.Fail(w, r, nil, err)
	default:
		h.begin(ctx, w, r, logins.Login{LinkID: link.ID, Role: link.Role, Account: link.Account,
			Operator: link.Operator}, paths.Root)
	}
}

// logout answers POST /dashboard/logout; with everywhere set, every login of the same identity ends.
func (h *Handler) logout(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := h.Within(r)
	defer cancel()
	l, err := h.Authenticate(ctx, r)
	code := flashLoggedOut
	if err == nil {
		end := h.Logins.End
		if page.Single(r.PostForm, "everywhere") != "" {
			end, code = h.Logins.EndAll, flashLoggedOutAll
		}
		err = end(ctx, l)
	}
	if err != nil && !errors.Is(err, logins.ErrNotLoggedIn) {
		h.Fail(w, r, nil, err)
		return
	}
	h.SetLoginCookie(w, "", -1)
	h.Done(w, code, paths.Login)
}
