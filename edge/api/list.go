package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/export"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/proof"
)

const (
	// defaultListed is how many sessions a page of the list has if the request asks for no number; maxListed
	// is a few hundred reads of the store.
	defaultListed = 20
	maxListed     = 100
	// retryListing is the Retry-After of a list beyond the bound: most take far less.
	retryListing = time.Second
)

// Lister lists sessions; a *store.Store. Its errors are lists.ErrBadCursor and natsconf's.
type Lister interface {
	List(ctx context.Context, q lists.Query) (lists.Page, error)
}

// listDoc is a page of an account's sessions, newest first.
type listDoc struct {
	Sessions []export.Session `json:"sessions"` // never null
	Next     *string          `json:"next"`     // the cursor of the next page; null if there is none
	// the creation instant of the oldest session examined; null if none was
	BackTo *string `json:"back_to"`
	// set if the search ended early, since the account's sessions are still being read; null otherwise
	Reading *readingDoc `json:"reading"`
}

// readingDoc is how many of an account's sessions have been read.
type readingDoc struct {
	Read    int64 `json:"read"`
	Of      int64 `json:"of"`
	Seconds *int  `json:"seconds"` // about how long the rest takes; null if that is not known
}

// listings are the lists of sessions.
type listings struct{ *api }

// GET /sessions lists the sessions of the key's account: those that live keys started for a live key, those
// that test keys started for a test key. If CSV or JSON lines are accepted, it writes all of them.
func (a listings) answer(w http.ResponseWriter, r *http.Request) {
	who, p := a.authorize(r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	w.Header().Add("Vary", "Accept")
	format, all := export.Accepted(r.Header.Values("Accept"))
	q, p := a.listQuery(r.URL.RawQuery, who, all)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	if all {
		a.exportSessions(w, r, q, format)
		return
	}
	page, p := a.inSlot(r.Context(), q)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	web.WriteJSON(w, http.StatusOK, "application/json", listed(page))
}

// inSlot reads one page in a slot, which is free again before the answer is written: its client may be slow.
func (a listings) inSlot(ctx context.Context, q lists.Query) (lists.Page, *problem.Problem) {
	release, err := a.listing.Acquire(ofOwner(ctx))
	if err != nil {
		return lists.Page{}, noListing(err)
	}
	defer release()
	page, err := a.list(ctx, q)
	if err != nil {
		return page, listProblem(err)
	}
	return page, nil
}

// list reads one page.
func (a listings) list(ctx context.Context, q lists.Query) (lists.Page, error) {
	ctx, done, err := a.begin(ctx)
	if err != nil {
		return lists.Page{}, err
	}
	defer done()
	return a.Lister.List(ctx, q)
}

// exportSessions writes a list to its end, page by page, as long as the key is valid.
func (a listings) exportSessions(w http.ResponseWriter, r *http.Request, q lists.Query, f export.Format) {
	var ended *problem.Problem
	err := a.exports.Write(w, r, export.Export{
		Format: f, Query: q, List: a.list, Who: ofOwner(r.Context()),
		May: func() error {
			if _, ended = a.authorize(r); ended != nil {
				return errKeyEnded
			}
			return nil
		},
	})
	switch {
	case err == nil:
	case ended != nil:
		web.WriteProblem(w, r, ended)
	case errors.Is(err, export.ErrTooMany):
		web.WriteProblem(w, r, noListing(err))
	default:
		web.WriteProblem(w, r, listProblem(err))
	}
}

var errKeyEnded = errors.New("the key ended while its sessions were exported")

func listProblem(err error) *problem.Problem {
	if errors.Is(err, lists.ErrBadCursor) {
		return badParameter("cursor", "it must be the next of an earlier answer")
	}
	return storeProblem(err)
}

func noListing(err error) *problem.Problem {
	if _, ok := errors.AsType[*places.ShareError](err); ok {
		return &problem.Problem{
			Code: problem.CodeTooManyLists, Detail: "This account, with others of its owner, makes too " +
				"many lists at once; send list requests one at a time.", RetryAfter: retryListing,
		}
	}
	return &problem.Problem{
		Code: problem.CodeUnavailable, Detail: "Too many lists are being made at this moment; try again.",
		RetryAfter: retryListing, Cause: err,
	}
}

func listed(page lists.Page) listDoc {
	doc := listDoc{Sessions: []export.Session{}, BackTo: export.TimestampOrNull(page.Back)}
	for _, v := range page.Sessions {
		doc.Sessions = append(doc.Sessions, export.Document(v))
	}
	if page.Next != "" {
		doc.Next = &page.Next
	}
	if p := page.Reading; p != nil {
		doc.Reading = &readingDoc{Read: p.Read, Of: p.Of}
		if p.Left > 0 {
			doc.Reading.Seconds = new(p.Seconds())
		}
	}
	return doc
}

// The values that filters of the list may have.
var (
	listedStates = []sessions.State{
		sessions.Pending, sessions.Verified, sessions.Failed, sessions.Canceled, sessions.Expired,
	}
	listedReasons = []sessions.Reason{
		sessions.Declined, sessions.Refused, sessions.Unconfirmed, sessions.CanceledReason,
		sessions.ExpiredReason, sessions.UnreadableReason, sessions.LostReason,
	}
	listedEnds = []facts.DeliveryState{
		facts.DeliveryNone, facts.DeliveryDue, facts.DeliveryClaimed, facts.DeliveryDelivered,
		facts.DeliveryRejected,
		facts.DeliveryUnknown, facts.DeliveryUndeliverable,
	}
)

// listQuery reads the parameters of the list. A name that it does not know is a fault: a misspelt filter
// would list everything.
func (a listings) listQuery(raw string, who account.Principal, all bool) (lists.Query, *problem.Problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return lists.Query{},
			badParameter("", "the query is not of the form name=value&name=value, percent-encoded")
	}
	p := parameters{request.Parameters{Values: values}}
	q := lists.Query{
		Account: who.Account.ID, Test: &who.Key.Test,
		PlatformUserID: p.text("platform_user_id"),
		Platform:       p.text("platform"),
		Group:          p.text("group"),
		Networks:       oneOf(&p, "network", a.Networks),
		Reasons:        oneOf(&p, "reason", listedReasons),
		Levels:         oneOf(&p, "binding", proof.Levels),
		States:         oneOf(&p, "state", listedStates),
		Deliveries:     oneOf(&p, "delivery", listedEnds),
		Since:          p.instant("since"),
		Until:          p.instant("until"),
		Limit:          p.Number("limit", defaultListed, maxListed),
		Cursor:         p.Single("cursor"),
	}
	q.ID, q.Text = lists.Seek(p.text("q"))
	if len(p.Values["q"]) > 0 && q.ID == "" && q.Text == "" && p.Values["q"][0] != "" {
		p.Faultf("q", "it is only white space; give something that you know of a session")
	}
	keys := a.Keys.Keys(who.Account.ID)
	p.key(&q, keys)
	p.mode(who.Key.Test)
	p.days(&q)
	if !q.Until.IsZero() && q.Until.Before(q.Since) {
		p.Faultf("until", "it is before since")
	}
	for _, name := range []string{"limit", "cursor"} {
		if _, given := values[name]; given && all {
			p.Faultf(name, "an export has no pages; leave it out, or accept application/json")
		}
	}
	return q, p.Problem()
}

