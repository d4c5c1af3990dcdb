package operator

import (
	"errors"
	"html/template"
	"net/http"
	"time"

	"verifyd/edge/dashboard/site"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
)

// sessionLine is one entry of a timeline. What the receiver answered is for the account's members.
type sessionLine struct {
	At    time.Time
	Day   bool // the first of its day
	Words template.HTML
}

type sessionData struct {
	facts.View

	Name  string // of the account
	Host  string
	Lines []sessionLine
}

// showSession answers GET /dashboard/operator/sessions/{session}: what happened, and not to whom.
func (h *Handler) showSession(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	id, err := sessions.ParseID(r.PathValue("session"))
	// never by its token, which would be in the address
	if err != nil || string(id) != r.PathValue("session") {
		h.DrawProblem(w, nil, problemNoSession)
		return
	}
	web.EventFrom(r.Context()).Session = id
	s, entries, err := h.Sessions.Timeline(ctx, id)
	switch {
	case errors.Is(err, sessions.ErrNotFound):
		h.DrawProblem(w, nil, problemNoSession)
		return
	case err != nil:
		h.Fail(w, r, nil, err)
		return
	}
	d := sessionData{View: s, Name: h.accountName(s.Account), Host: timeline.Host(s.Session)}
	report := timeline.Report{View: s, Account: d.Name, Networks: h.NetworkName, Instant: site.Instant}
	day := ""
	for _, e := range entries {
		l := sessionLine{At: e.At, Words: site.Words(report.Describe(e))}
		if at := e.At.UTC().Format(time.DateOnly); at != day {
			day, l.Day = at, true
		}
		d.Lines = append(d.Lines, l)
	}
	h.drawPage(w, r, v, site.View{Page: "opsession", Title: "Session", Nav: "dead", Data: d})
}
