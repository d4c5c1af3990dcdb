package integrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/dashboard/site"
	"verifyd/edge/limit"
	"verifyd/edge/page"
	"verifyd/sessions"
)

// sessionPages are those about sessions.
type sessionPages struct {
	deps

	again   *limit.Rates  // of callbacks that are sent again, by account
	streams *limit.Places // of the pages that are kept up to date, by visitor
}

// Lister lists an account's sessions; a *sessions.Store.
type Lister interface {
	List(ctx context.Context, q sessions.Query) (sessions.Page, error)
}

// listLimit is a page of the list: what somebody looks through at once.
const listLimit = 25

// The filters. What is not among them counts as none.
var (
	stateChoices = site.Choices(
		"pending", "pending", "verified", "verified", "failed", "failed",
		"canceled", "canceled", "expired", "expired",
	)
	deliveryChoices = site.Choices(
		"delivered", "delivered", "rejected", "rejected", "unknown", "unknown", "undeliverable",
		"undeliverable",
		"due", "due", "claimed", "claimed", "none", "none",
	)
	sinceChoices = site.Choices("1h", "the last hour", "24h", "the last 24 hours", "72h", "the last 3 days")
)

type sessionsData struct {
	Sessions                     []sessions.View
	State, Delivery, User, Since string
	States, Deliveries, Times    []site.Choice
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
		State: site.Choose(q, "state", stateChoices), Delivery: site.Choose(q, "delivery", deliveryChoices),
		Since: site.Choose(q, "since", sinceChoices),
		User:  page.Single(q, "user"), States: stateChoices, Deliveries: deliveryChoices, Times: sinceChoices,
	}
	d.Filtered = d.State+d.Delivery+d.User+d.Since != ""
	cursor := page.Single(q, "cursor")
	list, err := h.List.List(ctx, h.sessionQuery(v.Account.ID, d, cursor))
	switch {
	case errors.Is(err, sessions.ErrBadCursor):
		page.SeeOther(w, h.Prefix+site.PathSessions)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	d.Sessions, d.Back = list.Sessions, list.Back
	filters := []string{"state", d.State, "delivery", d.Delivery, "user", d.User, "since", d.Since}
	if list.Next != "" {
		d.Older = h.Prefix + site.PathSessions + "?" + site.Query(append(filters, "cursor", list.Next)...)
	}
	if cursor != "" {
		d.Newest = h.Prefix + site.PathSessions + "?" + site.Query(filters...)
	}
	h.Draw(w, site.View{
		Page: "sessions", Title: "Sessions", Nav: "sessions", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
	})
}

func (h sessionPages) sessionQuery(account string, d sessionsData, cursor string) sessions.Query {
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
