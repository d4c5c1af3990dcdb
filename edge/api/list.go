package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/problem/fault"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

const (
	// defaultListed is how many sessions a page of the list has where nobody asks for more or fewer;
	// maxListed is a few hundred reads of the store.
	defaultListed = 20
	maxListed     = 100
	// defaultMaxListing bounds the lists that are made at once: each may look through the store for
	// StoreTimeout, and all edges' do so at the same leader, beside what completes sessions.
	defaultMaxListing = 32
	// retryListing is the Retry-After of a list beyond the bound: most take far less.
	retryListing = time.Second
)

// Lister lists sessions; a *store.Store. Its errors are lists.ErrBadCursor and natsconf's.
type Lister interface {
	List(ctx context.Context, q lists.Query) (lists.Page, error)
}

// listDoc is a page of an account's sessions, newest first.
type listDoc struct {
	Sessions []sessionDoc `json:"sessions"` // never null
	Next     *string      `json:"next"`     // the cursor of the next page; null where there is none
	// the creation instant of the oldest session looked at; null where none was
	BackTo *string `json:"back_to"`
}

// GET /sessions lists the sessions of the key's account: those that live keys started for a live key, those
// that test keys started for a test key.
func (a *api) listSessions(w http.ResponseWriter, r *http.Request) {
	who, p := a.authorize(r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	q, p := listQuery(r.URL.RawQuery)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	release, err := a.listing.Acquire(accountShare(who.Account.ID, a.MaxListing))
	if err != nil {
		web.WriteProblem(w, r, noListing(err))
		return
	}
	defer release()
	q.Account, q.Test = who.Account.ID, &who.Key.Test
	ctx, cancel := context.WithTimeout(r.Context(), a.StoreTimeout)
	defer cancel()
	page, err := a.Lister.List(ctx, q)
	switch {
	case errors.Is(err, lists.ErrBadCursor):
		web.WriteProblem(w, r, badParameter("cursor", "it must be the next of an earlier answer"))
	case err != nil:
		web.WriteProblem(w, r, storeProblem(err))
	default:
		web.WriteJSON(w, http.StatusOK, "application/json", listed(page))
	}
}

func noListing(err error) *problem.Problem {
	if _, ok := errors.AsType[*limit.ShareError](err); ok {
		return &problem.Problem{
			Code: problem.CodeTooManyLists, Detail: "This account makes too many lists at once; send " +
				"list requests one at a time.", RetryAfter: retryListing,
		}
	}
	return &problem.Problem{
		Code: problem.CodeUnavailable, Detail: "Too many lists are being made at this moment; try again.",
		RetryAfter: retryListing, Cause: err,
	}
}

func listed(page lists.Page) listDoc {
	doc := listDoc{Sessions: []sessionDoc{}, BackTo: timestampOrNull(page.Back)}
	for _, v := range page.Sessions {
		doc.Sessions = append(doc.Sessions, document(v))
	}
	if page.Next != "" {
		doc.Next = &page.Next
	}
	return doc
}

// The values that filters of the list may have.
var (
	listedStates = []sessions.State{
		sessions.Pending, sessions.Verified, sessions.Failed, sessions.Canceled, sessions.Expired,
	}
	listedEnds = []facts.DeliveryState{
		facts.DeliveryNone, facts.DeliveryDue, facts.DeliveryClaimed, facts.DeliveryDelivered,
		facts.DeliveryRejected,
		facts.DeliveryUnknown, facts.DeliveryUndeliverable,
	}
)

// listQuery reads the parameters of the list. A name that it does not know is a fault: a filter that is
// misspelt would list everything.
func listQuery(raw string) (lists.Query, *problem.Problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return lists.Query{},
			badParameter("", "the query is not of the form name=value&name=value, percent-encoded")
	}
	p := parameters{values: values}
	q := lists.Query{
		PlatformUserID: p.text("platform_user_id"),
		States:         oneOf(&p, "state", listedStates),
		Deliveries:     oneOf(&p, "delivery", listedEnds),
		Since:          p.instant("since"),
		Until:          p.instant("until"),
		Limit:          p.number("limit", defaultListed, maxListed),
		Cursor:         p.single("cursor"),
	}
	if !q.Until.IsZero() && q.Until.Before(q.Since) {
		p.faultf("until", "it lies before since")
	}
	return q, p.problem()
}

// parameters reads a query's parameters, and gathers what is wrong with them.
type parameters struct {
	values url.Values
	known  []string
	faults []problem.Fault
}

func (p *parameters) faultf(name, format string, args ...any) {
	p.faults = append(p.faults, problem.Fault{
		Field: name, Code: fault.Parameter, Detail: fmt.Sprintf(format, args...),
	})
}

// problem returns what is wrong, names that nobody asked for included.
func (p *parameters) problem() *problem.Problem {
	for name := range p.values {
		if !slices.Contains(p.known, name) {
			shown := name
			if len(shown) > maxShownName {
				shown = ""
			}
			p.faultf(shown, "there is no such parameter; there are %s", strings.Join(p.known, ", "))
		}
	}
	if len(p.faults) == 0 {
		return nil
	}
	return &problem.Problem{Code: problem.CodeInvalidRequest, Detail: summary(p.faults), Faults: p.faults}
}

// single returns a parameter that may be there once; empty where it is not.
func (p *parameters) single(name string) string {
	p.known = append(p.known, name)
	values, given := p.values[name]
	switch {
	case !given:
		return ""
	case len(values) > 1:
		p.faultf(name, "it is there %d times; send it once", len(values))
	case values[0] == "":
		p.faultf(name, "it is empty; leave it out, or give it a value")
	}
	return values[0]
}

func (p *parameters) text(name string) string {
	s := p.single(name)
	if len(s) > MaxFieldBytes {
		p.faultf(name, "it has %d bytes; it may have up to %d", len(s), MaxFieldBytes)
	}
	return s
}

func (p *parameters) instant(name string) time.Time {
	s := p.single(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		p.faultf(name, "it is not an instant; write it as in 2026-11-21T12:03:11Z, with a + percent-encoded")
	}
	return t
}

func (p *parameters) number(name string, standard, most int) int {
	s := p.single(name)
	if s == "" {
		return standard
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n < 1 || n > uint64(most) { //nolint:gosec // a constant
		p.faultf(name, "it must be a whole number from 1 to %d", most)
	}
	return int(n)
}

// oneOf returns a parameter that may be there several times, each time with one of the values.
func oneOf[T ~string](p *parameters, name string, known []T) []T {
	p.known = append(p.known, name)
	var given []T
	for _, v := range p.values[name] {
		if !slices.Contains(known, T(v)) {
			p.faultf(name, "it must be one of %s; for several, send it several times", join(known))
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
