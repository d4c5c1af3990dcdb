package dashboard_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/sessions"
	"verifyd/sessions/lists"
)

// The field of every page leads to the session that it names, and otherwise to a list whose address can be
// shared. A token is in no address.
func TestSessionsAreFoundFromEveryPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a, other := r.account("Harbor Guild"), r.account("Lake Guild")
	if _, _, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID,
		account.KeyOptions{Name: "Night bot"}); err != nil {
		t.Fatal(err)
	}
	r.until("the key", func() bool { return len(r.mirror.Keys(a.ID)) == 1 })
	made, token, err := r.store.Create(t.Context(), sessions.Request{
		Account: a.ID, Key: r.mirror.Keys(a.ID)[0].ID, Platform: "matrix", PlatformUserID: "captain",
		GuildID: "quay", CallbackURL: "https://hooks.example.com/verified",
	})
	if err != nil {
		t.Fatal(err)
	}
	s := r.session(a)
	foreign, foreignToken, err := r.store.Create(t.Context(), sessions.Request{
		Account: other.ID, Platform: "discord", PlatformUserID: "sailor_1",
		CallbackURL: "https://hooks.example.com/verified",
	})
	if err != nil {
		t.Fatal(err)
	}
	b := r.as("vera")
	b.post("/dashboard/account", "to", a.ID)
	for _, path := range []string{"/dashboard/sessions", "/dashboard/keys", "/dashboard/members"} {
		if body := b.Get(path).Body; !strings.Contains(body, `method="post" action="/dashboard/search"`) {
			t.Errorf("%s has no search field", path)
		}
	}
	find := func(text string) answer { return b.post("/dashboard/search", "account", a.ID, "q", text) }
	page := "/dashboard/sessions/" + string(made.ID)
	for _, held := range []string{
		string(made.ID), token.Reveal(), "cb_" + string(made.ID), "  " + token.Reveal() + "\n",
	} {
		if to := b.To(find(held)); !strings.HasSuffix(to, page) {
			t.Errorf("a session leads to %s", strings.ReplaceAll(to, token.Reveal(), "its token"))
		}
	}
	for held, user := range map[string]string{"CAPT": "captain", "quay": "captain", "night": "captain",
		"sailor_": "sailor_42", string(s.ID)[:8] + "x": "Nothing found",
		string(foreign.ID): "Nothing found"} {
		shown := b.Follow(find(held))
		shown.Want(t, http.StatusOK, user)
		if !strings.Contains(shown.At, "q="+held) || !strings.Contains(shown.Body, `value="`+held+`"`) {
			t.Errorf("the list is at %s", shown.At)
		}
		if strings.Contains(shown.Body, "sailor_1<") {
			t.Errorf("%s finds another account's", held)
		}
	}
	nobody := find(foreignToken.Reveal())
	nobody.Want(t, http.StatusOK, "Nothing found", "compared with the tokens")
	nobody.Lacks(t, foreignToken.Reveal())
	if nobody.Header.Get("Location") != "" {
		t.Errorf("a token leads to an address")
	}
	b.Follow(find("")).Want(t, http.StatusOK, "captain", "sailor_42")
}

// Each filter is in the address, and kept by the links of the page.
func TestSessionsAreFiltered(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	name := func(user, platform, group string, test bool) func(*sessions.Request) {
		return func(q *sessions.Request) {
			q.PlatformUserID, q.Platform, q.GuildID, q.Test = user, platform, group, test
		}
	}
	won := r.session(a, name("winner", "matrix", "quay", false))
	lost := r.session(a, name("loser", "discord", "quay", false))
	r.session(a, name("=tester", "discord", "lake", true))
	r.ended(won, sessions.Outcome{State: sessions.Verified, Network: "example"})
	r.ended(lost, sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined, Network: "example"})
	b := r.as("vera")
	for query, users := range map[string][]string{
		"platform=matrix": {"winner"}, "group=quay": {"winner", "loser"}, "mode=test": {"=tester"},
		"mode=live&reason=declined": {"loser"}, "network=example&state=verified": {"winner"},
		"binding=link": {"winner", "loser", "=tester"}, "binding=code": nil, "to=2001-01-01": nil,
		"from=2001-01-01": {"winner", "loser", "=tester"}, "q=los&mode=test": nil, "q=los": {"loser"},
		"mode=neither": {"winner", "loser", "=tester"},
	} {
		shown := b.Get("/dashboard/sessions?" + query)
		for _, user := range []string{"winner", "loser", "=tester"} {
			want := false
			for _, u := range users {
				want = want || u == user
			}
			if strings.Contains(shown.Body, strings.TrimPrefix(user, "=")+"<") != want {
				t.Errorf("%s: %s is there: %t", query, user, !want)
			}
		}
		if why := `>failed</span> <span class="soft small">declined</span>`; query == "q=los" &&
			!strings.Contains(shown.Body, why) {
			t.Errorf("the reason is not shown: %s", shown.Body)
		}
		if len(users) == 0 {
			shown.Want(t, http.StatusOK, "Nothing found", "You asked for sessions",
				"All stored sessions")
		}
	}
	b.Get("/dashboard/sessions?q=los&mode=test").Want(t, http.StatusOK, "“los” was compared with",
		"You asked for sessions of test keys.")
	b.Get("/dashboard/sessions?to=2001-11-20&platform=nix").Want(t, http.StatusOK,
		"You asked for sessions on the platform “nix”, until 20 November 2001.")

	list := b.Get("/dashboard/sessions?mode=test&platform=discord").Body
	to := strings.ReplaceAll(between(t, list, `href="/dashboard/export?format=csv`, `"`), "&amp;", "&")
	file := b.Get("/dashboard/export?format=csv" + to)
	rows, err := csv.NewReader(strings.NewReader(file.Body)).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][3] != "'=tester" ||
		!strings.Contains(file.Header.Get("Content-Disposition"), "sessions.csv") {
		t.Errorf("the export has %v, %v, %v", rows, err, file.Header)
	}
	b.Get("/dashboard/export?format=sheet"+to).Want(t, http.StatusOK, "\ufeffid,test,", "'=tester")
	lines := strings.Split(strings.TrimSpace(b.Get("/dashboard/export?format=jsonl").Body), "\n")
	var first map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || len(lines) != 3 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	b.Get("/dashboard/export?format=xls").Want(t, http.StatusBadRequest)
}

// early is a Lister whose search has ended before it has read all sessions.
type early struct{}

func (early) List(context.Context, lists.Query) (lists.Page, error) {
	return lists.Page{Next: "cursor", Reading: &lists.Progress{
		Read: 41_000, Of: 100_000, Left: 2100 * time.Millisecond,
	}}, nil
}

// A list whose search ended early says how many sessions it has searched, and how to go on.
func TestListSaysHowMuchIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{list: early{}})
	r.account("Harbor Guild")
	body := r.as("vera").Get("/dashboard/sessions?q=sailor").Body
	for _, want := range []string{
		"41,000 of 100,000 sessions are searched so far, the rest takes about 3 s.", "Search again</a>",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
