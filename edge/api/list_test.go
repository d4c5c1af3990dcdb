package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/lists"
)

func (s *service) list(t *testing.T, key, query string) answer {
	t.Helper()
	return s.do(t, http.MethodGet, "/sessions"+query, "", "Authorization", "Bearer "+key)
}

// ids lists with a key and returns the ids, in order.
func (s *service) ids(t *testing.T, key, query string) (ids []string, next string) {
	t.Helper()
	doc := parse[listDoc](t, s.list(t, key, query), http.StatusOK)
	for _, d := range doc.Sessions {
		ids = append(ids, string(d.ID))
	}
	if doc.Next != nil {
		next = *doc.Next
	}
	return ids, next
}

func (s *service) startAs(t *testing.T, key, user string) string {
	t.Helper()
	a := s.do(t, http.MethodPost, pathInit, strings.Replace(goodBody, "u-1", user, 1), "Authorization",
		"Bearer "+key, "Content-Type", "application/json")
	return idOf(t, parse[started](t, a, http.StatusOK).Session)
}

// early is a Lister whose search has ended before it has read all sessions.
type early struct{ left time.Duration }

func (e early) List(context.Context, lists.Query) (lists.Page, error) {
	return lists.Page{Next: "cursor", Reading: &lists.Progress{Read: 41_000, Of: 100_000, Left: e.left}}, nil
}

// A search that ended early says how many sessions have been read, and how long the rest takes if that is
// known.
func TestListSaysHowMuchIsRead(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]string{
		2100 * time.Millisecond: `{"read":41000,"of":100000,"seconds":3}`,
		0:                       `{"read":41000,"of":100000,"seconds":null}`,
	} {
		s := newService(t, func(c *Config) { c.Lister = early{left} })
		if a := s.list(t, acmeKey, "?q=sailor"); !strings.Contains(a.body, `"reading":`+want) {
			t.Errorf("%s, want reading %s", a.body, want)
		}
	}
}

func TestListOfTheAccount(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	if a := s.list(t, acmeKey, ""); a.body != `{"sessions":[],"next":null,"back_to":null,"reading":null}` {
		t.Errorf("an empty list = %s", a.body)
	}
	one := s.startAs(t, acmeKey, "sailor/1&x=ü")
	s.clock.advance(time.Minute)
	s.startAs(t, otherKey, "sailor/1&x=ü")
	between := s.clock.now()
	two := s.startAs(t, slowKey, "u-2") // another key of the account
	test := s.startAs(t, acmeTest, "u-2")
	s.clock.advance(time.Minute)
	three := s.startAs(t, acmeKey, "u-3")
	s.cancel(t, three, acmeKey)

	for query, want := range map[string][]string{
		"": {three, two, one},
		"?platform_user_id=" + url.QueryEscape("sailor/1&x=ü"): {one},
		"?state=canceled": {three},
		"?state=pending&state=canceled&delivery=none": {three, two, one},
		"?delivery=due": nil,
		"?since=" + between.UTC().Format(time.RFC3339):       {three, two},
		"?until=" + web.Timestamp(between.Add(-time.Second)): {one},
		"?limit=100": {three, two, one},
		"?state=pending&since=" + web.Timestamp(between) + "&platform_user_id=u-2": {two},
	} {
		if got, next := s.ids(t, acmeKey, query); !slices.Equal(got, want) || next != "" {
			t.Errorf("%s: %v, next %q; want %v", query, got, next, want)
		}
	}
	if got, _ := s.ids(t, acmeTest, ""); !slices.Equal(got, []string{test}) {
		t.Errorf("with a test key: %v, want %v", got, test)
	}
	got, next := s.ids(t, acmeKey, "?limit=2")
	if !slices.Equal(got, []string{three, two}) || next == "" {
		t.Fatalf("first page: %v, next %q", got, next)
	}
	s.startAs(t, acmeKey, "u-4") // on no later page
	if got, next = s.ids(t, acmeKey, "?limit=2&cursor="+next); !slices.Equal(got, []string{one}) ||
		next != "" {
		t.Errorf("second page: %v, next %q", got, next)
	}
}

func TestListedSessionIsAsRead(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	s.complete(t, token, sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined})
	read := s.get(t, token, acmeKey).body
	if got := s.list(t, acmeKey, "").body; !strings.HasPrefix(got, `{"sessions":[`+read+`],`) {
		t.Errorf("listed %s\nread %s", got, read)
	}
}

func TestBadLists(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for query, field := range map[string]string{
		"?limit=0": "limit", "?limit=101": "limit", "?limit=x": "limit", "?limit=1&limit=2": "limit",
		"?limit=":     "limit",
		"?state=done": "state", "?state=": "state", "?delivery=sent": "delivery", "?since=yesterday": "since",
		"?until=2026-11-21": "until",
		"?since=2026-11-21T00:00:00Z&until=2026-11-20T00:00:00Z": "until", "?cursor=nonsense": "cursor",
		"?cursor=":           "cursor",
		"?plaform_user_id=x": "plaform_user_id", "?%ff=1": "",
		"?platform_user_id=" + strings.Repeat("x", 1025): "platform_user_id", "?a=%zz": "",
	} {
		p := wantProblem(t, s.list(t, acmeKey, query), problem.CodeInvalidRequest)
		if len(p.Errors) != 1 || p.Errors[0].Field != field || p.Errors[0].Code != problem.FaultParameter {
			t.Errorf("%s: errors = %+v", query, p.Errors)
		}
	}
	wantProblem(t, s.list(t, "vfy_nobody", "?limit=0"), problem.CodeKeyInvalid)
	wantProblem(t, s.do(t, http.MethodPost, "/sessions", "", "Authorization", "Bearer "+acmeKey),
		problem.CodeMethodNotAllowed)
}

func TestTestAndLiveKeysDoNotMeet(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	live, test := s.startAs(t, acmeKey, "u"), s.startAs(t, acmeTest, "u")
	for session, key := range map[string]string{live: acmeTest, test: acmeKey} {
		wantProblem(t, s.get(t, session, key), problem.CodeSessionNotFound)
		wantProblem(t, s.cancel(t, session, key), problem.CodeSessionNotFound)
		wantProblem(t, s.do(t, http.MethodPost, "/sessions/"+session+"/resend", "", "Authorization",
			"Bearer "+key), problem.CodeSessionNotFound)
	}
	if !parse[sessionDoc](t, s.get(t, test, acmeTest), http.StatusOK).Test ||
		parse[sessionDoc](t, s.get(t, live, acmeKey), http.StatusOK).Test {
		t.Error("test is marked wrongly")
	}
}
