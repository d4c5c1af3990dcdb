package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/chromedp/chromedp"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/chromiumtest"
	sent "verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/callbacks/kept"
	"verifyd/edge/dashboard/form"
	"verifyd/natsconf/fleet"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// longest are values of the maximum length of a field, without a place to break them: Latin, right to left,
// stacked marks, and invisible characters.
func longest(bytes int) map[string]string {
	fill := func(unit string) string { return strings.Repeat(unit, bytes/len(unit)) }
	return map[string]string{
		"latin": fill("Ww"), "rtl": fill("ש"), "marks": fill("e\u0301\u0323\u0308"),
		"hidden": "\u202ea\u200b" + fill("x\u200b")[:bytes/4*4-8],
	}
}

// seen returns the characters of a text that can be seen: subjects have no others.
func seen(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}

// cut returns the first bytes of a text, as whole characters.
func cut(s string, bytes int) string { return strings.ToValidUTF8(s[:bytes], "") }

// Every page that shows what others typed, with the longest that they can type: nothing sticks out to the
// side, and what is cut off is also available in full.
func TestLongValuesStayInside(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	for _, kind := range []string{"latin", "rtl", "marks", "hidden"} {
		r := newRig(t, setup{fresh: true})
		for _, at := range furnishHostile(t, r, kind) {
			setCookies(tab, t, r, at.cookies)
			chromiumtest.Look(tab, t, "hostile-"+kind+"-"+at.name, "", chromedp.Navigate(at.address()),
				chromiumtest.Widths("light")...)
		}
		r.away()
	}
}

type hostilePage struct {
	shownPage

	name string
}

// furnishHostile fills an account, the service and its logs with long values of one kind.
func furnishHostile(t *testing.T, r *rig, kind string) []hostilePage {
	t.Helper()
	value, short := longest(1024)[kind], longest(80)[kind]
	name := longest(124)["latin"]
	if kind != "hidden" { // an account's name is printable
		name = longest(124)[kind]
	}
	a := r.account(name)
	if _, err := r.accounts.AddMember(t.Context(), access.Operator(""), a.ID, account.Member{
		Network: "example", Subject: seen(value), Name: name, Email: name + "@example.com",
		Role: access.RoleOwner,
	}); err != nil {
		t.Fatal(err)
	}
	key := hostileKeys(t, r, a, name)
	session := hostileSessions(t, r, a, key, value, short)
	hostileService(t, r, name)
	r.notices(a, name+" is now viewer of the account.", value)
	olga, root := r.browser(), r.browser()
	in, operator := []*http.Cookie{loginCookie(t, olga.login("olga"))}, []*http.Cookie{
		loginCookie(t, root.login("root")),
	}
	r.account(cut(name, 60) + " 2")
	olga.To(olga.post("/dashboard/account", "to", a.ID))
	at := func(name, path string, cookies []*http.Cookie) hostilePage {
		return hostilePage{shownPage{func() string { return r.base + path }, cookies}, name}
	}
	test := func() string {
		return olga.To(olga.post("/dashboard/callbacks/test", "account", a.ID, "url",
			"https://"+longHost+"/"+strings.Repeat("p", 300)))
	}
	invite, _, err := r.accounts.CreateInvite(t.Context(), access.Operator(name), a.ID, access.RoleViewer,
		name)
	if err != nil {
		t.Fatal(err)
	}
	guest := []*http.Cookie{loginCookie(t, r.browser().login(seen(cut(value, 900))))}
	pages := []hostilePage{
		{shownPage{test, in}, "test"}, at("welcome", "/dashboard/new-account", guest),
		at("invite", "/dashboard/invite?token="+invite, guest),
		at("operator-move", "/dashboard/operator/accounts/"+a.ID+"/move-member?"+
			form.Query("member", address(seen(value)), "q", "2"), operator),
		at("gone", "/dashboard/sessions/"+strings.Repeat("x", 300), in),
	}
	for _, path := range []string{
		"sessions", "sessions/" + session, "keys", "keys/" + key + "/roll", "keys/" + key + "/revoke",
		"signing", "callbacks", "callbacks/test", "usage", "quickstart",
		"members", "notices", "audit", "settings", "settings/delete", "sign-in-page",
	} {
		name := strings.NewReplacer("/", "-", session, "one", key, "one").Replace(path)
		pages = append(pages, at(name, "/dashboard/"+path, in))
	}
	for _, path := range []string{
		"", "/accounts", "/hosts", "/undelivered", "/audit", "/accounts/" + a.ID, "/sessions/" + session,
	} {
		name := strings.NewReplacer("/", "-", session, "one", a.ID, "one").Replace(path)
		pages = append(pages, at("operator"+name, "/dashboard/operator"+path, operator))
	}
	return pages
}

