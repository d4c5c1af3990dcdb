package operator

import (
	"context"
	"errors"
	"net/http"
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

// undeliveredRow is a delivery that has failed.
type undeliveredRow struct {
	facts.View

	Account string // its name
	Host    string
	Why     string
}

type undeliveredData struct {
	Rows                      []undeliveredRow
	State, Host, Text, Search string // the filters
	States                    []form.Choice
	Filtered                  bool
	BackTo                    time.Time // how far back the search went; zero: through everything
	Max                       int
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
	ctx, cancel := context.WithTimeout(r.Context(), site.ListTimeout)
	defer cancel()
	q := r.URL.Query()
	d := undeliveredData{
		State: form.Choose(q, "state", endedChoices), Host: strings.TrimSpace(page.Single(q, "host")),
		Text:   strings.TrimSpace(page.Single(q, "account")),
		Search: strings.TrimSpace(page.Single(q, "q")),
		States: endedChoices, Max: redrive.Max,
	}
	d.Filtered = d.State+d.Host+d.Text+d.Search != ""
	var found lists.Deliveries
	err := h.InOperatorSlot(func() (err error) {
		found, err = h.Sessions.FindDeliveries(ctx, h.undeliveredQuery(d))
		return err
	})
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	d.BackTo = found.BackTo
	for _, view := range found.Views {
		d.Rows = append(d.Rows, h.undeliveredRow(view))
	}
	h.drawPage(w, r, v, site.View{
		Page: "undelivered", Title: "Not delivered", Nav: "dead", Data: d, Search: d.Search,
	})
}

func (h *Handler) undeliveredQuery(d undeliveredData) lists.DeliveryQuery {
	q := lists.DeliveryQuery{States: redrive.Ended(), Limit: redrive.Max}
	if d.State != "" {
		q.States = []facts.DeliveryState{facts.DeliveryState(d.State)}
	}
	text, search, host := lists.Fold(d.Text), lists.Fold(d.Search), lists.Fold(d.Host)
	q.Wants = func(v facts.View) bool {
		at := timeline.Host(v.Session)
		return strings.Contains(at, host) && (text == "" || h.isAccount(v.Account, text)) &&
			(search == "" || strings.Contains(at, search) || h.isAccount(v.Account, search) ||
				strings.HasPrefix(string(v.ID), search))
	}
	return q
}

// isAccount reports whether a text of lists.Fold is an account's id, or in its name.
func (h *Handler) isAccount(id, text string) bool {
	return id == text || strings.Contains(strings.ToLower(h.accountName(id)), text)
}

// find answers POST /dashboard/operator/search: with the session that the text names, or with what was not
// delivered. It is a POST because the text may be a token, which must not be in an address.
func (h *Handler) find(w http.ResponseWriter, r *http.Request, _ site.Visit) {
	text := strings.TrimSpace(page.Single(r.PostForm, "q"))
	id, rest := lists.Seek(text)
	if id != "" {
		ctx, cancel := h.Within(r)
		defer cancel()
		switch _, err := h.Sessions.Read(ctx, id); {
		case err == nil:
			web.EventFrom(r.Context()).Session = id
			page.SeeOther(w, h.Prefix+paths.Of(paths.OperatorSession, string(id)))
			return
		case !errors.Is(err, sessions.ErrNotFound):
			h.Fail(w, r, nil, err)
			return
		}
	}
	if rest == "" && text != "" { // a token
		h.DrawProblem(w, nil, problemNoSession)
		return
	}
	to := h.Prefix + paths.Undelivered
	if text != "" {
		to += "?" + form.Query("q", text)
	}
	page.SeeOther(w, to)
}

// accountName returns an account's name; its id if the directory does not have it.
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
	ctx, cancel := h.Within(r)
	defer cancel()
	ids, ok := redrive.ParseIDs(r.PostForm["session"])
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
