package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"verifyd/edge"
	"verifyd/edge/page"
	"verifyd/edge/redrive"
	"verifyd/sessions"
	"verifyd/sessions/told"
)

// undeliveredRow is a delivery that has ended, and not well.
type undeliveredRow struct {
	sessions.View

	Account string // its name
	Host    string
	Why     string
}

type undeliveredData struct {
	Rows              []undeliveredRow
	State, Host, Text string // the filters
	States            []choice
	Filtered          bool
	BackTo            time.Time // how far back it was looked; zero: all there is
	Most              int
}

// endedChoices are the filters by how a delivery ended.
var endedChoices = func() (choices []choice) {
	for _, s := range redrive.Ended() {
		choices = append(choices, choice{string(s), string(s)})
	}
	return choices
}()

// showUndelivered answers GET /dashboard/operator/undelivered: what nobody was told of, newest first.
func (h *Handler) showUndelivered(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := context.WithTimeout(r.Context(), listWithin)
	defer cancel()
	q := r.URL.Query()
	d := undeliveredData{
		State: chosen(q, "state", endedChoices), Host: strings.TrimSpace(page.Single(q, "host")), Text: strings.TrimSpace(page.Single(q, "account")),
		States: endedChoices, Most: redrive.Most,
	}
	d.Filtered = d.State+d.Host+d.Text != ""
	found, err := h.Sessions.FindDeliveries(ctx, h.undeliveredQuery(d))
	if err != nil {
		h.fail(w, r, nil, err)
		return
	}
	d.BackTo = found.BackTo
	for _, view := range found.Views {
		d.Rows = append(d.Rows, h.undeliveredRow(view))
	}
	h.drawOperator(w, r, v, view{page: "undelivered", Title: "Not delivered", Nav: "dead", Data: d})
}

func (h *Handler) undeliveredQuery(d undeliveredData) sessions.DeliveryQuery {
	q := sessions.DeliveryQuery{States: redrive.Ended(), Limit: redrive.Most}
	if d.State != "" {
		q.States = []sessions.DeliveryState{sessions.DeliveryState(d.State)}
	}
	text := strings.ToLower(d.Text)
	q.Wants = func(v sessions.View) bool {
		return strings.Contains(told.Host(v.Session), strings.ToLower(d.Host)) &&
			(text == "" || v.Account == text || strings.Contains(strings.ToLower(h.accountName(v.Account)), text))
	}
	return q
}

// accountName gives an account's name; its id where the directory does not know it.
func (h *Handler) accountName(id string) string {
	if name, ok := h.Directory.Name(id); ok {
		return name
	}
	return id
}

func (h *Handler) undeliveredRow(v sessions.View) undeliveredRow {
	row := undeliveredRow{View: v, Account: h.accountName(v.Account), Host: told.Host(v.Session)}
	for _, a := range slices.Backward(v.Delivery.Attempts) {
		if a.Result != nil {
			row.Why = a.Result.Detail
			break
		}
	}
	return row
}

// redrive answers POST /dashboard/operator/undelivered/redrive: the sessions that were ticked are sent again.
func (h *Handler) redrive(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	ids, ok := tickedSessions(r.PostForm)
	switch {
	case !ok:
		h.drawProblem(w, nil, problemMalformed)
		return
	case len(ids) == 0:
		h.done(w, flashNothingTicked, pathDead)
		return
	}
	done, err := redrive.Send(ctx, h.Sessions, h.Accounts, v.asOperator(), ids)
	h.Log.Info().Int("asked", len(done.Asked)).Int("skipped", len(done.Skipped)).Str("by", v.asOperator().String()).Msg("callbacks are sent again")
	switch {
	case err != nil:
		edge.LineOf(r.Context()).Err = err
		h.drawProblem(w, nil, problemUncertain)
	case len(done.Asked) == 0:
		h.done(w, flashDeliveryOpen, pathDead)
	default:
		h.done(w, flashRedriven, pathDead)
	}
}

// tickedSessions reads the sessions of a form. It is not ok where they are not what our page sends.
func tickedSessions(form url.Values) (ids []sessions.ID, ok bool) {
	for _, text := range form["session"] {
		id, err := sessions.ParseID(text)
		if err != nil || string(id) != text || len(ids) == redrive.Most {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}
