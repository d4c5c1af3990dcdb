package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/places"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// A person who logged in by an operator's link creates an invite for themselves, and opens it in the same
// browser: a login by a link is no particular person, so a login by a network is required first.
func TestInviteOpenedByWhoCameByALoginLink(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	link, _, err := r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	b := r.browser()
	b.Follow(b.post("/dashboard/link", "token", link)).Want(t, http.StatusSeeOther)
	token := between(t, b.Follow(b.post("/dashboard/members/invite", "account", a.ID, "role", "owner")).
		Text(), "invite?token=", "\n")
	path := "/dashboard/invite?token=" + token
	b.Follow(b.Get(path)).Want(t, http.StatusOK, "Log in to the dashboard", "Continue with Example Network")
	b.Follow(b.login("nils", path)).Want(t, http.StatusOK, "Join Harbor Guild?")
	b.Follow(b.post("/dashboard/invite", "token", token)).
		Want(t, http.StatusOK, "You are now a member", "owner of Harbor Guild")
}

// A store that is down says nothing about a visitor's identity.
func TestInviteWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{store: places.NewWaiting(time.Second, places.DefaultWaiting)})
	a := r.account("Harbor Guild")
	token, _, err := r.accounts.CreateInvite(t.Context(), access.Operator(""), a.ID, access.RoleViewer, "")
	if err != nil {
		t.Fatal(err)
	}
	b := r.as("nils")
	r.away()
	b.post("/dashboard/invite", "token", token).Want(t, http.StatusServiceUnavailable, "One moment, please")
}

// fill makes a stream accept nothing more, while it can still be read.
func (r *rig) fill(stream string) {
	r.t.Helper()
	s, err := r.conn.JS.Stream(r.t.Context(), stream)
	if err != nil {
		r.t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.MaxBytes = 1
	if _, err := r.conn.JS.UpdateStream(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
}

// A new key or link that cannot be passed on through the store is shown at once: it exists, and the previous
// key may have ended.
func TestSecretsAreShownThoughTheyCannotBeHandedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	_, k, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{
		Name: "production",
	})
	if err != nil {
		t.Fatal(err)
	}
	r.until("the key is known", r.keys(a, 1))
	b := r.as("olga")
	r.fill(topology.BucketStream(topology.BucketLogins))
	for i, post := range [][]string{
		{"/dashboard/new-key", "name", "second", "mode", "live"},
		{"/dashboard/keys/" + k.ID + "/roll", "grace", "0"},
	} {
		page := r.told("the key", func() answer {
			return b.post(post[0], append([]string{"account", a.ID}, post[1:]...)...)
		}, r.keys(a, i+2))
		page.Want(t, http.StatusOK, "It is shown only once")
		if got := r.start(strings.Fields(between(t, page.Text(), "It is shown only once.",
			"Whoever holds"))[0]); got != http.StatusOK {
			t.Errorf("%s: the key that is shown starts no session: %d", post[0], got)
		}
	}
	b.post("/dashboard/members/invite", "account", a.ID, "role", "viewer").
		Want(t, http.StatusOK, "invite?token="+a.ID)
}

// A change whose record could not be written remains: no page says that nothing happened, and a key is shown
// that may be the only one.
func TestChangeWithoutItsRecordIsUncertain(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("olga")
	r.fill(topology.StreamAudit)
	made := b.post("/dashboard/new-key", "account", a.ID, "name", "x", "mode", "live")
	made.Want(t, http.StatusServiceUnavailable, "so it may not work", "It is shown only once")
	key := secretForm.FindString(made.Text())
	r.until("the key is known", r.keys(a, 1))
	if status := r.start(key); status != http.StatusOK {
		t.Errorf("the key that is shown starts no session: %d", status)
	}
	b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "0").
		Want(t, http.StatusServiceUnavailable, "We are not sure whether that worked")
}

func TestKeyThatNeverExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	r.as("olga").post("/dashboard/new-key", "account", a.ID, "name", "x", "mode", "live", "expires_at",
		"9999-12-31").
		Want(t, http.StatusUnprocessableEntity, "or none")
}

// A browser has one login. Of many cookies with its name only a few are looked up in the store.
func TestManyCookiesCostLittle(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	req := b.Request(http.MethodGet, "/dashboard/keys", "")
	var cookies []string
	for i := range 200 {
		cookies = append(cookies, fmt.Sprintf("verifyd_login=%043d", i))
	}
	req.Header.Set("Cookie", strings.Join(cookies, "; "))
	r.rest() // its polls would be counted
	before := r.conn.NC.Stats().OutMsgs
	b.Do(req).Want(t, http.StatusSeeOther)
	if asked := r.conn.NC.Stats().OutMsgs - before; asked > 20 {
		t.Errorf("%d questions to the store", asked)
	}
}

// The actor of a record is distinguished from others with the same name.
func TestAuditDistinguishesNamesakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	if _, err := r.accounts.AddMember(t.Context(), access.Operator(""), a.ID,
		account.Member{
			Network: "example", Subject: "mallory", Name: "operator", Role: access.RoleDeveloper,
		}); err != nil {
		t.Fatal(err)
	}
	b := r.as("mallory")
	r.until("mallory gets in", func() bool { return b.Get("/dashboard/keys").Status == http.StatusOK })
	b.post("/dashboard/signing/rotate", "account", a.ID, "overlap", "0").Want(t, http.StatusSeeOther)
	page := r.as("olga").Get("/dashboard/audit")
	page.Want(t, http.StatusOK)
	row := between(t, page.Text(), "Signing secret rotated", "Member added")
	if !strings.Contains(row, "example:mallory") {
		t.Errorf("the record reads %q", row)
	}
}

// What one person can create is bounded: every edge holds all accounts and keys in memory, and an account has
// a quota of its own.
func TestAccountsAndKeysAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	nils := r.as("nils")
	made := 0
	for i := range 30 {
		if nils.post("/dashboard/new-account", "name", fmt.Sprintf("Guild %d", i)).
			Status == http.StatusSeeOther {
			made++
		}
		r.until("the directory follows", func() bool {
			return len(r.mirror.AccountsOf("example", "nils")) == made
		})
	}
	if made != 20 {
		t.Errorf("%d accounts", made)
	}
	nils.post("/dashboard/new-account", "name", "One more").
		Want(t, http.StatusUnprocessableEntity, "Ask the operator")

	var k account.Key
	for range 100 {
		var err error
		if _, k, err = r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID,
			account.KeyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.until("the keys are known", r.keys(a, 100))
	b := r.as("olga")
	b.post("/dashboard/new-key", "account", a.ID, "name", "x", "mode", "live").
		Want(t, http.StatusUnprocessableEntity, "keys in 24 hours")
	again := b.post("/dashboard/keys/"+k.ID+"/roll", "account", a.ID, "grace", "1h")
	again.Want(t, http.StatusUnprocessableEntity, "keys in 24 hours")
	if !strings.Contains(again.Body, `<option value="1h" selected>`) {
		t.Errorf("the form does not keep what was chosen:\n%s", again.Body)
	}
	r.clock.advance(25 * time.Hour)
	r.as("olga").post("/dashboard/new-key", "account", a.ID, "name", "x", "mode", "live").
		Want(t, http.StatusSeeOther)
}

