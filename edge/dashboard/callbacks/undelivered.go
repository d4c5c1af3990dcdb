package callbacks

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"verifyd/edge/account/audit"
	"verifyd/edge/dashboard/callbacks/kept"
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

// Which outcomes the list shows, by whether they were marked as seen.
const (
	shownNew  = "new"
	shownSeen = "seen"
	shownAll  = "all"
)

var shownChoices = form.Choices(shownNew, "new", shownSeen, "marked as seen", shownAll, "all")

// endedChoices are the filters by how a delivery ended.
var endedChoices = func() (choices []form.Choice) {
	for _, s := range redrive.Ended() {
		choices = append(choices, form.Choice{Value: string(s), Name: string(s)})
	}
	return choices
}()

// outcomeRow is a session with the state of its outcome.
type outcomeRow struct {
	facts.View

	Host, Why string
	Seen      bool
}

type undeliveredData struct {
	Rows           []outcomeRow
	State, Shown   string // the filters
	States, Showns []form.Choice
	Older, Newest  string // addresses; empty: there is no such page
	Back           time.Time
}

// Filtered reports whether the filters differ from the default, new outcomes.
func (d undeliveredData) Filtered() bool { return d.State != "" || d.Shown != shownNew }

// wants reports whether the filters let an outcome through.
func (d undeliveredData) wants(seen bool) bool {
	return d.Shown == shownAll || seen == (d.Shown == shownSeen)
}

