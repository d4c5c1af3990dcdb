package integrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/limit"
	"verifyd/edge/page"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

// sessionPages are those about sessions.
type sessionPages struct {
	deps

	again   *limit.Rates  // of callbacks that are sent again, by account
	streams *limit.Places // of the pages that are kept up to date, by visitor
}

// Lister lists an account's sessions; a *store.Store.
type Lister interface {
	List(ctx context.Context, q lists.Query) (lists.Page, error)
}

// listLimit is a page of the list: what somebody looks through at once.
const listLimit = 25

// The filters. What is not among them counts as none.
var (
	stateChoices = form.Choices(
		"pending", "pending", "verified", "verified", "failed", "failed",
		"canceled", "canceled", "expired", "expired",
	)
	deliveryChoices = form.Choices(
		"delivered", "delivered", "rejected", "rejected", "unknown", "unknown", "undeliverable",
		"undeliverable",
		"due", "due", "claimed", "claimed", "none", "none",
	)
	sinceChoices = form.Choices("1h", "the last hour", "24h", "the last 24 hours", "72h", "the last 3 days")
)

type sessionsData struct {
	Sessions                     []facts.View
	State, Delivery, User, Since string
	States, Deliveries, Times    []form.Choice
	Filtered                     bool
	Older, Newest                string // addresses; empty: there is no such page
	Back                         time.Time
}

// showSessions answers GET /dashboard/sessions, newest first.
func (h sessionPages) showSessions(w http.ResponseWriter, r *http.Request, v site.Visit) {
	release, ok := h.AcquireList(w, v, v.Account.ID)
	if !ok {
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), site.ListTimeout)
	defer cancel()
	q := r.URL.Query()
	d := sessionsData{
		State: form.Choose(q, "state", stateChoices), Delivery: form.Choose(q, "delivery", deliveryChoices),
		Since: form.Choose(q, "since", sinceChoices),
		User:  page.Single(q, "user"), States: stateChoices, Deliveries: deliveryChoices, Times: sinceChoices,
	}
	d.Filtered = d.State+d.Delivery+d.User+d.Since != ""
	cursor := page.Single(q, "cursor")
	list, err := h.List.List(ctx, h.sessionQuery(v.Account.ID, d, cursor))
	switch {
	case errors.Is(err, lists.ErrBadCursor):
		page.SeeOther(w, h.Prefix+paths.Sessions)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	d.Sessions, d.Back = list.Sessions, list.Back
	filters := []string{"state", d.State, "delivery", d.Delivery, "user", d.User, "since", d.Since}
	if list.Next != "" {
		d.Older = h.Prefix + paths.Sessions + "?" + form.Query(append(filters, "cursor", list.Next)...)
	}
	if cursor != "" {
		d.Newest = h.Prefix + paths.Sessions + "?" + form.Query(filters...)
	}
	h.Draw(w, site.View{
		Page: "sessions", Title: "Sessions", Nav: "sessions", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
	})
}

func (h sessionPages) sessionQuery(account string, d sessionsData, cursor string) lists.Query {
	q := lists.Query{Account: account, PlatformUserID: d.User, Cursor: cursor, Limit: listLimit}
	if d.State != "" {
		q.States = []sessions.State{sessions.State(d.State)}
	}
	if d.Delivery != "" {
		q.Deliveries = []facts.DeliveryState{facts.DeliveryState(d.Delivery)}
	}
	if since, err := time.ParseDuration(d.Since); err == nil {
		q.Since = h.Now().Add(-since)
	}
	return q
}
