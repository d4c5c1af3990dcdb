package dashboard_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf/fleet"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/timeline"
)

// operatorPages are the pages, and operatorPosts the changes, each with a valid form.
var (
	operatorPages = []string{
		"/dashboard/operator", "/dashboard/operator/accounts", "/dashboard/operator/hosts",
		"/dashboard/operator/undelivered", "/dashboard/operator/audit",
	}
	operatorPosts = map[string][]string{
		"/dashboard/operator/hosts/pause":         {"host", "bot.example.com", "for", "1h"},
		"/dashboard/operator/hosts/resume":        {"host", "bot.example.com"},
		"/dashboard/operator/search":              {"q", "x"},
		"/dashboard/operator/undelivered/redrive": {"session", "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral"},
	}
)

func (r *rig) grant(subject string) {
	r.t.Helper()
	if _, err := r.accounts.GrantOperator(r.t.Context(), access.Operator(""), "example",
		subject); err != nil {
		r.t.Fatal(err)
	}
}

// An owner of every account is no operator. A person who was made one at the command line is, and after the
// revocation no longer is at the next click.
func TestOperatorsPagesAreForOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.account("Harbor Guild")
	nobody, olga := r.browser(), r.as("olga")
	refused := func(b *browser, status int) {
		t.Helper()
		for _, path := range operatorPages {
			b.Get(path).Want(t, status)
		}
		for path, form := range operatorPosts {
			b.post(path, form...).Want(t, status)
		}
	}
	refused(nobody, http.StatusSeeOther)
	refused(olga, http.StatusForbidden)
	olga.Get("/dashboard/sessions").Lacks(t, "Operator’s pages")
	if on, err := r.pauses.List(t.Context()); err != nil || len(on) != 0 {
		t.Errorf("somebody who is no operator paused %+v, %v", on, err)
	}

	r.grant("olga")
	for _, path := range operatorPages {
		olga.Get(path).Want(t, http.StatusOK)
	}
	olga.Get("/dashboard/sessions").Want(t, http.StatusOK, "Operator’s pages")
	req := olga.Request(http.MethodPost, "/dashboard/operator/hosts/pause",
		url.Values{"host": {"bot.example.com"}, "for": {"1h"}}.Encode())
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	olga.Do(req).Want(t, http.StatusForbidden)

	// An operator without an account is redirected to the operator's pages.
	r.grant("root")
	root := r.as("root")
	if to := root.To(root.Get("/dashboard/sessions")); !strings.HasSuffix(to, "/dashboard/operator") {
		t.Errorf("an operator without an account is led to %s", to)
	}
	if err := r.accounts.RevokeOperator(t.Context(), access.Operator(""), "example", "olga"); err != nil {
		t.Fatal(err)
	}
	refused(olga, http.StatusForbidden)
}

// A login link for operators leads to their pages, and one for an account does not, whatever its role.
func TestOperatorsLoginLink(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	token, _, err := r.accounts.OperatorLink(t.Context(), access.Operator(""))
	if err != nil {
		t.Fatal(err)
	}
	b := r.browser()
	b.post("/dashboard/link", "token", token).Want(t, http.StatusSeeOther)
	b.Get("/dashboard/operator").Want(t, http.StatusOK, "Login link", "operator of this service")
	if to := b.To(b.Get("/dashboard/keys")); !strings.HasSuffix(to, "/dashboard/operator") {
		t.Errorf("it leads into an account: %s", to)
	}
	b.post("/dashboard/operator/hosts/pause", "host", "bot.example.com", "for", "15m", "reason", "moving").
		Want(t, http.StatusSeeOther)
	b.Get("/dashboard/operator/audit").
		Want(t, http.StatusOK, "operator by login link link_", "Receiver host paused", "reason: moving",
			"Login link created", "Login link used")
	token, _, err = r.accounts.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	owner := r.browser()
	owner.post("/dashboard/link", "token", token).Want(t, http.StatusSeeOther)
	owner.Get("/dashboard/operator").Want(t, http.StatusForbidden)
}

