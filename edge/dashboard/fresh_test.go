package dashboard_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/web"
)

// The changes that need a fresh sign-in, and those that do not. A new one goes into one of the lists: what
// hands out a secret or a right, or destroys something, into the first; what takes a right away or stops harm
// never.
var (
	freshPosts = []string{
		"/dashboard/new-key", "/dashboard/keys/{key}/roll", "/dashboard/signing/reveal",
		"/dashboard/members/invite", "/dashboard/members/role", "/dashboard/members/remove",
		"/dashboard/settings/delete", "/dashboard/operator/accounts/{account}/delete",
		"/dashboard/operator/accounts/{account}/move-member",
	}
	otherPosts = []string{
		"/dashboard/login", "/dashboard/login/{network}/callback", "/dashboard/link", "/dashboard/logout",
		"/dashboard/logins/end", "/dashboard/invite", "/dashboard/new-account", "/dashboard/account",
		"/dashboard/keys/{key}/revoke", "/dashboard/search", "/dashboard/signing/rotate",
		"/dashboard/signing/end", "/dashboard/members/withdraw", "/dashboard/settings/name",
		"/dashboard/settings/restore", "/dashboard/callbacks/send-again", "/dashboard/callbacks/seen",
		"/dashboard/callbacks/test", "/dashboard/sessions/{session}/resend", "/dashboard/sign-in-page/look",
		"/dashboard/sign-in-page/return-url", "/dashboard/sign-in-page/return-origins",
		"/dashboard/sign-in-page/binding", "/dashboard/notices/read", "/dashboard/notices/address",
		"/dashboard/notices/test", "/dashboard/operator/accounts/{account}/disable",
		"/dashboard/operator/accounts/{account}/enable", "/dashboard/operator/accounts/{account}/restore",
		"/dashboard/operator/accounts/{account}/verified", "/dashboard/operator/hosts/pause",
		"/dashboard/operator/hosts/resume", "/dashboard/operator/search",
		"/dashboard/operator/undelivered/redrive",
	}
	// freshPages are those that are nothing but the form of a change.
	freshPages = []string{
		"/dashboard/new-key", "/dashboard/keys/{key}/roll", "/dashboard/settings/delete",
		"/dashboard/operator/accounts/{account}/move-member",
	}
)

// Every change has decided whether it needs a fresh sign-in, and asks for one or does not, whoever makes it.
func TestEveryChangeDecidesAboutFreshSignIns(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	a := r.account("Harbor Guild")
	r.grant("olga")
	type visit struct {
		route web.Route
		by    *browser
	}
	var visits []visit
	for _, route := range r.routes {
		if !strings.HasPrefix(route.Path, "/dashboard") || route.Method == http.MethodHead {
			continue
		}
		posted := slices.Contains(freshPosts, route.Path) != slices.Contains(otherPosts, route.Path)
		if route.Method == http.MethodPost && !posted {
			t.Errorf("POST %s is in none of the two lists, or in both", route.Path)
		}
		visits = append(visits, visit{route, r.as("olga")}) // some end their login
	}
	r.clock.advance(logins.FreshFor)
	for _, v := range visits {
		path, form := v.route.Path, []string{"account", a.ID, "member", address("vera")}
		for _, name := range []string{"key", "account", "session", "network", "run"} {
			path = strings.ReplaceAll(path, "{"+name+"}", "x")
		}
		got, listed := v.by.post(path, form...), freshPosts
		if v.route.Method == http.MethodGet {
			got, listed = v.by.Get(path), freshPages
		}
		asks := strings.HasPrefix(got.Header.Get("Location"), "/dashboard/sign-in-again?")
		if want := slices.Contains(listed, v.route.Path); asks != want {
			t.Errorf("%s %s: it asks for a fresh sign-in: %v, want %v (%d)", v.route.Method, v.route.Path,
				asks, want, got.Status)
		}
	}
	for _, path := range slices.Concat(freshPosts, otherPosts) {
		if !slices.ContainsFunc(r.routes, func(route web.Route) bool {
			return route.Method == http.MethodPost && route.Path == path
		}) {
			t.Errorf("there is no POST %s", path)
		}
	}
}

// asks fails unless an answer leads to a fresh sign-in for an act, and from there to a page. It returns the
// address of the page that asks.
func (b *browser) asks(a answer, act, next string) string {
	b.t.Helper()
	to := b.To(a)
	want := b.r.base + "/dashboard/sign-in-again?act=" + act + "&next=" + url.QueryEscape(next)
	if to != want {
		b.t.Fatalf("%s leads to %s, want %s", a.At, to, want)
	}
	return to
}

