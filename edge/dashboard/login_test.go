package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
)

func TestLoginLeadsWhereSomebodyWanted(t *testing.T) {
	for name, s := range map[string]setup{"plain": {}, "https": {tls: true}, "prefix": {prefix: "/v"}, "https and prefix": {tls: true, prefix: "/v"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s)
			r.account("Harbor Guild")
			b := r.browser()
			first := b.to(b.get("/dashboard/keys"))
			if want := r.base + "/dashboard/login?next=%2Fdashboard%2Fkeys"; first != want {
				t.Fatalf("leads to %s, want %s", first, want)
			}
			b.get(first).want(t, http.StatusOK, "Log in to the dashboard", "Continue with Example Network")
			in := b.login("olga", "/dashboard/keys")
			if to := b.to(in); to != r.base+"/dashboard/keys" {
				t.Errorf("the login leads to %s", to)
			}
			cookie := loginCookie(t, in)
			wantName := map[string]string{"plain": "verifyd_login", "prefix": "verifyd_login", "https": "__Host-verifyd_login", "https and prefix": "__Secure-verifyd_login"}[name]
			if cookie.Name != wantName || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Secure != s.tls || name == "https" && cookie.Path != "/" {
				t.Errorf("cookie %+v", cookie)
			}
			b.follow(in).want(t, http.StatusOK, "API Keys", "olga", "owner of Harbor Guild")
			if to := b.to(b.get("/dashboard/login")); to != r.base+"/dashboard" {
				t.Errorf("who is logged in is led to %s", to)
			}
		})
	}
}

func loginCookie(t *testing.T, a answer) *http.Cookie {
	t.Helper()
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		if strings.HasSuffix(c.Name, "verifyd_login") {
			return c
		}
	}
	t.Fatal("no login cookie")
	return nil
}

// Whatever an address says, a login leads to a page of the dashboard.
func TestLoginLeadsNowhereElse(t *testing.T) {
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	for _, next := range []string{
		"https://evil.example", "//evil.example/dashboard", `/\evil.example`, "/dashboard/../x", "/dashboardx", "javascript:alert(1)",
		"/", "/dashboard/login?next=x", "/dashboard\r\nX: y", "/dashboard/" + strings.Repeat("x", 600),
	} {
		if to := r.browser().to(r.browser().login("olga", next)); to != r.base+"/dashboard" {
			t.Errorf("%q leads to %s", next, to)
		}
	}
}

// A cookie that somebody copied opens nothing once its owner has logged out, here or everywhere.
func TestStolenCookieAfterLogout(t *testing.T) {
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	for _, everywhere := range []string{"", "yes"} {
		b := r.browser()
		stolen := loginCookie(t, b.login("olga"))
		other := r.as("olga")
		thief := func() answer {
			req := r.browser().request(http.MethodGet, "/dashboard/keys", "")
			req.AddCookie(stolen)
			return r.browser().do(req)
		}
		thief().want(t, http.StatusOK, "API Keys")
		b.follow(b.post("/dashboard/logout", "everywhere", everywhere)).want(t, http.StatusOK, "You are logged out")
		thief().want(t, http.StatusSeeOther)
		b.get("/dashboard/keys").want(t, http.StatusSeeOther)
		want := http.StatusOK
		if everywhere != "" {
			want = http.StatusSeeOther
		}
		other.get("/dashboard/keys").want(t, want)
		r.as("olga").get("/dashboard/keys").want(t, http.StatusOK)
		r.as("dev").get("/dashboard/keys").want(t, http.StatusOK)
	}
}

func TestLoginEndsByItself(t *testing.T) {
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	b := r.as("olga")
	r.clock.advance(logins.Lifetime - time.Minute)
	b.get("/dashboard/keys").want(t, http.StatusOK)
	r.clock.advance(time.Minute)
	b.get("/dashboard/keys").want(t, http.StatusSeeOther)
}

// Each login has a token of its own, and the one before it ends.
func TestLoginRenewsItsToken(t *testing.T) {
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	b := r.browser()
	old := loginCookie(t, b.login("olga"))
	fresh := loginCookie(t, b.login("olga"))
	if old.Value == fresh.Value {
		t.Fatal("the token is the same")
	}
	req := r.browser().request(http.MethodGet, "/dashboard/keys", "")
	req.AddCookie(old)
	r.browser().do(req).want(t, http.StatusSeeOther)
}