// longHost is as long as a host may be.
var longHost = strings.TrimSuffix(strings.Repeat(strings.Repeat("h", 60)+".", 4), ".") + ".example"

func hostileKeys(t *testing.T, r *rig, a account.Account, name string) (id string) {
	t.Helper()
	_, k, err := r.accounts.CreateKey(t.Context(), access.Operator(name), a.ID, account.KeyOptions{
		Name: cut(name, 60),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.accounts.SetReturnURL(t.Context(), access.Operator(""), a.ID,
		"https://"+longHost+"/"+strings.Repeat("p", 400)); err != nil {
		t.Fatal(err)
	}
	r.until("the key is known", func() bool { return len(r.mirror.Keys(a.ID)) == 1 })
	return k.ID
}

func hostileSessions(t *testing.T, r *rig, a account.Account, key, value, short string) (id string) {
	t.Helper()
	verified := sessions.Outcome{State: sessions.Verified, Network: "example"}
	start := func(user, platform, guild string) sessions.Session {
		return r.session(a, func(q *sessions.Request) {
			q.PlatformUserID, q.Platform, q.GuildID, q.Key, q.CallbackURL = user, platform, guild, key,
				"https://"+longHost+"/x"
		})
	}
	start("sailor_42", "discord", "118203948571029384")
	start(short, short, short)
	s := start(value, value, value)
	r.ended(s, verified, facts.Result{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: 500,
		Detail: "the receiver answered 500 " + value, Answer: value,
		Address: "[2001:db8:1111:2222:3333:4444:5555:6666]:8443",
	})
	r.callbacks.answer = sent.Exchange{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: 500,
		Detail: "the receiver answered 500 " + value, Answer: value,
	}
	if err := r.kept.AddTest(t.Context(), a.ID, kept.Test{
		At: r.clock.Now(), By: value, Host: longHost + ":8443", Verdict: facts.VerdictReleased,
		Class: failure.Connect,
	}); err != nil {
		t.Fatal(err)
	}
	return string(s.ID)
}

func hostileService(t *testing.T, r *rig, name string) {
	t.Helper()
	r.grant("root")
	if _, err := r.pauses.Begin(t.Context(), longHost, "operator "+name, cut(name, 100)+cut(name, 60),
		time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := r.accounts.Note(t.Context(), access.OperatorWith("example", name, name), audit.ServiceLog,
		audit.HostPaused, longHost,
		map[string]string{"reason": name}); err != nil {
		t.Fatal(err)
	}
	r.fleet = []fleet.Process{{
		Host: strings.Repeat("m", 253), PID: 4711, Version: "v1.4.0-" + strings.Repeat("0", 40),
		Roles: []string{"edge", "dispatcher"}, Since: r.clock.Now(),
		Degraded: []fleet.Failure{{Check: "jetstream", Reason: strings.Repeat("r", 300)}},
		Hosts: []fleet.Host{
			{Host: "a." + longHost, Breaker: "open", Since: r.clock.Now(), Waiting: 1,
				Detail: cut(name, 60) + strings.Repeat("d", 300)},
		},
	}}
}