// withCookie opens a page with a login's cookie and nothing else.
func (r *rig) withCookie(c *http.Cookie, path string) answer {
	r.t.Helper()
	b := r.browser()
	req := b.Request(http.MethodGet, path, "")
	req.AddCookie(c)
	return b.Do(req)
}

// Ten minutes after a sign-in, a login makes no key: neither its form nor what is sent by it. After a fresh
// one it does, under a new cookie, in the account that was chosen.
func TestKeysNeedAFreshSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v"})
	r.clock.stop()
	r.account("Bay Guild") // the first by name
	a := r.account("Harbor Guild")
	b := r.browser()
	old := loginCookie(t, b.login("olga"))
	b.To(b.post("/dashboard/account", "to", a.ID))
	const path = "/dashboard/new-key"
	create := func() answer {
		return b.post(path, "account", a.ID, "name", "production", "mode", "live")
	}
	r.clock.advance(logins.FreshFor - time.Millisecond)
	b.Get(path).Want(t, http.StatusOK, "Create an API key")
	r.clock.advance(time.Millisecond)
	b.asks(create(), "create", path)
	again := b.asks(b.Get(path), "create", path)
	page := b.Get(again)
	page.Want(t, http.StatusOK, "You are about to create an API key. Sign in again to show that it is you.",
		"Sign in again with Example Network")
	page.Holds(t, `name="again" value="yes"`, `name="next" value="`+path+`"`, `value="example"`)
	b.Get("/dashboard/keys").Want(t, http.StatusOK, "No key yet", "owner of Harbor Guild")

	in := b.again("olga", path)
	if to := b.To(in); to != r.base+path {
		t.Errorf("the sign-in leads to %s", to)
	}
	if fresh := loginCookie(t, in); fresh.Value == old.Value {
		t.Error("the cookie is the same")
	}
	r.withCookie(old, "/dashboard/keys").Want(t, http.StatusSeeOther)
	if ids := b.logins(); len(ids) != 1 {
		t.Errorf("logins %q", ids)
	}
	b.Follow(in).Want(t, http.StatusOK, "Create an API key", "owner of Harbor Guild")
	b.Follow(create()).Want(t, http.StatusOK, "New key: production")
	if keys := r.mirror.Keys(a.ID); len(keys) != 1 {
		t.Errorf("keys: %+v", keys)
	}
	if to := b.To(b.Get(again)); to != r.base+path {
		t.Errorf("whoever has just signed in is led to %s", to)
	}
}

// The network is asked to have the person sign in again only if that is needed.
func TestFreshSignInIsAskedOfTheNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for again, want := range map[string][2]string{"": {}, "yes": {"login", "600"}} {
		b := r.browser()
		u, err := url.Parse(b.To(b.post("/dashboard/login", "network", "example", "again", again)))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{u.Query().Get("prompt"), u.Query().Get("max_age")}; got != want {
			t.Errorf("again %q: prompt and max_age %q, want %q", again, got, want)
		}
	}
}

// Somebody else, or a network that asks nobody, renews no login; one that has ended meanwhile begins again.
func TestWhatIsNoFreshSignIn(t *testing.T) {
	t.Parallel()
	const path = "/dashboard/new-key"
	t.Run("somebody else", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, setup{})
		r.account("Harbor Guild")
		b := r.as("olga")
		r.clock.advance(logins.FreshFor)
		refused := b.again("dev", path)
		refused.Want(t, http.StatusForbidden, "You signed in as somebody else", "nothing was changed")
		if set := strings.Join(refused.Header.Values("Set-Cookie"), " "); strings.Contains(set,
			"verifyd_login=") {
			t.Errorf("cookies are set: %s", set)
		}
		b.Get("/dashboard/keys").Want(t, http.StatusOK, "owner of Harbor Guild")
		b.asks(b.Get(path), "create", path)
		if ids := r.as("dev").logins(); len(ids) != 1 {
			t.Errorf("the other's logins: %q", ids)
		}
	})
	t.Run("a network that asked nobody", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, setup{signedInAgo: logins.FreshFor})
		r.account("Harbor Guild")
		b := r.as("olga")
		r.clock.advance(logins.FreshFor)
		b.again("olga", path).Want(t, http.StatusForbidden, "You were not asked to sign in again")
		b.asks(b.Get(path), "create", path)
	})
	t.Run("a network that asked a while ago", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, setup{signedInAgo: logins.FreshFor / 2})
		r.account("Harbor Guild")
		b := r.as("olga")
		r.clock.advance(logins.FreshFor)
		b.Follow(b.again("olga", path)).Want(t, http.StatusOK, "Create an API key")
		r.clock.advance(logins.FreshFor / 2)
		b.asks(b.Get(path), "create", path)
	})
	t.Run("one that was declined", func(t *testing.T) { // it can be tried again at once
		t.Parallel()
		r := newRig(t, setup{})
		r.account("Harbor Guild")
		b := r.as("olga")
		r.clock.advance(logins.FreshFor)
		a := b.declines(path, "again", "yes")
		if to := b.To(a); !strings.HasSuffix(to, "/dashboard/sign-in-again?next="+url.QueryEscape(path)) {
			t.Errorf("it leads to %s", to)
		}
		b.Follow(a).Want(t, http.StatusOK, "You did not finish the login", "Sign in again with")
	})
	t.Run("a login that has ended", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, setup{})
		r.account("Harbor Guild")
		b := r.as("olga")
		r.clock.advance(logins.FreshFor)
		back := b.back("olga", path, "again", "yes")
		b.post("/dashboard/logout").Want(t, http.StatusSeeOther)
		b.Follow(b.Get(back)).Want(t, http.StatusOK, "Create an API key")
	})
}

