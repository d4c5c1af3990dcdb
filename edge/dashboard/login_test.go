package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/network"
	"verifyd/edge/places"
	"verifyd/natsconf/natstest"
)

func TestLoginLeadsToTheRequestedPage(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"plain": {}, "https": {tls: true}, "prefix": {prefix: "/v"}, "https and prefix": {
			tls: true, prefix: "/v",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			r.account("Harbor Guild")
			b := r.browser()
			first := b.To(b.Get("/dashboard/keys"))
			if want := r.base + "/dashboard/login?next=%2Fdashboard%2Fkeys"; first != want {
				t.Fatalf("leads to %s, want %s", first, want)
			}
			b.Get(first).Want(t, http.StatusOK, "Log in to the dashboard", "Continue with Example Network")
			in := b.login("olga", "/dashboard/keys")
			if to := b.To(in); to != r.base+"/dashboard/keys" {
				t.Errorf("the login leads to %s", to)
			}
			cookie := loginCookie(t, in)
			wantName := map[string]string{"plain": "verifyd_login", "prefix": "verifyd_login",
				"https": "__Host-verifyd_login", "https and prefix": "__Secure-verifyd_login"}[name]
			if cookie.Name != wantName || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode ||
				cookie.Secure != s.tls || name == "https" && cookie.Path != "/" {
				t.Errorf("cookie %+v", cookie)
			}
			b.Follow(in).Want(t, http.StatusOK, "API Keys", "olga", "owner of Harbor Guild")
			if to := b.To(b.Get("/dashboard/login")); to != r.base+"/dashboard" {
				t.Errorf("who is logged in is led to %s", to)
			}
		})
	}
}

func loginCookie(t *testing.T, a answer) *http.Cookie {
	t.Helper()
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if strings.HasSuffix(c.Name, "verifyd_login") {
			return c
		}
	}
	t.Fatal("no login cookie")
	return nil
}

// Whatever the address contains, a login leads to a page of the dashboard.
func TestLoginLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	for _, next := range []string{
		"https://evil.example", "//evil.example/dashboard", `/\evil.example`, "/dashboard/../x",
		"/dashboardx", "javascript:alert(1)",
		"/", "/dashboard/login?next=x", "/dashboard\r\nX: y", "/dashboard/" + strings.Repeat("x", 600),
	} {
		if to := r.browser().To(r.browser().login("olga", next)); to != r.base+"/dashboard" {
			t.Errorf("%q leads to %s", next, to)
		}
	}
}

// A copied cookie is worthless once its owner has logged out, here or everywhere.
func TestStolenCookieAfterLogout(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	for _, everywhere := range []string{"", "yes"} {
		b := r.browser()
		stolen := loginCookie(t, b.login("olga"))
		other := r.as("olga")
		thief := func() answer {
			req := r.browser().Request(http.MethodGet, "/dashboard/keys", "")
			req.AddCookie(stolen)
			return r.browser().Do(req)
		}
		thief().Want(t, http.StatusOK, "API Keys")
		b.Follow(b.post("/dashboard/logout", "everywhere", everywhere)).
			Want(t, http.StatusOK, "You are logged out")
		thief().Want(t, http.StatusSeeOther)
		b.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
		want := http.StatusOK
		if everywhere != "" {
			want = http.StatusSeeOther
		}
		other.Get("/dashboard/keys").Want(t, want)
		r.as("olga").Get("/dashboard/keys").Want(t, http.StatusOK)
		r.as("dev").Get("/dashboard/keys").Want(t, http.StatusOK)
	}
}

func TestLoginEndsByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	b := r.as("olga")
	for range logins.Lifetime/time.Hour - 1 { // in use all the time
		r.clock.advance(time.Hour)
		b.Get("/dashboard/keys").Want(t, http.StatusOK)
	}
	r.clock.advance(time.Hour - time.Minute)
	b.Get("/dashboard/keys").Want(t, http.StatusOK)
	r.clock.advance(time.Minute)
	b.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
}