func TestReturnsThatLogNobodyIn(t *testing.T) {
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	refused := func(t *testing.T, b *browser) {
		t.Helper()
		if a := b.get("/dashboard/keys"); a.status != http.StatusSeeOther {
			t.Errorf("logged in: %d", a.status)
		}
	}
	t.Run("another browser", func(t *testing.T) {
		back := r.browser().back("olga", "")
		thief := r.browser()
		thief.get(back).want(t, http.StatusBadRequest, "We lost track of your login")
		refused(t, thief)
	})
	t.Run("a second time", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		b.to(b.get(back))
		b.post("/dashboard/logout").want(t, http.StatusSeeOther)
		b.to(b.get(back))
		refused(t, b)
	})
	t.Run("another network's address", func(t *testing.T) {
		b := r.browser()
		b.follow(b.get(strings.Replace(b.back("olga", ""), "/example/", "/other/", 1))).want(t, http.StatusOK, "The login did not finish")
		refused(t, b)
	})
	t.Run("after half an hour", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		r.clock.advance(31 * time.Minute)
		b.get(back).want(t, http.StatusBadRequest, "We lost track of your login")
		refused(t, b)
	})
	t.Run("declined", func(t *testing.T) {
		b := r.browser()
		u, err := url.Parse(b.back("olga", ""))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Del("code")
		q.Set("error", "access_denied")
		u.RawQuery = q.Encode()
		b.follow(b.get(u.String())).want(t, http.StatusOK, "You did not finish the login")
		refused(t, b)
	})
	t.Run("HEAD spends nothing", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		b.do(b.request(http.MethodHead, back, "")).want(t, http.StatusMethodNotAllowed)
		b.follow(b.get(back)).want(t, http.StatusSeeOther)
	})
}

func TestFormsOfOtherSites(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	for _, path := range []string{
		"/dashboard/login", "/dashboard/link", "/dashboard/invite", "/dashboard/new-account", "/dashboard/account", "/dashboard/logout", "/dashboard/new-key",
		"/dashboard/keys/x/roll", "/dashboard/keys/x/revoke", "/dashboard/sessions/x/resend", "/dashboard/signing/reveal", "/dashboard/signing/rotate",
		"/dashboard/signing/end", "/dashboard/signing/test", "/dashboard/members/invite", "/dashboard/members/withdraw", "/dashboard/members/role",
		"/dashboard/members/remove",
	} {
		for name, header := range map[string][2]string{"site": {"Sec-Fetch-Site", "cross-site"}, "origin": {"Origin", "https://evil.example"}} {
			req := b.request(http.MethodPost, path, url.Values{"account": {a.ID}}.Encode())
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set(header[0], header[1])
			if got := b.do(req); got.status != http.StatusForbidden {
				t.Errorf("%s, by %s: %d", path, name, got.status)
			}
		}
	}
	b.get("/dashboard/keys").want(t, http.StatusOK)
}