// An operator's login link is revoked: people who redeemed it are no longer operators at the next click, and
// nobody can redeem it any more. A login record that claims to be an operator's is ignored, since an edge's
// credential could write one.
func TestOperatorsLoginLinkIsRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	link := func() (token string, l grant.Link) {
		t.Helper()
		token, l, err := r.accounts.OperatorLink(t.Context(), access.Operator(""))
		if err != nil {
			t.Fatal(err)
		}
		return token, l
	}
	revoke := func(l grant.Link) {
		t.Helper()
		if err := r.accounts.RevokeOperatorLink(t.Context(), access.Operator(""), l.ID); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(b *browser) {
		t.Helper()
		for _, path := range operatorPages {
			b.Get(path).Want(t, http.StatusForbidden)
		}
		for path, form := range operatorPosts {
			b.post(path, form...).Want(t, http.StatusForbidden)
		}
	}
	in := func(token string) *browser {
		t.Helper()
		b := r.browser()
		b.post("/dashboard/link", "token", token).Want(t, http.StatusSeeOther)
		return b
	}
	token, first := link()
	gone := in(token)
	token, second := link()
	stays := in(token)
	gone.Get("/dashboard/operator").Want(t, http.StatusOK)
	revoke(first)
	refused(gone)
	stays.Get("/dashboard/operator").Want(t, http.StatusOK)
	if on, err := r.accounts.Operators(t.Context()); err != nil || len(on) != 1 || on[0].Link != second.ID ||
		on[0].Until.Sub(r.clock.Now()) < logins.Lifetime {
		t.Errorf("operators: %+v, %v", on, err)
	}

	token, unused := link()
	revoke(unused)
	r.browser().post("/dashboard/link", "token", token).Want(t, http.StatusGone)
	if err := r.accounts.RevokeOperatorLink(t.Context(), access.Operator(""), unused.ID); !errors.Is(err,
		grant.ErrNoOperator) {
		t.Errorf("a second time: %v", err)
	}

	cookie := loginCookie(t, r.browser().login("olga"))
	for _, forged := range []logins.Login{
		{Operator: true}, {Operator: true, LinkID: "link_forged"}, {Operator: true, LinkID: first.ID},
	} {
		token, err := r.logins.Begin(t.Context(), forged)
		if err != nil {
			t.Fatal(err)
		}
		b := r.browser()
		req := b.Request(http.MethodGet, "/dashboard/operator", "")
		req.AddCookie(&http.Cookie{Name: cookie.Name, Value: token})
		b.Do(req).Want(t, http.StatusForbidden)
	}
}

func TestOperatorPausesAHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.grant("root")
	b := r.as("root")
	b.Get("/dashboard/operator/hosts").Want(t, http.StatusOK, "No dispatcher responds", "All quiet")
	r.fleet = []fleet.Process{{Host: "m", Roles: []string{"dispatcher"}, Ready: true, Since: time.Now(),
		Hosts: []fleet.Host{
			{Host: "dead.example.com:443", Breaker: "open", Since: time.Now(), Waiting: 7,
				Detail: "dead.example.com refused the connection"},
		}}}
	b.Get("/dashboard/operator/hosts").
		Want(t, http.StatusOK, "dead.example.com:443", "nobody answers", "refused the connection")
	a := b.post("/dashboard/operator/hosts/pause", "host", "dead.example.com", "for", "1h", "reason",
		"they asked <b>us</b>")
	b.Follow(a).Want(t, http.StatusOK, "The host is paused", "paused until", "they asked <b>us</b>")
	on, err := r.pauses.List(t.Context())
	if err != nil || len(on) != 1 || on[0].By != "operator root" || on[0].Until.Sub(on[0].At) != time.Hour {
		t.Fatalf("%+v, %v", on, err)
	}
	b.Get("/dashboard/operator").Want(t, http.StatusOK, "dead.example.com:443", "paused")
	b.Follow(b.post("/dashboard/operator/hosts/resume", "host", "dead.example.com:443")).
		Want(t, http.StatusOK, "sent to the host again")
	b.Follow(b.post("/dashboard/operator/hosts/resume", "host", "dead.example.com:443")).
		Want(t, http.StatusOK, "already gone")
	for _, bad := range []string{"", "https://bot.example.com/", "bot.example.com:99999", "bad host"} {
		refused := b.post("/dashboard/operator/hosts/pause", "host", bad, "for", "1h")
		refused.Want(t, http.StatusUnprocessableEntity)
		refused.Lacks(t, "byte ")
	}
	b.post("/dashboard/operator/hosts/pause", "host", "bot.example.com", "for", "1000h").
		Want(t, http.StatusBadRequest)
	b.post("/dashboard/operator/hosts/pause", "host", "bot.example.com", "for", "1h", "reason",
		strings.Repeat("x", 201)).Want(t, http.StatusUnprocessableEntity)
	b.Get("/dashboard/operator/audit").
		Want(t, http.StatusOK, "Receiver host paused", "Receiver host resumed", "operator root",
			"example:root", "Operator granted")
}

