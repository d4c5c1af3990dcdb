package signin

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"verifyd/edge/page"
	"verifyd/sessions"
	"verifyd/sessions/timeline"
)

// show answers GET and HEAD /?session=…: the page of a session, or where lang is empty the list of
// languages. It only reads. What draws link previews gets a card that is the same for every link. For that
// card and for the list the store is not even asked.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) *reply {
	q := r.URL.Query()
	vis := h.visit(r, chosenLanguage(q))
	if previews(r) {
		return &reply{page: h.view(vis, pageCard)}
	}
	if r.URL.RawQuery == "" { // no link at all, not even a broken one
		return h.replyNowhere(vis, http.StatusNotFound)
	}
	token, err := sessions.ParseToken(pasted(page.Single(q, "session")))
	keeps := url.Values{}
	if err == nil {
		keeps.Set("session", token.Reveal())
	}
	note := page.Single(q, "note")
	if _, known := notices[notice(note)]; known {
		keeps.Set("note", note)
	}
	if list := h.replyLanguages(vis, q, keeps); list != nil {
		return list
	}
	if err != nil {
		return &reply{page: h.view(vis, pageUnknown)}
	}
	vis.token = token
	vis.again = h.pageURL(vis)
	done, full := h.wait(vis, false)
	if full != nil {
		return full
	}
	defer done()
	if re := h.read(vis, h.sessions.ReadByToken); re != nil {
		return re
	}
	if vis.status.State != sessions.Pending || h.closed(vis.status) {
		return &reply{page: h.sessionView(vis)}
	}
	return h.showPending(w, vis)
}

// closing is what may follow a link in a text, and be copied with it.
const closing = ".,;:!?'\")]}>*|`’”»…。、）】"

// pasted returns a token without what closed the sentence that it was copied from.
func pasted(token string) string {
	if len(token) > sessions.TokenLength && strings.Trim(token[sessions.TokenLength:], closing) == "" {
		return token[:sessions.TokenLength]
	}
	return token
}

// Nowhere answers a browser whose address leads to no page of this service, with the status of what it asked
// for.
func (h *Handler) Nowhere(w http.ResponseWriter, r *http.Request, status int) {
	page.Guard(h.answers(func(_ http.ResponseWriter, r *http.Request) *reply {
		return h.replyNowhere(h.visit(r, ""), status)
	})).ServeHTTP(w, r)
}

func (p *pages) replyNowhere(vis *visit, status int) *reply {
	v := p.view(vis, pageNowhere)
	v.status, v.Nowhere = status, true
	return &reply{page: v}
}

// showPending returns the question, or that somebody is answering it in another browser.
func (h *Handler) showPending(w http.ResponseWriter, vis *visit) *reply {
	lease, progress, err := h.signIns(vis)
	if err != nil {
		return h.replyReadError(vis, err)
	}
	if vis.r.Method == http.MethodGet {
		vis.id = h.browsers.Know(w, vis.id)
	}
	if opens(vis.r) {
		h.stepped(vis.status.Session, timeline.Event{Name: timeline.EventOpened})
	}
	switch {
	case progress.Network != "":
		return h.replyConfirm(vis, progress)
	case lease.HeldByOther(vis.browser(), h.now()):
		return h.replyElsewhere(vis, lease)
	}
	q := vis.r.URL.Query()
	v := h.sessionView(vis)
	v.addLease(lease, vis.browser())
	h.addProgress(&v, vis.status.Session, progress, vis.browser())
	h.addNotice(&v, notice(page.Single(q, "note")), page.Single(q, "network"), vis.again)
	addInApp(&v, vis.r, h.origin+vis.again)
	return &reply{page: v}
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
	h.answers(func(_ http.ResponseWriter, r *http.Request) *reply { return h.preview(r, a, state) })(w, r)
}

func (h *Handler) preview(r *http.Request, a Requester, state string) *reply {
	q := r.URL.Query()
	vis := h.visit(r, chosenLanguage(q))
	keeps := maps.Clone(q) // what is looked at before it is saved
	keeps.Del("lang")
	keeps.Del("from")
	if list := h.replyLanguages(vis, q, keeps); list != nil {
		return list
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
	return &reply{page: v}
}
