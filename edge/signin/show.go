package signin

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/timeline"
)

// show answers GET and HEAD /?session=…: the page of a session, or where lang is empty the list of
// languages. It only reads. What draws link previews gets a card that is the same for every link. For that
// card and for the list the store is not even asked.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	vis := h.visitor(r, chosenLanguage(q))
	if previews(r) {
		h.draw(w, h.view(vis, pageCard))
		return
	}
	if r.URL.RawQuery == "" { // no link at all, not even a broken one
		h.nowhere(w, vis, http.StatusNotFound)
		return
	}
	token, err := sessions.ParseToken(page.Single(q, "session"))
	keeps := url.Values{}
	if err == nil {
		keeps.Set("session", token.Reveal())
	}
	note := page.Single(q, "note")
	if _, known := notices[notice(note)]; known {
		keeps.Set("note", note)
	}
	if h.drawLanguages(w, &vis, q, keeps) {
		return
	}
	if err != nil {
		h.draw(w, h.view(vis, pageUnknown))
		return
	}
	r, done := h.wait(w, r, vis, h.pageURL(token, vis.chosen))
	if r == nil {
		return
	}
	defer done()
	s, err := h.read(r, &vis, token, h.sessions.ReadByToken)
	if err != nil {
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return
	}
	if s.State != sessions.Pending || h.closed(s) {
		h.draw(w, h.sessionView(vis, s, token))
		return
	}
	h.showPending(w, r, vis, s, token)
}

// Nowhere answers a browser whose address leads to no page of this service, with the status of what it asked
// for.
func (h *Handler) Nowhere(w http.ResponseWriter, r *http.Request, status int) {
	page.Guard(h.https, func(w http.ResponseWriter, r *http.Request) {
		h.nowhere(w, h.visitor(r, ""), status)
	}).ServeHTTP(w, r)
}

func (p *pages) nowhere(w http.ResponseWriter, vis visitor, status int) {
	v := p.view(vis, pageNowhere)
	v.status, v.Nowhere = status, true
	p.draw(w, v)
}

// showPending draws the question, or that somebody is answering it in another browser.
func (h *Handler) showPending(w http.ResponseWriter, r *http.Request, vis visitor, s sessions.Status,
	token sessions.Token) {
	await := h.sessions.AskProgressOf(r.Context(), s.Session)
	lease, err := h.sessions.LeaseOf(r.Context(), s.ID)
	progress, perr := await()
	if err := errors.Join(err, perr); err != nil {
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return
	}
	if r.Method == http.MethodGet {
		h.know(w, &vis)
	}
	if opens(r) {
		h.stepped(s.Session, timeline.Event{Name: timeline.EventOpened})
	}
	switch {
	case progress.Network != "":
		h.drawConfirm(w, vis, s, token, progress)
		return
	case lease.HeldByOther(vis.browser(s.ID), h.now()):
		h.drawElsewhere(w, vis, s, token, lease)
		return
	}
	q := r.URL.Query()
	v := h.sessionView(vis, s, token)
	h.addLease(&v, lease, vis.browser(s.ID))
	h.addProgress(&v, s.Session, progress, vis.browser(s.ID))
	h.addNotice(&v, notice(page.Single(q, "note")), page.Single(q, "network"),
		h.pageURL(token, vis.chosen))
	addInApp(&v, r, h.origin+h.pageURL(token, vis.chosen))
	h.draw(w, v)
}

// read reads a session in that way, notes on the request's log line whose it is, and speaks its language.
func (h *Handler) read(r *http.Request, vis *visitor, token sessions.Token,
	way func(context.Context, sessions.Token) (sessions.Status, error)) (sessions.Status, error) {
	line := web.EventFrom(r.Context())
	line.Session = token.ID()
	s, err := way(r.Context(), token)
	line.Account = s.Account
	line.Follow(r.Context(), s.Trace)
	h.prefer(vis, s.Locale)
	return s, err
}

// wait returns a request under the context of what it asks of the store, and done, which lets go of its
// place. If too many wait it answers, and returns no request.
func (p *pages) wait(w http.ResponseWriter, r *http.Request, vis visitor,
	again string) (_ *http.Request, done func()) {
	ctx, done, err := p.store.Begin(r.Context())
	if err != nil {
		p.drawReadError(w, r, vis, err, again)
		return nil, nil
	}
	return r.WithContext(ctx), done
}

// drawReadError answers for a session that could not be read, or an attempt that could not be spent. again is
// where the user may try again, which repeats nothing.
func (p *pages) drawReadError(w http.ResponseWriter, r *http.Request, vis visitor, err error,
	again string) {
	if errors.Is(err, sessions.ErrNotFound) {
		p.draw(w, p.view(vis, pageUnknown))
		return
	}
	web.EventFrom(r.Context()).Err = err
	v := p.view(vis, pageUnavailable)
	v.Again = again
	p.draw(w, v)
}

// previewed are the pages that can be looked at without a session, in the order in which users come to them.
var previewed = []kind{
	pageAsk, pageConfirm, pageVerified, pageDeclined, pageRefused, pageUnconfirmed, pageExpired, pageCanceled,
	pageElsewhere, pageClosed,
}

// Previews returns the names of the pages that Preview draws.
func Previews() (names []string) {
	for _, k := range previewed {
		names = append(names, k.name)
	}
	return names
}

// Preview draws a page of a requester as its users see it, for the owners who set its appearance: one of
// Previews, or else the question. It has no user and no session, and its buttons do nothing. It may be shown
// in a frame of this service's own pages.
func (h *Handler) Preview(w http.ResponseWriter, r *http.Request, a Requester, state string) {
	q := r.URL.Query()
	vis := h.visitor(r, chosenLanguage(q))
	keeps := maps.Clone(q) // what is looked at before it is saved
	keeps.Del("lang")
	keeps.Del("from")
	if h.drawLanguages(w, &vis, q, keeps) {
		return
	}
	k := pageAsk
	if i := slices.IndexFunc(previewed, func(k kind) bool { return k.name == state }); i >= 0 {
		k = previewed[i]
	}
	v := h.view(vis, k)
	v.Preview = true
	v.addBranding(a)
	v.values["asker"], v.values["Asker"] = named(vis, a)
	v.values["network"] = h.pages.live[0].Name()
	s := sessions.Session{
		Request:   sessions.Request{Platform: "my app", PlatformUserID: "sailor_42"},
		ExpiresAt: h.now().Add(sessions.Lifetime),
	}
	again := "?" + keeps.Encode()
	switch k {
	case pageAsk:
		h.ask(&v, s, "")
	case pageConfirm:
		v.Facts, v.Code, v.Caution = facts(s), "K7M2QX", true
		v.Again, v.AgainText = again, "note.again"
		h.addExpiry(&v, s)
	case pageElsewhere:
		v.count, v.Caution = 2, true
		v.Again, v.AgainText = again, "note.again"
	case pageVerified, pageDeclined, pageRefused, pageUnconfirmed:
		v.Facts, v.Back = facts(s), a.ReturnURL
	case pageExpired, pageCanceled:
		v.Back = a.ReturnURL
	}
	v.formAction, v.status = "'none'", http.StatusOK
	h.draw(w, v)
}
