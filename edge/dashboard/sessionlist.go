package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"verifyd/edge/page"
	"verifyd/sessions"
)

// Lister lists an account's sessions; a *sessions.Store.
type Lister interface {
	List(ctx context.Context, q sessions.Query) (sessions.Page, error)
}

const (
	// listLimit is a page of the list: what somebody looks through at once.
	listLimit = 25
	// listWithin is how long one page looks back for sessions that a filter lets through.
	listWithin = 4 * time.Second
)

// choice is one entry of a filter.
type choice struct{ Value, Name string }

// The filters. What is not among them counts as none.
var (
	stateChoices = []choice{
		{"pending", "pending"}, {"verified", "verified"}, {"failed", "failed"}, {"canceled", "canceled"}, {"expired", "expired"},
	}
	deliveryChoices = []choice{
		{"delivered", "delivered"}, {"rejected", "rejected"}, {"unknown", "unknown"}, {"undeliverable", "undeliverable"}, {"due", "due"},
		{"claimed", "claimed"}, {"none", "none"},
	}
	sinceChoices = []choice{{"1h", "the last hour"}, {"24h", "the last 24 hours"}, {"72h", "the last 3 days"}}
)

type sessionsData struct {
	Sessions                     []sessions.View
	State, Delivery, User, Since string
	States, Deliveries, Times    []choice
	Filtered                     bool
	Older, Newest                string // addresses; empty: there is no such page
	Back                         time.Time
}

// showSessions answers GET /dashboard/sessions, newest first.
func (h *Handler) showSessions(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := context.WithTimeout(r.Context(), listWithin)
	defer cancel()
	q := r.URL.Query()
	d := sessionsData{
		State: chosen(q, "state", stateChoices), Delivery: chosen(q, "delivery", deliveryChoices), Since: chosen(q, "since", sinceChoices),
		User: page.Single(q, "user"), States: stateChoices, Deliveries: deliveryChoices, Times: sinceChoices,
	}
	d.Filtered = d.State+d.Delivery+d.User+d.Since != ""
	cursor := page.Single(q, "cursor")
	list, err := h.List.List(ctx, h.sessionQuery(v.account.ID, d, cursor))
	switch {
	case errors.Is(err, sessions.ErrBadCursor):
		page.SeeOther(w, h.prefix+pathSessions)
		return
	case err != nil:
		h.fail(w, r, &v, err)
		return
	}
	d.Sessions, d.Back = list.Sessions, list.Back
	filters := []string{"state", d.State, "delivery", d.Delivery, "user", d.User, "since", d.Since}
	if list.Next != "" {
		d.Older = h.prefix + pathSessions + "?" + query(append(filters, "cursor", list.Next)...)
	}
	if cursor != "" {
		d.Newest = h.prefix + pathSessions + "?" + query(filters...)
	}
	h.draw(w, view{page: "sessions", Title: "Sessions", Nav: "sessions", visit: &v, Flash: h.takeFlash(w, r), Data: d})
}

func (h *Handler) sessionQuery(account string, d sessionsData, cursor string) sessions.Query {
	q := sessions.Query{Account: account, PlatformUserID: d.User, Cursor: cursor, Limit: listLimit}
	if d.State != "" {
		q.States = []sessions.State{sessions.State(d.State)}
	}
	if d.Delivery != "" {
		q.Deliveries = []sessions.DeliveryState{sessions.DeliveryState(d.Delivery)}
	}
	if since, err := time.ParseDuration(d.Since); err == nil {
		q.Since = h.Now().Add(-since)
	}
	return q
}

// chosen gives the filter that an address asks for, if it is one of the choices.
func chosen(q url.Values, name string, choices []choice) string {
	value := page.Single(q, name)
	if !slices.ContainsFunc(choices, func(c choice) bool { return c.Value == value }) {
		return ""
	}
	return value
}