// A login that nobody uses ends long before, though a page is open that keeps itself up to date.
func TestIdleLoginEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	b := r.as("olga")
	r.clock.advance(logins.Idle - time.Minute)
	b.Get("/dashboard/keys").Want(t, http.StatusOK)
	r.clock.advance(logins.Idle - time.Minute)
	b.Get("/dashboard/keys").Want(t, http.StatusOK)
	r.clock.advance(logins.Idle - time.Minute)
	live := b.Request(http.MethodGet, "/dashboard/keys", "")
	live.Header.Set("Sec-Fetch-Dest", "empty")
	b.Do(live).Want(t, http.StatusOK)
	r.clock.advance(time.Minute)
	b.Get("/dashboard/keys").Want(t, http.StatusSeeOther)
}

// Each login has a token of its own, and the one before it ends.
func TestLoginRenewsItsToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	b := r.browser()
	old := loginCookie(t, b.login("olga"))
	fresh := loginCookie(t, b.login("olga"))
	if old.Value == fresh.Value {
		t.Fatal("the token is the same")
	}
	req := r.browser().Request(http.MethodGet, "/dashboard/keys", "")
	req.AddCookie(old)
	r.browser().Do(req).Want(t, http.StatusSeeOther)
}

// A stranger's made-up cookies cost two looks into the store. One beside the true cookie, as a neighbouring
// host may have set it, harms nobody.
func TestFewLoginCookiesAreLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	in := loginCookie(t, r.browser().login("olga"))
	for beside, status := range map[int]int{1: http.StatusOK, 2: http.StatusSeeOther} {
		b := r.browser()
		req := b.Request(http.MethodGet, "/dashboard/keys", "")
		for i := range beside {
			req.AddCookie(&http.Cookie{Name: in.Name, Value: strings.Repeat(strconv.Itoa(i), len(in.Value))})
		}
		req.AddCookie(in)
		b.Do(req).Want(t, status)
	}
}

func TestReturnsWithoutALogin(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	refused := func(t *testing.T, b *browser) {
		t.Helper()
		if a := b.Get("/dashboard/keys"); a.Status != http.StatusSeeOther {
			t.Errorf("logged in: %d", a.Status)
		}
	}
	t.Run("another browser", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		other := r.browser()
		other.Get(back).Want(t, http.StatusBadRequest, "We lost track of your login")
		refused(t, other)
		b.To(b.Get(back)) // of an address that another browser came back with
		refused(t, b)
	})
	t.Run("another browser, whose address had another state", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		at, err := url.Parse(back)
		if err != nil {
			t.Fatal(err)
		}
		q := at.Query()
		q.Set("state", network.NewAttempt().State)
		at.RawQuery = q.Encode()
		other := r.browser()
		other.Get(at.String()).Want(t, http.StatusBadRequest, "We lost track of your login",
			"Never give anyone the address of this page")
		b.Follow(b.Get(back)).Want(t, http.StatusOK, "The login did not finish")
		refused(t, b)
	})
	t.Run("a second time", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		b.To(b.Get(back))
		b.post("/dashboard/logout").Want(t, http.StatusSeeOther)
		b.To(b.Get(back))
		refused(t, b)
	})
	t.Run("another network's address", func(t *testing.T) {
		b := r.browser()
		b.Follow(b.Get(strings.Replace(b.back("olga", ""), "/example/", "/other/", 1))).
			Want(t, http.StatusOK, "The login did not finish")
		refused(t, b)
	})
	t.Run("after half an hour", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		r.clock.advance(31 * time.Minute)
		b.Get(back).Want(t, http.StatusBadRequest, "We lost track of your login")
		refused(t, b)
	})
	t.Run("declined", func(t *testing.T) {
		b := r.browser()
		b.Follow(b.declines("")).Want(t, http.StatusOK, "You did not finish the login")
		refused(t, b)
	})
	t.Run("HEAD spends nothing", func(t *testing.T) {
		b := r.browser()
		back := b.back("olga", "")
		b.Do(b.Request(http.MethodHead, back, "")).Want(t, http.StatusMethodNotAllowed)
		path, form, _ := strings.Cut(back, "?")
		post := b.Request(http.MethodPost, path, form)
		post.Header.Set("Sec-Fetch-Site", "cross-site")
		post.Header.Set("Origin", "https://network.example")
		b.Do(post).Want(t, http.StatusBadRequest)
		b.Follow(b.Get(back)).Want(t, http.StatusSeeOther)
	})
}

