package operator

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/redrive"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/timeline"
)

// undeliveredRow is a delivery that has ended, and not well.
type undeliveredRow struct {
	facts.View

	Account string // its name
	Host    string
	Why     string
}

type undeliveredData struct {
	Rows              []undeliveredRow
	State, Host, Text string // the filters
	States            []form.Choice
	Filtered          bool
	BackTo            time.Time // how far back it was looked; zero: all there is
	Max               int
}

// endedChoices are the filters by how a delivery ended.
var endedChoices = func() (choices []form.Choice) {
	for _, s := range redrive.Ended() {
		choices = append(choices, form.Choice{Value: string(s), Name: string(s)})
	}
	return choices
}()

// showUndelivered answers GET /dashboard/operator/undelivered: deliveries that failed, newest first.
func (h *Handler) showUndelivered(w http.ResponseWriter, r *http.Request, v site.Visit) {
	release, ok := h.AcquireList(w, v, site.OperatorLists)
	if !ok {
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), site.ListTimeout)
	defer cancel()
	q := r.URL.Query()
	d := undeliveredData{
		State: form.Choose(q, "state", endedChoices), Host: strings.TrimSpace(page.Single(q, "host")),
		Text:   strings.TrimSpace(page.Single(q, "account")),
		States: endedChoices, Max: redrive.Max,
	}
	d.Filtered = d.State+d.Host+d.Text != ""
	found, err := h.Sessions.FindDeliveries(ctx, h.undeliveredQuery(d))
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	d.BackTo = found.BackTo
	for _, view := range found.Views {
		d.Rows = append(d.Rows, h.undeliveredRow(view))
	}
	h.drawPage(w, r, v, site.View{Page: "undelivered", Title: "Not delivered", Nav: "dead", Data: d})
}

func (h *Handler) undeliveredQuery(d undeliveredData) lists.DeliveryQuery {
	q := lists.DeliveryQuery{States: redrive.Ended(), Limit: redrive.Max}
	if d.State != "" {
		q.States = []facts.DeliveryState{facts.DeliveryState(d.State)}
	}
	text := strings.ToLower(d.Text)
	q.Wants = func(v facts.View) bool {
		return strings.Contains(timeline.Host(v.Session), strings.ToLower(d.Host)) &&
			(text == "" || v.Account == text ||
				strings.Contains(strings.ToLower(h.accountName(v.Account)), text))
	}
	return q
}

// accountName returns an account's name; its id where the directory does not know it.
func (h *Handler) accountName(id string) string {
	if name, ok := h.Directory.Name(id); ok {
		return name
	}
	return id
}

func (h *Handler) undeliveredRow(v facts.View) undeliveredRow {
	row := undeliveredRow{View: v, Account: h.accountName(v.Account), Host: timeline.Host(v.Session)}
	for _, a := range slices.Backward(v.Delivery.Attempts) {
		if a.Result != nil {
			row.Why = a.Result.Detail
			break
		}
	}
	return row
}

// redrive answers POST /dashboard/operator/undelivered/redrive: the sessions that were ticked are sent again.
func (h *Handler) redrive(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := site.Within(r)
	defer cancel()
	ids, ok := tickedSessions(r.PostForm)
	switch {
	case !ok:
		h.DrawProblem(w, nil, site.ProblemMalformed)
		return
	case len(ids) == 0:
		h.Done(w, flashNothingTicked, paths.Undelivered)
		return
	}
	done, err := redrive.Send(ctx, h.Sessions, h.Accounts, v.AsOperator(), ids)
	h.Log.Info().Int("asked", len(done.Asked)).Int("skipped", len(done.Skipped)).
		Str("by", v.AsOperator().String()).Msg("callbacks are sent again")
	switch {
	case err != nil:
		web.EventFrom(r.Context()).Err = err
		h.DrawProblem(w, nil, site.ProblemUncertain)
	case len(done.Asked) == 0:
		h.Done(w, site.FlashDeliveryOpen, paths.Undelivered)
	default:
		h.Done(w, flashRedriven, paths.Undelivered)
	}
}

// tickedSessions reads the sessions of a form. It is not ok where they are not what our page sends.
func tickedSessions(form url.Values) (ids []sessions.ID, ok bool) {
	for _, text := range form["session"] {
		id, err := sessions.ParseID(text)
		if err != nil || string(id) != text || len(ids) == redrive.Max {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}
