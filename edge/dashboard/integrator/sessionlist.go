package integrator

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/export"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

// sessionPages are those about sessions.
type sessionPages struct {
	deps

	streams *places.Places // of pages with live updates
	exports *export.Answers
}

// Lister lists an account's sessions; a *store.Store.
type Lister interface {
	List(ctx context.Context, q lists.Query) (lists.Page, error)
}

// listLimit is a page of the list: what somebody looks through at once.
const listLimit = 25

type sessionsData struct {
	filters

	Sessions      []facts.View
	Older, Newest string // addresses; empty: there is no such page
	// addresses of the whole list, in each format
	Sheet, CSV, Lines string
	Back              time.Time
	Reading           *lists.Progress
}

// showSessions answers GET /dashboard/sessions, newest first.
func (h sessionPages) showSessions(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.drawSessions(w, r, v, h.readFilters(r.URL.Query(), v.Account.ID))
}

// drawSessions draws one page of a list.
func (h sessionPages) drawSessions(w http.ResponseWriter, r *http.Request, v site.Visit, f filters) {
	d := sessionsData{filters: f}
	q := h.query(v.Account.ID, f)
	q.Cursor = page.Single(r.URL.Query(), "cursor")
	var list lists.Page
	err := h.InSlot(v, func() (err error) {
		list, err = h.listPage(r.Context(), q)
		return err
	})
	switch {
	case errors.Is(err, lists.ErrBadCursor):
		page.SeeOther(w, h.Prefix+paths.Sessions)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	d.Sessions, d.Back, d.Reading = list.Sessions, list.Back, list.Reading
	pairs := f.pairs()
	if list.Next != "" {
		d.Older = h.Prefix + paths.Sessions + "?" + form.Query(append(pairs, "cursor", list.Next)...)
	}
	if q.Cursor != "" {
		d.Newest = h.Prefix + paths.Sessions + "?" + form.Query(pairs...)
	}
	as := func(f export.Format) string {
		return h.Prefix + pathExport + "?" + form.Query(append(pairs, "format", string(f))...)
	}
	d.Sheet, d.CSV, d.Lines = as(export.Sheet), as(export.CSV), as(export.Lines)
	h.Draw(w, site.View{
		Page: "sessions", Title: "Sessions", Nav: "sessions", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
		Search: f.Text,
	})
}

// find answers POST /dashboard/search: with the session that the text names, or with a list. It is a POST
// because the text may be a token, which must not be in an address.
func (h sessionPages) find(w http.ResponseWriter, r *http.Request, v site.Visit) {
	text := strings.TrimSpace(page.Single(r.PostForm, "q"))
	id, rest := lists.Seek(text)
	if id != "" {
		ctx, cancel := h.Within(r)
		defer cancel()
		found, err := h.Sessions.ReadOf(ctx, v.Account.ID, id)
		switch {
		case err == nil && found.Account == v.Account.ID:
			web.EventFrom(r.Context()).Session = id
			page.SeeOther(w, h.Prefix+paths.Of(pathSession, string(id)))
			return
		case err != nil && !errors.Is(err, sessions.ErrNotFound):
			h.Fail(w, r, &v, err)
			return
		}
	}
	switch {
	case text == "":
		page.SeeOther(w, h.Prefix+paths.Sessions)
	case rest == "":
		h.Draw(w, site.View{
			Page: "sessions", Title: "Sessions", Nav: "sessions", Visit: &v,
			Data: sessionsData{filters: filters{Token: true}},
		})
	default:
		page.SeeOther(w, h.Prefix+paths.Sessions+"?"+form.Query("q", text))
	}
}

// export answers GET /dashboard/export: all sessions that the filters let through, as long as the visitor may
// see them.
func (h sessionPages) export(w http.ResponseWriter, r *http.Request, v site.Visit) {
	values := r.URL.Query()
	f := export.Format(form.Choose(values, "format", form.Choices("csv", "", "sheet", "", "jsonl", "")))
	if f == "" {
		h.DrawProblem(w, &v, site.ProblemMalformed)
		return
	}
	err := h.exports.Write(w, r, export.Export{
		Format: f, Query: h.query(v.Account.ID, h.readFilters(values, v.Account.ID)), List: h.listPage,
		May:  func() error { return h.StillMay(r, v, access.ActionExport) },
		Who:  v.Asks(),
		File: f.File(),
	})
	switch {
	case err == nil:
	case errors.Is(err, export.ErrTooMany):
		w.Header().Set("Retry-After", "1")
		h.DrawProblem(w, &v, problemTooManyExports)
	default:
		h.Deny(w, r, v, err)
	}
}

var problemTooManyExports = site.Problem{
	Status: http.StatusTooManyRequests, Heading: "Many exports at once",
	Lead: "Too many exports of this account, or of yours, are being downloaded right now, so this one was " +
		"not.",
	Next: "Wait until one of them has ended, then try again.",
}

// listPage reads a page of a list.
func (h sessionPages) listPage(ctx context.Context, q lists.Query) (lists.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, site.ListTimeout)
	defer cancel()
	return h.List.List(ctx, q)
}

// readFilters reads what an address asks for.
func (h sessionPages) readFilters(q url.Values, account string) filters {
	f := filters{
		Text:       strings.TrimSpace(page.Single(q, "q")),
		User:       page.Single(q, "user"),
		Platform:   page.Single(q, "platform"),
		Group:      page.Single(q, "group"),
		From:       day(page.Single(q, "from")),
		To:         day(page.Single(q, "to")),
		selections: selections(h.Directory.Keys(account), h.SignIn),
	}
	for i := range f.selections {
		s := &f.selections[i]
		s.Value = form.Choose(q, s.Name, s.Choices)
	}
	return f
}

// query returns the store's query for the filters.
func (h sessionPages) query(account string, f filters) lists.Query {
	q := lists.Query{
		Account: account, PlatformUserID: f.User, Platform: f.Platform, Group: f.Group, Limit: listLimit,
		States: one[sessions.State](f, "state"), Deliveries: one[facts.DeliveryState](f, "delivery"),
		Keys: one[string](f, "key"), Networks: one[string](f, "network"),
		Reasons: one[sessions.Reason](f, "reason"), Levels: one[level](f, "binding"),
	}
	q.ID, q.Text = lists.Seek(f.Text)
	for _, k := range h.Directory.Keys(account) {
		if k.NameBegins(q.Text) {
			q.Named = append(q.Named, k.ID)
		}
	}
	if mode := f.Of("mode").Value; mode != "" {
		test := mode == "test"
		q.Test = &test
	}
	if since, err := time.ParseDuration(f.Of("since").Value); err == nil {
		q.Since = h.Now().Add(-since)
	}
	if from, err := time.Parse(time.DateOnly, f.From); err == nil && from.After(q.Since) {
		q.Since = from
	}
	if to, err := time.Parse(time.DateOnly, f.To); err == nil {
		q.Until = to.AddDate(0, 0, 1)
	}
	return q
}
