package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

var secretForm = regexp.MustCompile(`\bvfy(test)?_[0-9A-Za-z]{38}\b`)

// start calls POST /verify/init with a key, and returns the status.
func (r *rig) start(key string) int {
	r.t.Helper()
	b := r.browser()
	req := b.Request(http.MethodPost, "/verify/init",
		`{"platform":"p","platform_user_id":"u","callback_url":"https://bot.example.com/verified"}`)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	return b.Do(req).Status
}

// told makes a change, which returns once the directory of keys shows it, so that the next page does. It
// waits for at most a second: after that this waits for the end.
func (r *rig) told(what string, change func() answer, shows func() bool) answer {
	r.t.Helper()
	begun := time.Now()
	a := change()
	if !shows() && time.Since(begun) < time.Second {
		r.t.Errorf("the change did not wait until the directory knows of %s", what)
	}
	r.until("the directory knows of "+what, shows)
	return a
}

// keys reports whether the directory shows this number of keys of an account.
func (r *rig) keys(a account.Account, n int) func() bool {
	return func() bool { return len(r.mirror.Keys(a.ID)) == n }
}

func TestKeyFromItsCreationToItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("dev")
	b.Get("/dashboard/keys").Want(t, http.StatusOK, "No key yet")
	b.Get("/dashboard/new-key").Want(t, http.StatusOK, "20 a second, bursts of 40")
	made := r.told("the key", func() answer {
		return b.post("/dashboard/new-key", "account", a.ID, "name", "production", "mode", "live", "policy",
			"at-least-once", "expires_at", "2030-01-31")
	}, r.keys(a, 1))
	address := b.To(made)
	page := b.Get(address)
	page.Want(t, http.StatusOK, "New key: production", "curl "+r.base+"/verify/init",
		"callbacks: at-least-once", "expires 1 Feb 2030")
	secret := secretForm.FindString(page.Text())
	if strings.Contains(address, secret) || secret == "" {
		t.Fatalf("the key is %q, the address %s", secret, address)
	}
	if status := r.start(secret); status != http.StatusOK {
		t.Errorf("the key starts a session: %d", status)
	}
	b.Follow(b.Get(address)).Want(t, http.StatusOK, "was shown once")
	again := b.Get("/dashboard/keys")
	again.Want(t, http.StatusOK, "production", secret[len(secret)-4:])
	again.Lacks(t, secret)

	key := r.mirror.Keys(a.ID)[0]
	b.Get("/dashboard/keys/"+key.ID+"/roll").Want(t, http.StatusOK, "Roll production?")
	rolled := b.Follow(r.told("the second key", func() answer {
		return b.post("/dashboard/keys/"+key.ID+"/roll", "account", a.ID, "grace", "24h")
	}, r.keys(a, 2)))
	if r.mirror.Keys(a.ID)[0].ReplacedBy == "" {
		t.Error("the directory shows a key's successor, and not that it ends")
	}
	rolled.Want(t, http.StatusOK, "New key: production", "until")
	second := secretForm.FindString(rolled.Text())
	if second == secret || r.start(second) != http.StatusOK || r.start(secret) != http.StatusOK {
		t.Error("both keys should start sessions while the grace lasts")
	}
	b.Follow(b.post("/dashboard/keys/"+key.ID+"/roll", "account", a.ID, "grace", "0")).
		Want(t, http.StatusOK, "already gone")
	r.clock.advance(25 * time.Hour)
	b = r.as("dev") // the login is over, too
	b.Get("/dashboard/keys").Want(t, http.StatusOK, "Inactive keys (1)", "expired")

	fresh := r.mirror.Keys(a.ID)[1]
	b.Get("/dashboard/keys/"+fresh.ID+"/revoke").Want(t, http.StatusOK, "Revoke production?")
	b.Follow(r.told("the revocation", func() answer {
		return b.post("/dashboard/keys/"+fresh.ID+"/revoke", "account", a.ID)
	}, func() bool { return !r.mirror.Keys(a.ID)[1].RevokedAt.IsZero() })).
		Want(t, http.StatusOK, "The key is revoked", "Inactive keys (2)")
	if status := r.start(second); status != http.StatusUnauthorized {
		t.Errorf("the revoked key gets %d", status)
	}
	b.Follow(b.post("/dashboard/keys/"+fresh.ID+"/revoke", "account", a.ID)).
		Want(t, http.StatusOK, "The key is revoked")
}