// key reads the key that started the sessions, by its id or its name, and which keys the text may name.
func (p *parameters) key(q *lists.Query, keys []account.Key) {
	given := p.Single("key")
	var names []string
	for _, k := range keys {
		if k.NameBegins(q.Text) {
			q.Named = append(q.Named, k.ID)
		}
		if k.ID == given || given != "" && strings.EqualFold(k.Name, strings.TrimSpace(given)) {
			q.Keys = append(q.Keys, k.ID)
		}
		if name := cmp.Or(k.Name, k.ID); len(names) < maxNamedKeys && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if given != "" && len(q.Keys) == 0 {
		p.Faultf("key", "it must be the id or the name of a key of this account, as are %s",
			strings.Join(names, ", "))
	}
}

// maxNamedKeys is how many keys an answer names.
const maxNamedKeys = 20

// mode reads whether live or test sessions are meant. A key sees only those of its own kind.
func (p *parameters) mode(test bool) {
	own := "live"
	if test {
		own = "test"
	}
	switch given := p.Single("mode"); given {
	case "", own:
	case "live", "test":
		p.Faultf("mode", "this is a %s key, which sees only %s sessions; use a %s key", own, own, given)
	default:
		p.Faultf("mode", "it must be one of live, test")
	}
}

// days reads the first and the last day, in UTC, of the sessions' start.
func (p *parameters) days(q *lists.Query) {
	from, to := p.day("from"), p.day("to")
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		p.Faultf("to", "it is before from")
	}
	if from.After(q.Since) {
		q.Since = from
	}
	if end := to.AddDate(0, 0, 1); !to.IsZero() && (q.Until.IsZero() || end.Before(q.Until)) {
		q.Until = end
	}
}

func (p *parameters) day(name string) time.Time {
	s := p.Single(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		p.Faultf(name, "it is not a day; write it as in 2026-11-21; instants go into since and until")
	}
	return t
}

// parameters are those of the integrators' queries.
type parameters struct{ request.Parameters }

func (p *parameters) text(name string) string {
	s := p.Single(name)
	if len(s) > MaxFieldBytes {
		p.Faultf(name, "it has %d bytes; it may have up to %d", len(s), MaxFieldBytes)
	}
	return s
}

func (p *parameters) instant(name string) time.Time {
	s := p.Single(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		p.Faultf(name, "it is not an instant; write it as in 2026-11-21T12:03:11Z, with a + percent-encoded")
	}
	return t
}

// oneOf returns a parameter that may occur several times, each time with one of the values.
func oneOf[T ~string](p *parameters, name string, known []T) []T {
	p.Known = append(p.Known, name)
	var given []T
	for _, v := range p.Values[name] {
		if !slices.Contains(known, T(v)) {
			p.Faultf(name, "it must be one of %s; for several, send it several times", join(known))
			return nil
		}
		given = append(given, T(v))
	}
	return given
}

func join[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}