func TestFormsOfOtherSites(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	for _, path := range []string{
		"/dashboard/login", "/dashboard/link", "/dashboard/invite", "/dashboard/new-account",
		"/dashboard/account", "/dashboard/logout", "/dashboard/logins/end", "/dashboard/new-key",
		"/dashboard/keys/x/roll", "/dashboard/keys/x/revoke", "/dashboard/sessions/x/resend",
		"/dashboard/signing/reveal", "/dashboard/signing/rotate",
		"/dashboard/signing/end", "/dashboard/callbacks/test",
		"/dashboard/callbacks/send-again", "/dashboard/callbacks/seen", "/dashboard/operator/search",
		"/dashboard/members/invite",
		"/dashboard/members/withdraw", "/dashboard/members/role",
		"/dashboard/members/remove", "/dashboard/settings/name", "/dashboard/settings/delete",
		"/dashboard/settings/restore", "/dashboard/operator/accounts/x/disable",
		"/dashboard/operator/accounts/x/enable", "/dashboard/operator/accounts/x/delete",
		"/dashboard/operator/accounts/x/restore", "/dashboard/operator/accounts/x/verified",
		"/dashboard/operator/accounts/x/move-member",
	} {
		for name, header := range map[string][2]string{
			"site": {"Sec-Fetch-Site", "cross-site"}, "origin": {"Origin", "https://evil.example"},
		} {
			req := b.Request(http.MethodPost, path, url.Values{"account": {a.ID}}.Encode())
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set(header[0], header[1])
			if got := b.Do(req); got.Status != http.StatusForbidden {
				t.Errorf("%s, by %s: %d", path, name, got.Status)
			}
		}
	}
	b.Get("/dashboard/keys").Want(t, http.StatusOK)
}

func TestLoginLink(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	other := r.account("Other Guild")
	link := func(role access.Role) string {
		token, _, err := r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, role)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := link(access.RoleViewer)
	b := r.browser()
	for range 3 { // however often a chat draws its preview
		b.Get("/dashboard/link?token="+token).Want(t, http.StatusOK, "Log in by link")
	}
	b.Follow(b.post("/dashboard/link", "token", token)).Want(t, http.StatusSeeOther)
	b.Get("/dashboard/keys").Want(t, http.StatusOK, "Login link", "viewer of Harbor Guild")
	b.Get("/dashboard/new-key").Want(t, http.StatusForbidden)
	b.post("/dashboard/account", "to", other.ID).Want(t, http.StatusNotFound)
	b.post("/dashboard/new-account", "name", "Third Guild").Want(t, http.StatusForbidden)
	r.browser().post("/dashboard/link", "token", token).
		Want(t, http.StatusGone, "This login link cannot be used")
	late := link(access.RoleOwner)
	r.clock.advance(account.LinkLifetime + time.Second)
	r.browser().post("/dashboard/link", "token", late).Want(t, http.StatusGone)
	r.browser().post("/dashboard/link", "token", "nonsense").Want(t, http.StatusGone)
}