// A callback that waits for its schedule at a forbidden host is with no dispatcher, and no breaker opens: all
// pages with receiver hosts show it, and why. The session's page tells the integrator that its host is
// paused.
func TestHostsAgreeOnWhatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.grant("root")
	a := r.account("Harbor Guild")
	s := r.session(a)
	if _, err := r.store.Complete(t.Context(), s, sessions.Outcome{State: sessions.Verified}); err != nil {
		t.Fatal(err)
	}
	r.store.Emit(timeline.Event{
		Name: timeline.EventNotSent, Session: s.ID, Attempt: 1, Class: failure.RefusedAddress,
		Detail: "10.0.0.7 is a private address", Next: time.Minute,
	})
	r.fleet = []fleet.Process{{Host: "m", Roles: []string{"dispatcher"}, Ready: true, Since: time.Now()}}
	b := r.as("root")
	r.until("the try is stored", func() bool {
		return strings.Contains(b.Get("/dashboard/operator/hosts").Text(), "private address")
	})
	b.Get("/dashboard/operator").Want(t, http.StatusOK, "hooks.example.com:443", "waiting")
	page := b.Get("/dashboard/operator/hosts")
	page.Want(t, http.StatusOK, "hooks.example.com:443", "waiting", "10.0.0.7 is a private address")
	page.Lacks(t, "All quiet")

	vera, path := r.as("vera"), "/dashboard/sessions/"+string(s.ID)
	vera.Get(path).Lacks(t, "has paused")
	if _, err := r.pauses.Begin(t.Context(), "hooks.example.com", "operator root", "a word among operators",
		time.Hour); err != nil {
		t.Fatal(err)
	}
	told := vera.Get(path)
	told.Want(t, http.StatusOK, "The operator of this service has paused hooks.example.com:443 until")
	told.Lacks(t, "a word among operators")
	b.Get("/dashboard/operator/hosts").Want(t, http.StatusOK, "paused until", "a word among operators")
}