// A parcel opens only for the login that it was made for.
func TestShownKeyOpensOnlyForItsLogin(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("dev")
	address := b.To(b.post("/dashboard/new-key", "account", a.ID, "name", "production", "mode", "live"))
	r.as("dev").Get(address).Want(t, http.StatusSeeOther)
	r.as("vera").Get(address).Want(t, http.StatusSeeOther)
	b.Get(address).Want(t, http.StatusOK, "New key: production")
	late := b.To(b.post("/dashboard/new-key", "account", a.ID, "name", "second", "mode", "live"))
	r.clock.advance(3 * time.Minute)
	b.Get(late).Want(t, http.StatusSeeOther)
}

func TestFaultyKeysComeBackAsTheyWereTyped(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("dev")
	for name, c := range map[string]struct {
		form []string
		want string
	}{
		"no name": {[]string{"mode", "test", "expires_at", "2031-02-03"}, "Give the key a name"},
		"a long name": {
			[]string{"name", strings.Repeat("n", 65), "mode", "test", "expires_at", "2031-02-03"},
			"at most 64 bytes",
		},
		"no kind": {[]string{"name", "n", "expires_at", "2031-02-03"}, "Choose live or test"},
		"a past day": {
			[]string{"name", "n", "mode", "test", "expires_at", "2001-02-03"}, "That date has passed",
		},
		"no day": {
			[]string{"name", "n", "mode", "test", "expires_at", "tomorrow"}, "Enter a date such as",
		},
		"other policy": {[]string{"name", "n", "mode", "test", "policy", "twice"}, "Choose one of the three"},
	} {
		t.Run(name, func(t *testing.T) {
			page := b.post("/dashboard/new-key", append(c.form, "account", a.ID)...)
			page.Want(t, http.StatusUnprocessableEntity, c.want)
			if strings.Count(page.Body, "autofocus") != 1 || strings.Count(page.Body, `class="fault"`) != 1 {
				t.Errorf("focus and fault in\n%s", page.Body)
			}
			for i := 1; i < len(c.form); i += 2 {
				if c.form[i-1] == "expires_at" && !strings.Contains(page.Body, `value="`+c.form[i]+`"`) {
					t.Errorf("%s is not there any more", c.form[i])
				}
			}
		})
	}
	if keys := r.mirror.Keys(a.ID); len(keys) != 0 {
		t.Errorf("keys %+v", keys)
	}
}

// An action that a role may not take is not offered, and refused anyway.
func TestViewersChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	if _, _, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{
		Name: "production",
	}); err != nil {
		t.Fatal(err)
	}
	r.until("the key", r.keys(a, 1))
	key := r.mirror.Keys(a.ID)[0].ID
	s := r.session(a)
	r.ended(s, sessions.Outcome{State: sessions.Verified}, facts.Result{
		Verdict: facts.VerdictUnknown, Class: failure.Timeout,
	})
	session := "/dashboard/sessions/" + string(s.ID)
	before, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	for who, c := range map[string]struct {
		sees    map[string][]string // what is not on a page
		refused []string
	}{
		"vera": {
			map[string][]string{
				"/dashboard/keys": {"Create a key", "Revoke", "Roll"}, session: {
					"Send again", "curl", "planted-secret",
				},
				"/dashboard/signing":        {"Show secret", "Rotate", "whsec_A"},
				"/dashboard/callbacks":      {"Send again", "Mark as seen", "checkbox"},
				"/dashboard/callbacks/test": {"Send test callback"},
				"/dashboard/members":        {"Invite somebody", "Remove", "Save"},
				"/dashboard/sessions":       {"Audit log"}, "/dashboard/settings": {"Rename", "Delete this " +
					"account"},
			},
			[]string{
				"GET /dashboard/new-key", "POST /dashboard/new-key", "GET /dashboard/keys/" + key + "/revoke",
				"POST /dashboard/keys/" + key + "/revoke",
				"GET /dashboard/keys/" + key + "/roll", "POST /dashboard/keys/" + key + "/roll",
				"POST " + session + "/resend", "POST /dashboard/signing/reveal",
				"POST /dashboard/signing/rotate", "POST /dashboard/signing/end",
				"POST /dashboard/callbacks/test", "POST /dashboard/callbacks/send-again",
				"POST /dashboard/callbacks/seen", "POST /dashboard/members/invite",
				"POST /dashboard/members/withdraw", "POST /dashboard/members/role",
				"GET /dashboard/members/remove", "POST /dashboard/members/remove", "GET /dashboard/audit",
				"POST /dashboard/sign-in-page/look", "POST /dashboard/sign-in-page/return-url",
				"POST /dashboard/sign-in-page/return-origins", "POST /dashboard/settings/name",
				"GET /dashboard/settings/delete", "POST /dashboard/settings/delete",
				"POST /dashboard/settings/restore",
			},
		},
		"dev": {
			map[string][]string{
				"/dashboard/members":  {"Invite somebody", "Remove", "Save"},
				"/dashboard/settings": {"Rename", "Delete this account"},
			},
			[]string{"POST /dashboard/members/invite", "POST /dashboard/members/role",
				"GET /dashboard/members/remove", "POST /dashboard/members/remove",
				"POST /dashboard/members/withdraw",
				"POST /dashboard/sign-in-page/look", "POST /dashboard/sign-in-page/return-url",
				"POST /dashboard/sign-in-page/return-origins", "POST /dashboard/settings/name",
				"GET /dashboard/settings/delete", "POST /dashboard/settings/delete",
				"POST /dashboard/settings/restore",
			},
		},
	} {
		b := r.as(who)
		for path, texts := range c.sees {
			page := b.Get(path)
			page.Want(t, http.StatusOK)
			page.Lacks(t, texts...)
		}
		for _, refused := range c.refused {
			method, path, _ := strings.Cut(refused, " ")
			page := b.Get
			subject := who
			if path == "/dashboard/members/remove" {
				subject = "olga" // they may remove themselves
			}
			if method == http.MethodPost {
				page = func(path string) answer {
					return b.post(path, "account", a.ID, "name", "n", "mode", "live", "grace", "0", "overlap",
						"0", "url", "https://bot.example.com/", "role", "owner", "network", "example",
						"subject", subject)
				}
			}
			page(path).Want(t, http.StatusForbidden, "Your role does not allow this")
		}
	}
	after, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil || len(after.Members) != len(before.Members) || len(after.Invites) != 0 ||
		after.Secrets[0] != before.Secrets[0] || !r.mirror.Keys(a.ID)[0].RevokedAt.IsZero() {
		t.Errorf("something changed: %+v, %v", after, err)
	}
}