// A login link into an account is revoked: people who redeemed it are logged out at the next click, and
// nobody can redeem it any more. A login record that claims to come from a link is ignored, since an edge's
// credential could write one.
func TestLoginLinkIsRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	link := func() (string, grant.Link) {
		t.Helper()
		token, l, err := r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
		if err != nil {
			t.Fatal(err)
		}
		return token, l
	}
	in := func(token string) *browser {
		t.Helper()
		b := r.browser()
		b.post("/dashboard/link", "token", token).Want(t, http.StatusSeeOther)
		b.Get("/dashboard/keys").Want(t, http.StatusOK, "owner of Harbor Guild")
		return b
	}
	out := func(b *browser) {
		t.Helper()
		for _, path := range []string{"/dashboard/keys", "/dashboard/members", "/dashboard/new-account"} {
			if to := b.To(b.Get(path)); !strings.Contains(to, "/dashboard/login") {
				t.Errorf("%s leads to %q", path, to)
			}
		}
		if to := b.To(b.post("/dashboard/new-key", "name", "planted")); !strings.Contains(to,
			"/dashboard/login") {
			t.Errorf("a change leads to %q", to)
		}
		b.Get("/dashboard/login").Want(t, http.StatusOK, "Log in")
		b.Get("/dashboard/operator").Want(t, http.StatusSeeOther)
	}
	token, first := link()
	gone := in(token)
	token, _ = link()
	stays := in(token)
	token, unused := link()
	for _, l := range []grant.Link{first, unused} {
		if err := r.accounts.RevokeLoginLink(t.Context(), access.Operator(""), a.ID, l.ID); err != nil {
			t.Fatal(err)
		}
	}
	out(gone)
	r.browser().post("/dashboard/link", "token", token).
		Want(t, http.StatusGone, "This login link cannot be used")
	stays.Get("/dashboard/audit").Want(t, http.StatusOK, "Login link revoked")

	cookie := loginCookie(t, r.browser().login("olga"))
	keys := func(forged logins.Login) answer {
		t.Helper()
		forged.Role, forged.Account = access.RoleOwner, a.ID
		token, err := r.logins.Begin(t.Context(), forged)
		if err != nil {
			t.Fatal(err)
		}
		b := r.browser()
		req := b.Request(http.MethodGet, "/dashboard/keys", "")
		req.AddCookie(&http.Cookie{Name: cookie.Name, Value: token})
		return b.Do(req)
	}
	_, operators, err := r.accounts.OperatorLink(t.Context(), access.Operator(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []logins.Login{
		{LinkID: "link_forged"}, {LinkID: first.ID}, {LinkID: "link_forged", Operator: true},
		{LinkID: operators.ID}, {LinkID: operators.ID, Operator: true},
	} {
		keys(forged).Want(t, http.StatusSeeOther)
	}
	_, viewer, err := r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleViewer)
	if err != nil {
		t.Fatal(err)
	}
	keys(logins.Login{LinkID: viewer.ID}).Want(t, http.StatusOK, "viewer of Harbor Guild")
	keys(logins.Login{LinkID: viewer.ID, Operator: true}).Want(t, http.StatusSeeOther)
}

func TestWhoMayMakeAnAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{allow: "example:ada, @guild.example"})
	r.account("Harbor Guild")
	for subject, may := range map[string]bool{
		"ada": true, "bob@guild.example": true, "bob@GUILD.example": true, "eve": false,
		"eve@evil.example": false, "x@notguild.example": false,
	} {
		b := r.as(subject)
		page := b.Get(b.To(b.Get("/dashboard/sessions")))
		if may {
			page.Want(t, http.StatusOK, "Name of the account")
		} else {
			page.Want(t, http.StatusForbidden, "You have no account here yet")
			b.post("/dashboard/new-account", "name", "Eve's Guild").Want(t, http.StatusForbidden)
		}
	}
	b := r.as("ada")
	b.post("/dashboard/new-account", "name", "x\u202ey").Want(t, http.StatusUnprocessableEntity,
		"printable text")
	b.post("/dashboard/new-account", "name", "Harbor Guild").
		Want(t, http.StatusUnprocessableEntity, "Another account has this name")
	b.Follow(b.post("/dashboard/new-account", "name", "Ada's Guild")).
		Want(t, http.StatusOK, "Your account is ready", "owner of Ada's Guild")
	a, err := r.accounts.AccountByName(t.Context(), "Ada's Guild")
	if m, ok := a.Member("example", "ada"); err != nil || !ok || m.Role != access.RoleOwner {
		t.Errorf("account %+v, %v", a.Members, err)
	}
}

func TestInvite(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{allow: "example:nobody-else"})
	r.account("Harbor Guild")
	olga := r.as("olga")
	a, _ := r.accounts.AccountByName(t.Context(), "Harbor Guild")
	page := olga.Follow(olga.post("/dashboard/members/invite", "account", a.ID, "for", "Nils", "role",
		"developer"))
	page.Want(t, http.StatusOK, "The invite for Nils", "becomes developer")
	link := between(t, page.Text(), r.base+"/dashboard/invite?token=", "\n")
	path := "/dashboard/invite?token=" + link
	nils := r.browser()
	if to := nils.To(nils.Get(path)); !strings.Contains(to, "/dashboard/login?next=") {
		t.Fatalf("leads to %s", to)
	}
	nils.Follow(nils.login("nils", path)).Want(t, http.StatusOK, "Join Harbor Guild?", "as developer")
	nils.Follow(nils.post("/dashboard/invite", "token", link)).
		Want(t, http.StatusOK, "You are now a member", "developer of Harbor Guild")
	nils.post("/dashboard/invite", "token", link).Want(t, http.StatusGone, "This invite cannot be used")
	second := between(t, olga.Follow(olga.post("/dashboard/members/invite", "account", a.ID, "role",
		"viewer")).Text(), "invite?token=", "\n")
	nils.Follow(nils.post("/dashboard/invite", "token", second)).Want(t, http.StatusOK, "already")
	olga.Follow(olga.post("/dashboard/members/withdraw", "account", a.ID, "invite", openInvite(t, r, a.ID))).
		Want(t, http.StatusOK, "withdrawn")
	r.as("eve").Get("/dashboard/invite?token="+second).Want(t, http.StatusGone)
	r.browser().post("/dashboard/invite", "token", second).Want(t, http.StatusSeeOther)
}