// postAlong is post for one of many requests at once.
func (b *browser) postAlong(all *sync.WaitGroup, path string, form url.Values) {
	b.t.Helper()
	req := b.Request(http.MethodPost, path, form.Encode())
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	all.Go(func() {
		resp, err := b.Client.Do(req)
		if err != nil {
			b.t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	})
}

// Many requests at once make no more accounts or keys than one after the other.
func TestBurstsStayWithinTheBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	olga := account.Member{Network: "example", Subject: "olga"}
	for i := range 14 {
		if _, err := r.accounts.CreateAccount(t.Context(), access.Operator(""), fmt.Sprintf("Guild %d", i),
			olga); err != nil {
			t.Fatal(err)
		}
	}
	var keys []account.Key
	for range 95 {
		_, k, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	owned := func() int { return len(r.mirror.AccountsOf("example", "olga")) }
	r.until("the directory follows", func() bool { return owned() == 15 && len(r.mirror.Keys(a.ID)) == 95 })

	b, dev := r.as("olga"), r.as("dev")
	var all sync.WaitGroup
	for i := range 20 {
		b.postAlong(&all, "/dashboard/new-account", url.Values{"name": {fmt.Sprintf("Quay %d", i)}})
		dev.postAlong(&all, "/dashboard/new-key", url.Values{
			"account": {a.ID}, "name": {"x"}, "mode": {"live"},
		})
		dev.postAlong(&all, "/dashboard/keys/"+keys[i].ID+"/roll", url.Values{
			"account": {a.ID}, "grace": {"1h"},
		})
	}
	all.Wait()
	stored := func() (accounts, keys int) {
		t.Helper()
		all, err := r.accounts.Accounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		issued, err := r.accounts.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all), len(issued)
	}
	if accounts, keys := stored(); accounts > 20 || keys > 100 || accounts == 15 || keys == 95 {
		t.Fatalf("after a burst: %d accounts, %d keys", accounts, keys)
	}
	for range 6 {
		dev.post("/dashboard/new-key", "account", a.ID, "name", "x", "mode", "live")
	}
	for i := range 6 {
		b.post("/dashboard/new-account", "name", fmt.Sprintf("Pier %d", i))
	}
	if accounts, keys := stored(); accounts != 20 || keys != 100 {
		t.Errorf("in the end: %d accounts, %d keys", accounts, keys)
	}
}

// open follows a session's page, until the test ends or the server ends it; ended is closed then. The status
// is the answer's.
func (b *browser) open(path string) (status int, ended <-chan struct{}) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	resp, err := b.Client.Do(b.Request(http.MethodGet, path, "").WithContext(ctx))
	if err != nil {
		cancel()
		b.t.Fatal(err)
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
	b.t.Cleanup(func() { cancel(); <-end })
	return resp.StatusCode, end
}

// An open page sends nothing more to a login that has ended, nor to a former member.
func TestOpenPageEndsWithTheLogin(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{poll: 5 * time.Millisecond})
	a := r.account("Harbor Guild")
	path := "/dashboard/sessions/" + string(r.session(a).ID) + "/live"
	for name, end := range map[string]func(b *browser){
		"logout": func(b *browser) {
			b.post("/dashboard/logout", "everywhere", "yes").Want(t, http.StatusSeeOther)
		},
		"removed": func(*browser) {
			if _, err := r.accounts.RemoveMember(t.Context(), access.Operator(""), a.ID, "example",
				"dev"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		b := r.as(map[string]string{"logout": "vera", "removed": "dev"}[name])
		status, ended := b.open(path)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d", name, status)
		}
		end(b)
		select {
		case <-ended:
		case <-time.After(natstest.TestTimeout):
			t.Errorf("%s: the page is still told", name)
		}
	}
}

// One visitor does not take all slots.
func TestOpenPagesOfOneVisitorAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	path := "/dashboard/sessions/" + string(r.session(a).ID) + "/live"
	vera, told := r.as("vera"), 0
	for range 30 {
		if status, _ := vera.open(path); status == http.StatusOK {
			told++
		}
	}
	if told != 10 {
		t.Errorf("%d pages of one visitor are kept up to date", told)
	}
	if status, _ := r.as("olga").open(path); status != http.StatusOK {
		t.Errorf("another visitor's: %d", status)
	}
}