// Another account's things do not exist: 404, not 403.
func TestOtherAccountsThingsAreNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	strange, err := r.accounts.CreateAccount(t.Context(), access.Operator(""), "Strangers", account.Member{
		Network: "example", Subject: "eve",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.accounts.CreateKey(t.Context(), access.Operator(""), strange.ID, account.KeyOptions{
		Name: "theirs",
	}); err != nil {
		t.Fatal(err)
	}
	r.until("the key", func() bool { return len(r.mirror.Keys(strange.ID)) == 1 })
	key := r.mirror.Keys(strange.ID)[0].ID
	s := r.session(strange)
	r.ended(s, sessions.Outcome{State: sessions.Verified}, facts.Result{
		Verdict: facts.VerdictUnknown, Class: failure.Timeout,
	})
	own := r.session(a, func(q *sessions.Request) { q.PlatformUserID = "mine" })
	b := r.as("olga")
	for _, path := range []string{
		"/dashboard/keys/" + key + "/revoke", "/dashboard/keys/" + key + "/roll",
		"/dashboard/sessions/" + string(s.ID), "/dashboard/sessions/" + string(s.ID) + "/live",
		"/dashboard/sessions/nonsense", "/dashboard/sessions/" + strings.Repeat("a", 32),
		"/dashboard/members/remove?network=example&subject=eve",
	} {
		b.Get(path).Want(t, http.StatusNotFound, "There is nothing here")
	}
	for _, path := range []string{
		"/dashboard/keys/" + key + "/revoke", "/dashboard/keys/" + key + "/roll",
		"/dashboard/sessions/" + string(s.ID) + "/resend",
	} {
		b.post(path, "account", a.ID, "grace", "0").Want(t, http.StatusNotFound, "There is nothing here")
	}
	list := b.Get("/dashboard/sessions")
	list.Want(t, http.StatusOK, "mine")
	list.Lacks(t, string(s.ID))
	b.Get("/dashboard/sessions/"+string(own.ID)).Want(t, http.StatusOK, "mine")
	b.Follow(b.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "eve")).
		Want(t, http.StatusOK, "already gone")
}