func openInvite(t *testing.T, r *rig, id string) string {
	t.Helper()
	a, err := r.accounts.Account(t.Context(), id)
	if err != nil || len(a.Invites) != 1 {
		t.Fatalf("invites %+v, %v", a.Invites, err)
	}
	return a.Invites[0].ID
}

// between returns what follows a text, up to another.
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
	t.Parallel()
	r := newRig(t, setup{})
	harbor, lake := r.account("Harbor Guild"), r.account("Lake Guild")
	b := r.as("olga")
	b.Get("/dashboard/keys").Want(t, http.StatusOK, "owner of Harbor Guild", "Switch to Lake Guild")
	b.Follow(b.post("/dashboard/account", "to", lake.ID)).Want(t, http.StatusOK, "owner of Lake Guild")
	// A form of a tab that still shows the other account does nothing here.
	b.post("/dashboard/new-key", "account", harbor.ID, "name", "x", "mode", "live").
		Want(t, http.StatusConflict, "You are in another account now")
	if keys := append(r.mirror.Keys(harbor.ID), r.mirror.Keys(lake.ID)...); len(keys) != 0 {
		t.Errorf("keys %+v", keys)
	}
	if _, err := r.accounts.RemoveMember(t.Context(), access.Operator(""), harbor.ID, "example",
		"vera"); err != nil {
		t.Fatal(err)
	}
	r.until("the directory knows that vera has left", func() bool {
		return len(r.mirror.AccountsOf("example", "vera")) == 1
	})
	r.as("vera").post("/dashboard/account", "to", harbor.ID).Want(t, http.StatusNotFound)
}

// A page waits for the store for as long as it is configured to, and then says that it is away. Another one,
// which may wait for minutes and has begun before, still waits then.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	patient := newRig(t, setup{store: places.NewWaiting(2*natstest.TestTimeout, places.DefaultWaiting)})
	patient.account("Harbor Guild")
	waits := patient.as("olga")
	r := newRig(t, setup{store: places.NewWaiting(time.Second, places.DefaultWaiting)})
	r.account("Harbor Guild")
	b := r.as("olga")
	patient.away()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		resp, err := waits.Client.Do(waits.Request(http.MethodGet, "/dashboard/keys", "").WithContext(ctx))
		if err == nil {
			err = errors.Join(resp.Body.Close(), fmt.Errorf("answered with %d", resp.StatusCode))
		}
		left <- err
	}()
	r.away()
	begun := time.Now()
	a := b.Get("/dashboard/keys")
	if took := time.Since(begun); took < time.Second {
		t.Errorf("a page waited %s for the store, want one second", took)
	}
	leave()
	if err := natstest.Receive(t, "the other leaves", left); !errors.Is(err, context.Canceled) {
		t.Errorf("the other did not wait until then: %v", err)
	}
	a.Want(t, http.StatusServiceUnavailable, "One moment, please")
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// An address below the dashboard that leads nowhere is answered in the frame of whoever is logged in.
func TestNoSuchPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	open := func(b *browser) answer {
		req := b.Request(http.MethodGet, "/dashboard/no-such-page", "")
		req.Header.Set("Accept", "text/html")
		return b.Do(req)
	}
	open(r.as("vera")).Want(t, http.StatusNotFound, "There is no such page", "Harbor Guild")
	stranger := open(r.browser())
	stranger.Want(t, http.StatusNotFound, "There is no such page")
	stranger.Lacks(t, "Harbor Guild")
}