// The callbacks that an operator ticks, and no others, are sent again, once each, with a record in each
// account's log.
func TestOperatorSendsManyAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.grant("root")
	one, two := r.account("Harbor Guild"), r.account("Lake Guild")
	verified := sessions.Outcome{State: sessions.Verified, Network: "example"}
	end := func(a account.Account, host string, verdict facts.Verdict) sessions.Session {
		s := r.session(a, func(q *sessions.Request) {
			q.CallbackURL = "https://" + host + "/cb?token=planted-secret"
		})
		r.ended(s, verified, facts.Result{
			Verdict: verdict, Class: failure.Connect, Detail: "nothing listens there",
		})
		return s
	}
	lost, refused := end(one, "dead.example.com", facts.VerdictUndeliverable),
		end(two, "bot.example.com", facts.VerdictRejected)
	unknown, fine := end(two, "bot.example.com", facts.VerdictUnknown),
		end(one, "bot.example.com", facts.VerdictDelivered)
	b := r.as("root")
	page := b.Get("/dashboard/operator/undelivered")
	page.Want(t, http.StatusOK, string(lost.ID), string(refused.ID), string(unknown.ID), "Harbor Guild",
		"dead.example.com:443", "nothing listens there")
	page.Lacks(t, string(fine.ID), "planted-secret")
	page.Lacks(t, " checked")
	for query, want := range map[string]sessions.ID{
		"state=unknown": unknown.ID, "host=dead": lost.ID, "account=lake&state=rejected": refused.ID,
		"account=" + one.ID: lost.ID,
	} {
		filtered := b.Get("/dashboard/operator/undelivered?" + query)
		filtered.Want(t, http.StatusOK, string(want))
		for _, other := range []sessions.ID{lost.ID, refused.ID, unknown.ID} {
			if other != want {
				filtered.Lacks(t, string(other))
			}
		}
	}
	if !strings.Contains(page.Body, `<table class="stack opens">`) {
		t.Error("the rows do not open their sessions")
	}
	find := func(text string) answer { return b.post("/dashboard/operator/search", "q", text) }
	for _, held := range []string{string(lost.ID), "cb_" + string(lost.ID), " " + string(lost.ID)} {
		if to := b.To(find(held)); !strings.HasSuffix(to, "/dashboard/operator/sessions/"+string(lost.ID)) {
			t.Errorf("%q leads to %s", held, to)
		}
	}
	for text, want := range map[string]sessions.ID{"dead": lost.ID, "HARBOR": lost.ID,
		string(refused.ID)[:9]: refused.ID} {
		found := b.Follow(find(text))
		found.Holds(t, string(want), `value="`+text+`"`, "Show all")
		found.Lacks(t, string(unknown.ID))
	}
	b.Follow(find("nowhere")).Want(t, http.StatusOK, "Nothing found")
	if to := b.To(find("")); !strings.HasSuffix(to, "/dashboard/operator/undelivered") {
		t.Errorf("nothing leads to %s", to)
	}
	_, token, err := r.store.Create(t.Context(), sessions.Request{
		Account: one.ID, Platform: "discord", PlatformUserID: "sailor_42",
		CallbackURL: "https://bot.example.com/",
	})
	if err != nil {
		t.Fatal(err)
	}
	if to := b.To(find(token.Reveal())); !strings.HasSuffix(to, string(token.ID())) {
		t.Errorf("a token leads to %s", strings.ReplaceAll(to, token.Reveal(), "itself"))
	}
	unknownToken := strings.Repeat("A", len(token.Reveal()))
	nobody := find(unknownToken)
	nobody.Want(t, http.StatusNotFound, "no such session")
	nobody.Lacks(t, unknownToken)
	b.Get("/dashboard/operator/undelivered?host=nowhere").Want(t, http.StatusOK, "Nothing found")

	again := func(ids ...sessions.ID) answer {
		t.Helper()
		form := url.Values{}
		for _, id := range ids {
			form.Add("session", string(id))
		}
		req := b.Request(http.MethodPost, "/dashboard/operator/undelivered/redrive", form.Encode())
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		return b.Do(req)
	}
	b.Follow(again()).Want(t, http.StatusOK, "Nothing was selected")
	again("../../x").Want(t, http.StatusBadRequest)
	again(slices.Repeat([]sessions.ID{lost.ID}, 101)...).Want(t, http.StatusBadRequest)
	b.Follow(again(lost.ID, refused.ID, fine.ID, "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral")).
		Want(t, http.StatusOK, "on their way again")
	b.Follow(again(lost.ID)).Want(t, http.StatusOK, "already waiting or being sent")
	for id, want := range map[sessions.ID]facts.DeliveryState{
		lost.ID: facts.DeliveryDue, refused.ID: facts.DeliveryDue, unknown.ID: facts.DeliveryUnknown,
		fine.ID: facts.DeliveryDue,
	} {
		if v, err := r.store.Read(t.Context(), id); err != nil || v.Delivery.State != want {
			t.Errorf("%s: %s, %v; want %s", id, v.Delivery.State, err, want)
		}
	}
	for _, a := range []account.Account{one, two} {
		log, err := r.accounts.Audit(t.Context(), a.ID, "", 0)
		if err != nil || log.Records[0].What != audit.CallbackSent ||
			log.Records[0].Who.String() != "operator root" {
			t.Errorf("%s: %+v, %v", a.Name, log.Records, err)
		}
	}
}

func TestOperatorSeesAllAccounts(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.grant("root")
	b := r.as("root")
	b.Get("/dashboard/operator/accounts").Want(t, http.StatusOK, "No account yet")
	for i := range 30 {
		if _, err := r.accounts.CreateAccount(t.Context(), access.Operator(""),
			fmt.Sprintf("Guild %02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	a := r.account("Zebra <Guild>")
	if _, _, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID,
		account.KeyOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("the directory knows all", func() bool {
		all, _ := r.mirror.Accounts("", "", 100)
		return len(all) == 31 && len(r.mirror.Keys(a.ID)) == 1
	})
	first := b.Get("/dashboard/operator/accounts")
	first.Want(t, http.StatusOK, "Guild 00", "Guild 24", "5,000", "Next")
	first.Lacks(t, "Guild 25")
	second := b.Get("/dashboard/operator/accounts?after=Guild+24")
	second.Want(t, http.StatusOK, "Guild 25", "Zebra <Guild>", "First")
	second.Lacks(t, "Guild 24", "Next")
	b.Get("/dashboard/operator/accounts?q=ZEBRA").Want(t, http.StatusOK, "Zebra <Guild>")
	b.Get("/dashboard/operator/accounts?q="+a.ID).Want(t, http.StatusOK, "Zebra <Guild>")
	b.Get("/dashboard/operator/accounts?q=nowhere").Want(t, http.StatusOK, "Nothing found")
}
