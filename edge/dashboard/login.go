package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"verifyd/edge/dashboard/logins"
	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/edge/page"
)

// root answers GET /dashboard: it leads to what happened.
func (h *Handler) root(w http.ResponseWriter, _ *http.Request) {
	page.SeeOther(w, h.prefix+pathSessions)
}

// showLogin answers GET /dashboard/login.
func (h *Handler) showLogin(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	next := safeNext(page.Single(r.URL.Query(), "next"))
	// An invite is for somebody in particular, which a login link is not: whoever came by one logs in once more.
	if l, err := h.knock(ctx, r); err == nil && (l.Subject != "" || !strings.HasPrefix(next, pathInvite)) {
		page.SeeOther(w, h.prefix+next)
		return
	}
	h.draw(w, view{
		page: "login", Title: "Log in", Flash: h.takeFlash(w, r), formAction: h.formAction(),
		Data: loginData{Networks: h.Networks, Next: next},
	})
}

type loginData struct {
	Networks []*network.Network
	Next     string // where the browser goes afterwards
}

// formAction says where the login's forms may lead; see package signin.
func (h *Handler) formAction() string {
	sources := []string{"'self'", "https:"}
	for _, n := range h.Networks {
		for _, source := range page.PlainSources(n.AuthorizationOrigin(), h.https) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	return strings.Join(sources, " ")
}

// safeNext gives where the browser may go after a login: a page of the dashboard, and nowhere else. What is no such page becomes the
// dashboard itself.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Opaque != "" || strings.ContainsAny(next, "\\\r\n\t") || len(next) > nextMostBytes {
		return pathRoot
	}
	if u.Path != pathRoot && !strings.HasPrefix(u.Path, pathRoot+"/") || strings.Contains(u.Path, "..") || strings.HasPrefix(u.Path, pathLogin) {
		return pathRoot
	}
	return next
}

// nextMostBytes leaves room in the attempt's cookie.
const nextMostBytes = 512

// leave answers POST /dashboard/login: it sends the browser to an identity network, with a cookie to know it again by.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request) {
	n := h.network(page.Single(r.PostForm, "network"))
	if n == nil {
		h.drawProblem(w, nil, problemMalformed)
		return
	}
	f := flow.Flow{About: safeNext(page.Single(r.PostForm, "next")), Network: n.ID(), Attempt: network.NewAttempt(), IssuedAt: h.Now()}
	to, err := n.AuthURL(r.Context(), f.Attempt)
	if err != nil {
		h.trouble(w, n.ID(), err)
		return
	}
	h.flows.MakeRoom(w, r)
	if err := h.flows.Keep(w, f, h.Now().Add(flowLife)); err != nil {
		h.fail(w, r, nil, err)
		return
	}
	page.SeeOther(w, to)
}

// trouble leads back to the login after a try that the network gave no verdict on.
func (h *Handler) trouble(w http.ResponseWriter, id string, err error) {
	code := flashTrouble
	line := h.Log.Info().Str("network", id)
	if t, ok := errors.AsType[*network.Trouble](err); ok {
		line = line.Str("stage", t.Stage).Str("class", t.Class)
		if network.Passing(t.Class) {
			code = flashUnreachable
		}
	}
	line.Msg("a login to the dashboard did not finish")
	h.done(w, code, pathLogin)
}

// finishWithin bounds the way from the return to the login: to spend the attempt, to ask the provider, to store the login.
const finishWithin = 25 * time.Second

// finish answers GET /dashboard/login/{network}/callback, the browser's way back from the identity network.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		h.drawProblem(w, nil, problemLost)
		return
	}
	f, ok := h.flows.Find(w, r, q.Get("state"))
	if !ok || h.Now().After(f.IssuedAt.Add(flowLife)) {
		h.drawProblem(w, nil, problemLost)
		return
	}
	// The code is worth one post, so what follows outlives a browser that does not wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishWithin)
	defer cancel()
	switch err := h.Logins.Spend(ctx, flow.Hash(f.Attempt.State)); {
	case errors.Is(err, logins.ErrSpent): // a reload of the return: the login that it made is in the cookie
		page.SeeOther(w, h.prefix+f.About)
		return
	case err != nil:
		h.fail(w, r, nil, err)
		return
	}
	who, err := h.judge(ctx, f, q, r.PathValue("network"))
	switch {
	case errors.Is(err, network.ErrDeclined):
		h.done(w, flashDeclined, pathLogin)
	case err != nil:
		h.trouble(w, f.Network, err)
	default:
		l := logins.Login{Network: f.Network, Subject: who.Subject, Name: who.DisplayName, Email: who.Email}
		h.begin(ctx, w, r, l, f.About)
	}
}

// errMixUp: a return came at another network's address, or at one that is no longer configured.
var errMixUp = errors.New("the return belongs to another network")

// judge takes the return of a spent attempt to an identity. Its errors are network's and errMixUp.
func (h *Handler) judge(ctx context.Context, f flow.Flow, q url.Values, arrivedAt string) (network.Identity, error) {
	n := h.network(f.Network)
	if n == nil || arrivedAt != f.Network { // a mix-up: its code may be meant for the other's ears (RFC 9700 §4.4.2)
		return network.Identity{}, errMixUp
	}
	ret, err := network.ParseReturn(q)
	if err != nil {
		return network.Identity{}, err
	}
	return n.Redeem(ctx, f.Attempt, ret)
}

// begin logs somebody in, under a new token, and ends the login that the browser had before.
func (h *Handler) begin(ctx context.Context, w http.ResponseWriter, r *http.Request, l logins.Login, next string) {
	if old, err := h.knock(ctx, r); err == nil {
		if err := h.Logins.End(ctx, old); err != nil {
			h.fail(w, r, nil, err)
			return
		}
	}
	token, err := h.Logins.Begin(ctx, l)
	if err != nil {
		h.fail(w, r, nil, err)
		return
	}
	h.setLoginCookie(w, token, int(logins.Lifetime/time.Second))
	h.Log.Info().Str("network", l.Network).Str("link", l.LinkID).Msg("somebody logged in to the dashboard")
	page.SeeOther(w, h.prefix+next)
}

// logout answers POST /dashboard/logout; with everywhere set, every login of the same identity ends.
func (h *Handler) logout(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := within(r)
	defer cancel()
	l, err := h.knock(ctx, r)
	code := flashLoggedOut
	if err == nil {
		end := h.Logins.End
		if page.Single(r.PostForm, "everywhere") != "" {
			end, code = h.Logins.EndAll, flashLoggedOutAll
		}
		err = end(ctx, l)
	}
	if err != nil && !errors.Is(err, logins.ErrNobody) {
		h.fail(w, r, nil, err)
		return
	}
	h.setLoginCookie(w, "", -1)
	h.done(w, code, pathLogin)
}