// What takes one's own right away, or stops harm, is done at once, by a login of hours ago as well.
func TestNothingDelaysWhatStopsHarm(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	_, key, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.until("the key is known", r.keys(a, 1))
	r.grant("root")
	olga, vera, root := r.as("olga"), r.as("vera"), r.as("root")
	r.clock.advance(logins.FreshFor)
	member := func(path, subject string) answer {
		return olga.post("/dashboard/members/"+path, "account", a.ID, "member", address(subject),
			"role", "viewer")
	}
	olga.Follow(olga.post("/dashboard/keys/"+key.ID+"/revoke", "account", a.ID)).
		Want(t, http.StatusOK, "The key is revoked")
	olga.Follow(member("role", "olga")).Want(t, http.StatusOK, "An account needs an owner")
	olga.asks(member("role", "dev"), "members", "/dashboard/members?member="+address("dev"))
	remove := "/dashboard/members/remove?member=" + address("vera")
	olga.asks(member("remove", "vera"), "members", remove)
	olga.Get(remove).Want(t, http.StatusOK, "Remove vera?")
	vera.Follow(vera.post("/dashboard/members/remove", "account", a.ID, "member", address("vera"))).
		Want(t, http.StatusSeeOther)
	page := "/dashboard/operator/accounts/" + a.ID
	root.Follow(root.post(page+"/disable", "reason", "abuse")).
		Want(t, http.StatusOK, "The account is disabled")
	if ids := olga.logins(); len(ids) != 1 {
		t.Fatalf("logins %q", ids)
	}
	olga.post("/dashboard/logout", "everywhere", "yes").Want(t, http.StatusSeeOther)
	olga.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
}

// A login by a link is fresh for ten minutes. Then no network helps, and only another link does.
func TestLoginLinkIsFreshForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.browser()
	in := func() {
		t.Helper()
		token, _, err := r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
		if err != nil {
			t.Fatal(err)
		}
		b.post("/dashboard/link", "token", token).Want(t, http.StatusSeeOther)
		b.Get("/dashboard/new-key").Want(t, http.StatusOK, "Create an API key")
	}
	in()
	r.clock.advance(logins.FreshFor)
	reveal := b.post("/dashboard/signing/reveal", "account", a.ID)
	page := b.Get(b.asks(reveal, "reveal", "/dashboard/signing"))
	page.Want(t, http.StatusOK, "You are about to see the signing secret", "Ask the operator of this service")
	page.Lacks(t, "Sign in again with", `name="network"`)
	b.again("olga", "/dashboard/signing").Want(t, http.StatusForbidden, "somebody else")
	in()
}

// An operator deletes no account and moves nobody by a login of hours ago.
func TestOperatorsNeedAFreshSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	r.grant("root")
	root := r.as("root")
	page := "/dashboard/operator/accounts/" + a.ID
	who := page + "/move-member?member=" + address("dev")
	r.clock.advance(logins.FreshFor)
	remove := func() answer { return root.post(page+"/delete", "name", "Harbor Guild") }
	root.Get(root.asks(remove(), "delete", page)).Want(t, http.StatusOK, "You are about to delete an account")
	root.asks(root.Get(who+"&q=lake"), "move", who+"&q=lake")
	root.asks(root.post(page+"/move-member", "member", address("dev"), "to", "acc_x"), "move", who)
	if now, err := r.accounts.Account(t.Context(), a.ID); err != nil || !now.InService() {
		t.Fatalf("%+v, %v", now, err)
	}
	root.Follow(root.again("root", who)).Want(t, http.StatusOK, "is developer of Harbor Guild")
	root.Follow(remove()).Want(t, http.StatusOK, "The account is out of service and will be deleted")
}