func TestLoginLink(t *testing.T) {
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	other := r.account("Other Guild")
	link := func(role account.Role) string {
		token, _, err := r.accounts.LoginLink(t.Context(), account.Operator(""), a.ID, role)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := link(account.RoleViewer)
	b := r.browser()
	for range 3 { // however often a chat draws its preview
		b.get("/dashboard/link?token="+token).want(t, http.StatusOK, "Log in by link")
	}
	b.follow(b.post("/dashboard/link", "token", token)).want(t, http.StatusSeeOther)
	b.get("/dashboard/keys").want(t, http.StatusOK, "Login link", "viewer of Harbor Guild")
	b.get("/dashboard/new-key").want(t, http.StatusForbidden)
	b.post("/dashboard/account", "to", other.ID).want(t, http.StatusNotFound)
	b.post("/dashboard/new-account", "name", "Third Guild").want(t, http.StatusForbidden)
	r.browser().post("/dashboard/link", "token", token).want(t, http.StatusGone, "This login link cannot be used")
	late := link(account.RoleOwner)
	r.clock.advance(account.LinkLifetime + time.Second)
	r.browser().post("/dashboard/link", "token", late).want(t, http.StatusGone)
	r.browser().post("/dashboard/link", "token", "nonsense").want(t, http.StatusGone)
}

func TestWhoMayMakeAnAccount(t *testing.T) {
	r := newRig(t, setup{allow: "example:ada, @guild.example"})
	r.account("Harbor Guild")
	for subject, may := range map[string]bool{"ada": true, "bob@guild.example": true, "bob@GUILD.example": true, "eve": false, "eve@evil.example": false, "x@notguild.example": false} {
		b := r.as(subject)
		page := b.get(b.to(b.get("/dashboard/sessions")))
		if may {
			page.want(t, http.StatusOK, "Name of the account")
		} else {
			page.want(t, http.StatusForbidden, "You have no account here yet")
			b.post("/dashboard/new-account", "name", "Eve's Guild").want(t, http.StatusForbidden)
		}
	}
	b := r.as("ada")
	b.post("/dashboard/new-account", "name", " x").want(t, http.StatusUnprocessableEntity, "printable text")
	b.post("/dashboard/new-account", "name", "Harbor Guild").want(t, http.StatusUnprocessableEntity, "There is an account of this name already")
	b.follow(b.post("/dashboard/new-account", "name", "Ada's Guild")).want(t, http.StatusOK, "Your account is ready", "owner of Ada's Guild")
	a, err := r.accounts.AccountByName(t.Context(), "Ada's Guild")
	if m, ok := a.Member("example", "ada"); err != nil || !ok || m.Role != account.RoleOwner {
		t.Errorf("account %+v, %v", a.Members, err)
	}
}

func TestInvite(t *testing.T) {
	r := newRig(t, setup{allow: "example:nobody-else"})
	r.account("Harbor Guild")
	olga := r.as("olga")
	a, _ := r.accounts.AccountByName(t.Context(), "Harbor Guild")
	page := olga.follow(olga.post("/dashboard/members/invite", "account", a.ID, "for", "Nils", "role", "developer"))
	page.want(t, http.StatusOK, "The invite for Nils", "becomes developer")
	link := between(t, page.text(), r.base+"/dashboard/invite?token=", "\n")
	path := "/dashboard/invite?token=" + link
	nils := r.browser()
	if to := nils.to(nils.get(path)); !strings.Contains(to, "/dashboard/login?next=") {
		t.Fatalf("leads to %s", to)
	}
	nils.follow(nils.login("nils", path)).want(t, http.StatusOK, "Join Harbor Guild?", "as developer")
	nils.follow(nils.post("/dashboard/invite", "token", link)).want(t, http.StatusOK, "You are a member", "developer of Harbor Guild")
	nils.post("/dashboard/invite", "token", link).want(t, http.StatusGone, "This invite cannot be used")
	second := between(t, olga.follow(olga.post("/dashboard/members/invite", "account", a.ID, "role", "viewer")).text(), "invite?token=", "\n")
	nils.follow(nils.post("/dashboard/invite", "token", second)).want(t, http.StatusOK, "already")
	olga.follow(olga.post("/dashboard/members/withdraw", "account", a.ID, "invite", openInvite(t, r, a.ID))).want(t, http.StatusOK, "withdrawn")
	r.as("eve").get("/dashboard/invite?token="+second).want(t, http.StatusGone)
	r.browser().post("/dashboard/invite", "token", second).want(t, http.StatusSeeOther)
}

func openInvite(t *testing.T, r *rig, id string) string {
	t.Helper()
	a, err := r.accounts.Account(t.Context(), id)
	if err != nil || len(a.Invites) != 1 {
		t.Fatalf("invites %+v, %v", a.Invites, err)
	}
	return a.Invites[0].ID
}

// between gives what follows a text, up to another.
func between(t *testing.T, s, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(s, from)
	got, _, found := strings.Cut(rest, to)
	if !ok || !found {
		t.Fatalf("no %q … %q in\n%s", from, to, s)
	}
	return strings.TrimSpace(got)
}

func TestSwitchOfAccounts(t *testing.T) {
	r := newRig(t, setup{})
	harbor, lake := r.account("Harbor Guild"), r.account("Lake Guild")
	b := r.as("olga")
	b.get("/dashboard/keys").want(t, http.StatusOK, "owner of Harbor Guild", "Switch to Lake Guild")
	b.follow(b.post("/dashboard/account", "to", lake.ID)).want(t, http.StatusOK, "owner of Lake Guild")
	// A form of a tab that still shows the other account does nothing here.
	b.post("/dashboard/new-key", "account", harbor.ID, "name", "x", "mode", "live").want(t, http.StatusConflict, "You are in another account now")
	if keys := append(r.mirror.Keys(harbor.ID), r.mirror.Keys(lake.ID)...); len(keys) != 0 {
		t.Errorf("keys %+v", keys)
	}
	if _, err := r.accounts.RemoveMember(t.Context(), account.Operator(""), harbor.ID, "example", "vera"); err != nil {
		t.Fatal(err)
	}
	r.as("vera").post("/dashboard/account", "to", harbor.ID).want(t, http.StatusNotFound)
}

func TestStoreAway(t *testing.T) {
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	b := r.as("olga")
	r.away()
	a := b.get("/dashboard/keys")
	a.want(t, http.StatusServiceUnavailable, "One moment, please")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