// showUndelivered answers GET /dashboard/callbacks: outcomes that were not delivered, newest session first.
func (h *Handler) showUndelivered(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := context.WithTimeout(r.Context(), site.ListTimeout)
	defer cancel()
	q := r.URL.Query()
	d := undeliveredData{
		State: form.Choose(q, "state", endedChoices), States: endedChoices,
		Shown: form.Choose(q, "shown", shownChoices), Showns: shownChoices,
	}
	if d.Shown == "" {
		d.Shown = shownNew
	}
	cursor := page.Single(q, "cursor")
	var next string
	err := h.InSlot(v, func() (err error) {
		next, err = h.findUndelivered(ctx, v.Account.ID, cursor, &d)
		return err
	})
	switch {
	case errors.Is(err, lists.ErrBadCursor):
		page.SeeOther(w, h.Prefix+paths.Callbacks)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	to := func(cursor string) string {
		return h.Prefix + paths.Callbacks + "?" +
			form.Query("state", d.State, "shown", d.Shown, "cursor", cursor)
	}
	if next != "" {
		d.Older = to(next)
	}
	if cursor != "" {
		d.Newest = to("")
	}
	h.Draw(w, site.View{
		Page: "callbacks", Title: "Callbacks", Nav: "callbacks", Visit: &v, Flash: h.TakeFlash(w, r),
		Data: d,
	})
}

// findUndelivered looks for as many outcomes as one redrive takes, and returns the cursor for the rest. Marks
// are known here and not in the lists, so that several pages of a list may be needed.
func (h *Handler) findUndelivered(ctx context.Context, account, cursor string,
	d *undeliveredData) (next string, err error) {
	seen, err := h.Kept.Seen(ctx, account)
	if err != nil {
		return "", err
	}
	q := lists.Query{Account: account, Deliveries: redrive.Ended(), Cursor: cursor, Limit: redrive.Max}
	if d.State != "" {
		q.Deliveries = []facts.DeliveryState{facts.DeliveryState(d.State)}
	}
	for {
		list, err := h.Sessions.List(ctx, q)
		if err != nil && ctx.Err() != nil && !d.Back.IsZero() {
			return q.Cursor, nil // the time is up; what was found so far is the answer
		}
		if err != nil {
			return "", err
		}
		for _, view := range list.Sessions {
			if was := seen[kept.EndOf(view)]; d.wants(was) {
				d.Rows = append(d.Rows, newRow(view, was))
			}
		}
		if !list.Back.IsZero() {
			d.Back = list.Back
		}
		if list.Next == "" || len(d.Rows) == redrive.Max || ctx.Err() != nil {
			return list.Next, nil //nolint:nilerr // when the time is up, the next page goes on
		}
		q.Cursor, q.Limit = list.Next, redrive.Max-len(d.Rows)
	}
}

func newRow(v facts.View, seen bool) outcomeRow {
	row := outcomeRow{View: v, Host: timeline.Host(v.Session), Seen: seen}
	for _, a := range slices.Backward(v.Delivery.Attempts) {
		if a.Result != nil {
			row.Why = a.Result.Detail
			break
		}
	}
	return row
}

// chosen reads the sessions that a form of the list names: those that were ticked, or all of the page. It
// answers the request if there are none, or if they are not what our page sends.
func (h *Handler) chosen(w http.ResponseWriter, r *http.Request, v site.Visit) (ids []sessions.ID, ok bool) {
	field := "session"
	if page.Single(r.PostForm, "which") == "all" {
		field = "shown"
	}
	ids, ok = redrive.ParseIDs(r.PostForm[field])
	switch {
	case !ok:
		h.DrawProblem(w, &v, site.ProblemMalformed)
		return nil, false
	case len(ids) == 0:
		h.Done(w, flashNoneTicked, paths.Callbacks)
		return nil, false
	}
	return ids, true
}

// undelivered returns those of the sessions that are the account's, and whose delivery has failed: the page
// may be outdated.
func (h *Handler) undelivered(ctx context.Context, account string, ids []sessions.ID) (found []facts.View,
	err error) {
	for _, id := range ids {
		s, err := h.Sessions.ReadOf(ctx, account, id)
		if errors.Is(err, sessions.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if s.Account == account && slices.Contains(redrive.Ended(), s.Delivery.State) {
			found = append(found, s)
		}
	}
	return found, nil
}

// open returns the chosen sessions whose outcomes are still not delivered, and how many of the chosen no
// longer are. If not ok, the request is answered.
func (h *Handler) open(ctx context.Context, w http.ResponseWriter, r *http.Request,
	v site.Visit) (views []facts.View, gone int, ok bool) {
	ids, ok := h.chosen(w, r, v)
	if !ok {
		return nil, 0, false
	}
	views, err := h.undelivered(ctx, v.Account.ID, ids)
	switch {
	case err != nil:
		h.Fail(w, r, &v, err)
	case len(views) == 0:
		h.Done(w, flashNoneOpen, paths.Callbacks)
	default:
		return views, len(ids) - len(views), true
	}
	return nil, 0, false
}

// sendAgain answers POST /dashboard/callbacks/send-again: one more attempt for as many of the chosen sessions
// as the account's rate allows.
func (h *Handler) sendAgain(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	views, gone, ok := h.open(ctx, w, r, v)
	if !ok {
		return
	}
	now := h.allowed(w, v, len(views))
	if now == 0 {
		h.DrawProblem(w, &v, problemTooMany)
		return
	}
	again := make([]sessions.ID, now)
	for i := range again {
		again[i] = views[i].ID
	}
	done, err := redrive.Send(ctx, h.Sessions, h.Accounts, v.Actor(), again)
	h.Log.Info().Str("account", v.Account.ID).Int("asked", len(done.Asked)).
		Int("skipped", len(done.Skipped)).Msg("callbacks are sent again")
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	run, err := h.Kept.KeepRun(ctx, v.Account.ID, kept.Run{
		At: h.Now().UTC(), By: v.Actor().String(), Asked: done.Asked,
		Skipped: gone + len(done.Skipped), Left: len(views) - now,
	})
	if err != nil { // they are on their way anyway: the list no longer has them
		web.EventFrom(r.Context()).Err = err
		h.Done(w, flashResent, paths.Callbacks)
		return
	}
	page.SeeOther(w, h.Prefix+paths.Of(pathRun, run))
}

// markSeen answers POST /dashboard/callbacks/seen.
func (h *Handler) markSeen(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	views, _, ok := h.open(ctx, w, r, v)
	if !ok {
		return
	}
	ends := make([]kept.End, len(views))
	for i := range ends {
		ends[i] = kept.EndOf(views[i])
	}
	if err := h.Kept.MarkSeen(ctx, v.Account.ID, ends); err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	if err := h.Accounts.Note(ctx, v.Actor(), v.Account.ID, audit.OutcomesSeen, "",
		map[string]string{"count": strconv.Itoa(len(ends))}); err != nil {
		web.EventFrom(r.Context()).Err = err // it is marked anyway
	}
	h.Done(w, flashSeen, paths.Callbacks)
}

// runData is the state of callbacks that were sent again together.
type runData struct {
	kept.Run

	Rows                   []outcomeRow
	Open, Delivered, Ended int // on their way; accepted; ended otherwise
}

// Over is how many have ended.
func (d runData) Over() int { return d.Delivered + d.Ended }

// showRun answers GET /dashboard/callbacks/runs/{run}. The script reloads it while some are on their way.
func (h *Handler) showRun(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	run, err := h.Kept.Run(ctx, v.Account.ID, r.PathValue("run"))
	switch {
	case errors.Is(err, kept.ErrNoRun):
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return
	case err != nil:
		h.Fail(w, r, &v, err)
		return
	}
	d := runData{Run: run}
	for _, id := range run.Asked {
		s, err := h.Sessions.ReadOf(ctx, v.Account.ID, id)
		if errors.Is(err, sessions.ErrNotFound) {
			continue // no longer stored
		}
		if err != nil {
			h.Fail(w, r, &v, err)
			return
		}
		switch s.Delivery.State {
		case facts.DeliveryDue, facts.DeliveryClaimed:
			d.Open++
		case facts.DeliveryDelivered:
			d.Delivered++
		default:
			d.Ended++
		}
		d.Rows = append(d.Rows, newRow(s, false))
	}
	h.Draw(w, site.View{
		Page: "callbackrun", Title: "Sent again", Nav: "callbacks", Visit: &v, Flash: h.TakeFlash(w, r),
		Data: d,
	})
}