// The last use is read of the keys that are accepted: an account may have thousands that have ended.
func TestUsesOfEndedKeysAreNotRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	var ids [2]string
	for i := range ids {
		_, k, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = k.ID
	}
	if _, err := r.accounts.RevokeKey(t.Context(), access.Operator(""), a.ID, ids[1]); err != nil {
		t.Fatal(err)
	}
	b := r.as("olga")
	r.until("the page shows both", func() bool {
		return strings.Contains(b.Get("/dashboard/keys").Body, "Inactive keys (1)")
	})
	requests, err := r.conn.NC.SubscribeSync("$JS.API.>")
	if err != nil {
		t.Fatal(err)
	}
	b.Get("/dashboard/keys").Want(t, http.StatusOK)
	if err := r.conn.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	asked := ""
	for {
		m, err := requests.NextMsg(time.Millisecond)
		if err != nil {
			break
		}
		asked += m.Subject + string(m.Data) + "\n"
	}
	if !strings.Contains(asked, ids[0]) || strings.Contains(asked, ids[1]) {
		t.Errorf("%s is accepted, %s has ended; the store was asked:\n%s", ids[0], ids[1], asked)
	}
}

// While an account is disabled its members can view and leave it, but neither change nor export anything nor
// see its secret, and its keys are refused. Enabling restores everything.
func TestDisabledAccountIsLookedAt(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	b := r.as("dev")
	key := secretForm.FindString(
		b.Follow(b.post("/dashboard/new-key", "account", a.ID, "name", "bot", "mode", "live", "policy", "")).
			Text())
	r.until("the key is known", r.keys(a, 1))
	r.session(a)
	set := func(disabled bool) {
		t.Helper()
		_, err := r.accounts.Enable(t.Context(), access.Operator(""), a.ID)
		if disabled {
			_, err = r.accounts.Disable(t.Context(), access.Operator(""), a.ID, "Its bill is open.")
		}
		if err != nil {
			t.Fatal(err)
		}
		r.until("the mirror has it", func() bool {
			m, _ := r.mirror.Account(a.ID)
			return m.InService() != disabled
		})
	}
	set(true)
	const banner = "The operator says: Its bill is open."
	for _, path := range []string{
		"/dashboard/keys", "/dashboard/sessions", "/dashboard/members", "/dashboard/audit",
	} {
		b.Get(path).Want(t, http.StatusOK, banner)
	}
	b.Get("/dashboard/keys").Lacks(t, "Create a key", "Revoke")
	b.Get("/dashboard/sessions").Want(t, http.StatusOK, "sailor_42")
	b.Get("/dashboard/sessions").Lacks(t, "JSON lines")
	b.Get("/dashboard/export?format=csv").Want(t, http.StatusForbidden, "This account is disabled")
	b.post("/dashboard/signing/reveal", "account", a.ID).
		Want(t, http.StatusForbidden, "This account is disabled")
	b.Get("/dashboard/new-key").Want(t, http.StatusForbidden, "This account is disabled")
	b.post("/dashboard/new-key", "account", a.ID, "name", "second", "mode", "live", "policy", "").
		Want(t, http.StatusForbidden, "This account is disabled")
	b.post("/dashboard/members/remove", "account", a.ID, "network", "dev", "subject", "ada").
		Want(t, http.StatusForbidden, "This account is disabled")
	if status := r.start(key); status != http.StatusUnauthorized {
		t.Errorf("its key gets %d", status)
	}
	vera := r.as("vera")
	vera.Get("/dashboard/members/remove?network=example&subject=vera").Want(t, http.StatusOK, "Leave")
	vera.post("/dashboard/members/remove", "account", a.ID, "network", "example", "subject", "vera").
		Want(t, http.StatusSeeOther)
	if now, err := r.accounts.Account(t.Context(), a.ID); err != nil || len(now.Members) != 2 {
		t.Errorf("after one has left: %+v, %v", now.Members, err)
	}
	set(false)
	b.Get("/dashboard/sessions").Want(t, http.StatusOK, "JSON lines")
	b.Get("/dashboard/keys").Want(t, http.StatusOK, "Create a key")
	b.Get("/dashboard/keys").Lacks(t, banner)
	if status := r.start(key); status != http.StatusOK {
		t.Errorf("its key gets %d", status)
	}
}

// An account whose record cannot be read keeps nobody from their others: only whoever chose it is told.
func TestUnreadableAccountKeepsNobodyFromOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	first := r.account("A Guild")
	r.account("B Guild")
	b := r.as("dev")
	b.Get("/dashboard/settings").Want(t, http.StatusOK, "A Guild")
	natstest.Publish(t, r.conn, topology.BucketSubject(topology.BucketAccounts, first.ID), []byte(`{"v":99}`))
	b.Get("/dashboard/settings").Want(t, http.StatusOK, "B Guild")
	b.post("/dashboard/account", "to", first.ID).Want(t, http.StatusSeeOther)
	b.Get("/dashboard/settings").Want(t, http.StatusServiceUnavailable, "One moment, please")
}
