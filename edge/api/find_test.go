package api

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/problem"
	"verifyd/sessions"
)

// startWith starts a session with members of its own, and returns its token and its id.
func (s *service) startWith(t *testing.T, key, platform, user, group string) (token, id string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{
		"platform": platform, "platform_user_id": user, "guild_id": group, "callback_url": callback,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := s.do(t, http.MethodPost, pathInit, string(body), "Authorization", "Bearer "+key, "Content-Type",
		"application/json")
	token = parse[started](t, a, http.StatusOK).Session
	return token, idOf(t, token)
}

// A session is found by any of its references, but not from another account.
func TestSessionsAreFoundByWhatOneHolds(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token, one := s.startWith(t, acmeKey, "discord", "  Sailor_42", "Harbour")
	_, two := s.startWith(t, slowKey, "discord", "sailor_7", "118")
	_, three := s.startWith(t, acmeKey, "matrix", "captain", "118")
	foreign, _ := s.startWith(t, otherKey, "discord", "sailor_1", "Harbour")
	_, kind := s.startWith(t, acmeTest, "discord", "sailor_9", "Harbour")
	for held, want := range map[string][]string{
		one: {one}, token: {one}, "cb_" + one: {one}, " " + one + "\n": {one},
		"SAILOR_": {two, one}, "\tsailor_42\n": {one}, "ilor": nil, "harb": {one}, "118": {three, two},
		"slow": {two}, "Bot": {three, one}, "nobody": nil,
		foreign: nil, idOf(t, foreign): nil, "cb_" + idOf(t, foreign): nil, "acme": nil,
		kind: nil, "cbtest_" + kind: nil,
		strings.Repeat("A", 43): nil, strings.Repeat("a", 32): nil,
	} {
		got, next := s.ids(t, acmeKey, "?q="+url.QueryEscape(held))
		if !slices.Equal(got, want) || next != "" {
			t.Errorf("%q: %v, next %q; want %v", held, got, next, want)
		}
	}
	for query, want := range map[string][]string{
		"platform=discord": {two, one}, "platform=Discord": nil, "group=118": {three, two},
		"platform=matrix&group=118": {three}, "key=key_slow": {two}, "key=slow+ONE": {two},
		"key=bot&q=118": {three}, "mode=live": {three, two, one}, "binding=link": {three, two, one},
		"binding=code": nil, "q=" + one + "&platform=matrix": nil,
	} {
		if got, _ := s.ids(t, acmeKey, "?"+query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if got, _ := s.ids(t, acmeTest, "?mode=test&q="+kind); !slices.Equal(got, []string{kind}) {
		t.Errorf("a test session is %v", got)
	}
}

func TestSessionsAreFilteredByTheirEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	ends := []sessions.Outcome{
		{State: sessions.Verified, Network: "default"},
		{State: sessions.Failed, Reason: sessions.Declined, Network: "default"},
		{State: sessions.Failed, Reason: sessions.Refused, Network: "other"},
		{},
	}
	ids := make([]string, len(ends))
	for i, o := range ends {
		token, id := s.startWith(t, acmeKey, "p", fmt.Sprint("u", i), "")
		if ids[i] = id; o.State != "" {
			s.complete(t, token, o)
		}
	}
	day := func(i int) string { return s.clock.now().UTC().AddDate(0, 0, i).Format(time.DateOnly) }
	all := []string{ids[3], ids[2], ids[1], ids[0]}
	between := "from=" + day(-1) + "&to=" + day(1) // this may run at midnight
	s.clock.advance(sessions.Lifetime)
	for query, want := range map[string][]string{
		"network=default": {ids[1], ids[0]}, "network=other": {ids[2]},
		"network=other&network=default": {ids[2], ids[1], ids[0]},
		"reason=declined":               {ids[1]}, "reason=refused&reason=expired": {ids[3], ids[2]},
		"reason=declined&network=other": nil, "state=failed&network=other": {ids[2]},
		between: all, "to=" + day(-2): nil, "from=" + day(2): nil, "from=" + day(-1): all,
	} {
		for range 2 { // read, and then known
			if got, _ := s.ids(t, acmeKey, "?"+query); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
		}
	}
}

// Errors name what is wrong, with what would be valid.
func TestBadFilters(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for query, want := range map[string][2]string{
		"network=elsewhere": {"network", "default, other"}, "reason=bored": {"reason", "declined, refused"},
		"binding=tight": {"binding", "link, code, account"}, "mode=both": {"mode", "live, test"},
		"mode=test": {"mode", "use a test key"}, "key=nobody": {"key", "Bot"}, "key=": {"key", "empty"},
		"from=21.11.2026": {"from", "2026-11-21"}, "to=2026-13-01": {"to", "not a day"},
		"from=2026-11-22&to=2026-11-21": {"to", "before from"}, "q=%20": {"q", "only white space"},
		"q=": {"q", "empty"}, "q=a&q=b": {"q", "once"}, "platform=": {"platform", "empty"},
		"group=" + strings.Repeat("x", 1025): {"group", "1024"},
	} {
		p := wantProblem(t, s.list(t, acmeKey, "?"+query), problem.CodeInvalidRequest)
		if len(p.Errors) != 1 || p.Errors[0].Field != want[0] ||
			!strings.Contains(p.Errors[0].Detail, want[1]) {
			t.Errorf("%s: errors = %+v", query, p.Errors)
		}
	}
}

// All sessions are returned as lines, and as CSV without spreadsheet formulas.
func TestSessionsAreExported(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	users := []string{"=1+1", "+1", "-1", "@sum", "\tx", "\rx", `quoted "and", cut`, "plain"}
	for i := range 130 { // more than a page
		s.startWith(t, acmeKey, "p", users[i%len(users)], "")
	}
	s.startWith(t, otherKey, "p", "foreign", "")
	get := func(accept, query string) answer {
		return s.do(t, http.MethodGet, pathList+query, "", "Authorization", "Bearer "+acmeKey,
			"Accept", accept)
	}
	a := get("text/csv", "")
	rows, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	if err != nil || len(rows) != 131 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/csv") {
		t.Fatalf("%d rows, %v, %s", len(rows), err, a.header)
	}
	at := slices.Index(rows[0], "platform_user_id")
	for _, row := range rows[1:] {
		if strings.ContainsAny(row[at][:1], "=+-@\t\r") || row[at] == "foreign" {
			t.Errorf("a cell is %q", row[at])
		}
	}
	lines := strings.Split(strings.TrimSpace(get("application/jsonl", "").body), "\n")
	if len(lines) != 130 {
		t.Fatalf("%d lines", len(lines))
	}
	var first sessionDoc
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.PlatformUserID != "+1" {
		t.Errorf("the newest is %+v, %v", first, err)
	}
	if got := get("text/csv", "?q=plain").body; strings.Count(got, "\n") != 17 {
		t.Errorf("filtered: %s", got)
	}
	for _, query := range []string{"?limit=5", "?cursor=x"} {
		wantProblem(t, get("text/csv", query), problem.CodeInvalidRequest)
	}
	parse[listDoc](t, get("text/html, application/json;q=0.9", ""), http.StatusOK)
}

// Wherever a spreadsheet separates cells, none of an export is a formula.
func TestExportHoldsNoFormulas(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	users := []string{"a;=1+1", "a\t=1", `a"=1`, "a\n+1", "a;＝1", ";@sum"}
	for _, user := range users {
		s.startWith(t, acmeKey, "p", user, "")
	}
	a := s.do(t, http.MethodGet, pathList, "", "Authorization", "Bearer "+acmeKey, "Accept", "text/csv")
	cells := strings.FieldsFunc(a.body, func(r rune) bool { return strings.ContainsRune(",;\t\r\n\"", r) })
	if len(cells) < 10*len(users) {
		t.Fatalf("the export is %q", a.body)
	}
	for _, cell := range cells {
		if strings.ContainsAny(cell[:1], "=+-@") || strings.HasPrefix(cell, "＝") {
			t.Errorf("a cell is %q", cell)
		}
	}
}

// A token in a query is in no line of the log.
func TestSearchesAreNotLogged(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token, _ := s.startWith(t, acmeKey, "p", "u", "")
	s.ids(t, acmeKey, "?q="+token)
	s.list(t, acmeKey, "?q="+token+"&limit=none")
	s.stop()
	if log := s.log.String(); strings.Contains(log, token) || len(s.log.requests(t)) < 3 {
		t.Errorf("the log:\n%s", log)
	}
}
