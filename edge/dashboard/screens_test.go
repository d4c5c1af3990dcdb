package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/notice"
	"verifyd/edge/chromiumtest"
	sent "verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf/fleet"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/timeline"
)

// Every page at every width and in both colours: nothing sticks out, no rule of axe is broken, and the
// keyboard leads to everything and shows where it is. CONTRIBUTING.md describes how the pictures in
// docs/screens are made.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	tab, axe := chromiumtest.Start(t), chromiumtest.Axe(t)
	r := newRig(t, setup{signIn: true, fresh: true})
	f := furnish(t, r)
	for _, name := range slices.Sorted(maps.Keys(f.pages)) {
		at := f.pages[name]
		setCookies(tab, t, r, at.cookies)
		chromiumtest.Look(tab, t, name, axe, chromedp.Navigate(at.address()), chromiumtest.Everywhere()...)
	}
}

type shownPage struct {
	address func() string // again each time, since some pages show something only once
	cookies []*http.Cookie
}

// furnished is an account with something on every page.
type furnished struct {
	pages map[string]shownPage
}

func furnish(t *testing.T, r *rig) furnished {
	t.Helper()
	a := r.account("Harbor Guild")
	empty := r.account("Lake Guild")
	b := r.browser()
	in := b.login("olga")
	me := []*http.Cookie{loginCookie(t, in)}
	before, err := r.logins.Begin(t.Context(), logins.Login{
		Network: "example", Subject: "olga", SignedInAgo: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	early := []*http.Cookie{{Name: me[0].Name, Value: before}}
	post := func(path string, pairs ...string) func() string {
		return func() string { return b.To(b.post(path, append(pairs, "account", a.ID)...)) }
	}
	at := func(path string) shownPage { return shownPage{func() string { return r.base + path }, me} }
	outside := func(path string) shownPage { return shownPage{func() string { return r.base + path }, nil} }
	for _, k := range []account.KeyOptions{
		{Name: "staging", Test: true}, {Name: "old bot"}, {Name: "production"},
		{Name: "batch import", Policy: sessions.PolicyAtLeastOnce, ExpiresAt: r.clock.Now().AddDate(0, 3, 0)},
	} {
		if _, _, err := r.accounts.CreateKey(t.Context(), access.Operator(""), a.ID, k); err != nil {
			t.Fatal(err)
		}
	}
	r.until("all keys", func() bool { return len(r.mirror.Keys(a.ID)) == 4 })
	key := r.mirror.Keys(a.ID)[2]
	if _, err := r.accounts.RevokeKey(t.Context(), access.Operator(""), a.ID,
		r.mirror.Keys(a.ID)[1].ID); err != nil {
		t.Fatal(err)
	}
	rejected := furnishSessions(t, r, a, key.ID)
	r.callbacks.answer = sent.Exchange{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: 401,
		Detail: "the receiver answered 401 Unauthorized", Address: "203.0.113.7:443",
		Answer: `{"error":"signature missing"}`, Timing: facts.Timing{
			DNS: 3 * time.Millisecond, Connect: 9 * time.Millisecond, TLS: 14 * time.Millisecond,
			FirstByte: 38 * time.Millisecond, Total: 64 * time.Millisecond,
		},
	}
	if err := errors.Join(
		r.accounts.SetColour(t.Context(), access.Operator(""), a.ID, "#1f5fd0"),
		r.accounts.SetReturnURL(t.Context(), access.Operator(""), a.ID, "https://harbor.example/verified"),
	); err != nil {
		t.Fatal(err)
	}
	b.post("/dashboard/members/invite", "account", a.ID, "for", "Nils from the harbour", "role", "viewer").
		Want(t, http.StatusSeeOther)
	token, _, err := r.accounts.CreateInvite(t.Context(), access.Operator(""), empty.ID,
		access.RoleDeveloper, "")
	if err != nil {
		t.Fatal(err)
	}
	guest := r.browser()
	guestIn := []*http.Cookie{loginCookie(t, guest.login("guest"))}
	switched := r.browser()
	switchedIn := []*http.Cookie{loginCookie(t, switched.login("olga"))}
	switched.To(switched.post("/dashboard/account", "to", empty.ID))
	furnishNotices(t, r, a)
	viewer := []*http.Cookie{loginCookie(t, r.browser().login("vera"))}
	operator := furnishService(t, r)
	operating := func(path string) shownPage {
		return shownPage{func() string { return r.base + "/dashboard/operator" + path }, operator}
	}
	return furnished{map[string]shownPage{
		"login":         outside("/dashboard/login"),
		"link":          outside("/dashboard/link?token=x"),
		"logins":        at("/dashboard/logins"),
		"sign-in-again": {func() string { return r.base + "/dashboard/new-key" }, early},
		"gone":          outside("/dashboard/invite?token=x"),
		"welcome":       {func() string { return r.base + "/dashboard/new-account" }, guestIn},
		"invite":        {func() string { return r.base + "/dashboard/invite?token=" + token }, guestIn},
		"sessions":      at("/dashboard/sessions"),
		"session":       at("/dashboard/sessions/" + string(rejected.ID)),
		"empty":         {func() string { return r.base + "/dashboard/sessions" }, switchedIn},
		"no-keys":       {func() string { return r.base + "/dashboard/keys" }, switchedIn},
		"nothing":       at("/dashboard/sessions?user=nobody"),
		"found":         at("/dashboard/sessions?q=sailor&platform=discord&mode=live"),
		"nothing-found": at("/dashboard/sessions?q=nobody&mode=test&reason=declined&to=2026-11-20"),
		"keys":          at("/dashboard/keys"),
		"keys-look":     {func() string { return r.base + "/dashboard/keys" }, viewer},
		"new-key":       at("/dashboard/new-key"),
		"new-key-shown": {post("/dashboard/new-key", "name", "new bot", "mode", "live"), me},
		"revoke":        at("/dashboard/keys/" + key.ID + "/revoke"),
		"roll":          at("/dashboard/keys/" + key.ID + "/roll"),
		"signing":       at("/dashboard/signing"),
		"test":          {post("/dashboard/callbacks/test", "url", "https://bot.example.com/verified"), me},
		"callbacks":     at("/dashboard/callbacks"),
		"none-new":      at("/dashboard/callbacks?shown=seen"),
		"again":         {post("/dashboard/callbacks/send-again", "session", string(rejected.ID)), me},
		"secret":        {post("/dashboard/signing/reveal"), me},
		"usage":         at("/dashboard/usage"),
		"quickstart":    at("/dashboard/quickstart"),
		"members":       at("/dashboard/members"),
		"notices":       at("/dashboard/notices"),
		"no-notices":    {func() string { return r.base + "/dashboard/notices" }, switchedIn},
		"audit":         at("/dashboard/audit"),
		"settings":      at("/dashboard/settings"),
		"delete":        at("/dashboard/settings/delete"),
		"account":       operating("/accounts/" + a.ID),
		"move":          operating("/accounts/" + a.ID + "/move-member?q=lake&member=" + address("dev")),
		"op-session":    operating("/sessions/" + string(rejected.ID)),
		"face":          at("/dashboard/sign-in-page"),
		"operator":      operating(""),
		"accounts":      operating("/accounts"),
		"hosts":         operating("/hosts"),
		"undelivered":   operating("/undelivered"),
		"nothing-lost":  operating("/undelivered?host=nowhere"),
		"service-audit": operating("/audit"),
		"no-operator":   {func() string { return r.base + "/dashboard/operator" }, viewer},
		"forbidden":     {func() string { return r.base + "/dashboard/new-key" }, viewer},
	}}
}

// furnishNotices creates every type of notice for an account, and marks the first as read.
func furnishNotices(t *testing.T, r *rig, a account.Account) {
	t.Helper()
	olga := access.Actor{Kind: access.ActorMember, Network: "example", Subject: "olga"}
	store := notice.NewStore(r.conn)
	for i, c := range []struct {
		kind   notice.Type
		detail string
	}{
		{notice.MemberJoined, "Vera is now viewer of the account."},
		{notice.SecretRotated, "The callback signing secret was rotated by Olga Owner. Put the new one " +
			"into your receiver before the old one ends."},
		{notice.QuotaReached, "80 % of this month's quota is used: 4,000 of 5,000 sessions."},
		{notice.ReceiverFailing, "hooks.example.com:443 did not accept the callbacks of 3 sessions in a " +
			"row; the last failure: HTTP status 503, of session k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral."},
		{notice.ReceiverRecovered, "hooks.example.com:443 accepts callbacks again."},
	} {
		n := notice.New(a.ID, c.kind, "1", r.clock.Now(), c.detail, nil)
		if err := store.Raise(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := store.MarkRead(t.Context(), a.ID, olga, n.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// furnishService returns the service processes, failing receiver hosts and a pause, and returns the cookies
// of
// an operator.
func furnishService(t *testing.T, r *rig) []*http.Cookie {
	t.Helper()
	now := r.clock.Now()
	r.grant("root")
	for _, host := range []string{"hooks.example.com", "[2001:db8::7]:8443"} {
		if _, err := r.pauses.Begin(t.Context(), host, "operator root", "Harbor Guild moves its bot",
			4*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.accounts.Note(t.Context(), access.OperatorWith("example", "root", "root"),
		audit.ServiceLog, audit.HostPaused, "hooks.example.com:443",
		map[string]string{"reason": "Harbor Guild moves its bot"}); err != nil {
		t.Fatal(err)
	}
	quay := r.account("Quay Guild")
	to := func(host string) sessions.Session {
		return r.session(quay, func(q *sessions.Request) { q.CallbackURL = "https://" + host + "/verified" })
	}
	verified := sessions.Outcome{State: sessions.Verified, Network: "example"}
	r.ended(to("hooks.example.com"), verified)
	r.ended(to("bot.quay.example"), verified, facts.Result{
		Verdict: facts.VerdictUndeliverable, Class: failure.Connect,
		Detail: "bot.quay.example refused the connection: nothing listens on that port",
	})
	r.fleet = []fleet.Process{
		{Host: "edge-1", PID: 4711, Version: "v1.4.0", Roles: []string{"edge"}, Ready: true,
			Since: now.Add(-49 * time.Hour)},
		{Host: "edge-2", PID: 4711, Version: "v1.4.0", Roles: []string{"edge"},
			Since: now.Add(-2 * time.Minute), Degraded: []fleet.Failure{
				{Check: "jetstream", Reason: "not connected, reconnecting"},
			}},
		{Host: "sender-1", PID: 12, Version: "v1.4.0", Roles: []string{"dispatcher"}, Ready: true,
			Since:   now.Add(-49 * time.Hour),
			Backlog: &fleet.Backlog{At: now, Waiting: 3, Given: 229, Oldest: now.Add(-8 * time.Minute)},
			Hosts: []fleet.Host{
				{Host: "bot." + strings.Repeat("long-", 11) + "name.example.com:8443", Breaker: "open",
					Since: now.Add(-7 * time.Minute), Waiting: 212,
					Detail: "the certificate expired on 19 November 2026"},
				{Host: "busy.example.com:443", Breaker: fleet.BreakerClosed, Waiting: 17},
			}},
	}
	return []*http.Cookie{loginCookie(t, r.browser().login("root"))}
}

// furnishSessions returns the account sessions of every kind, and returns one whose callback was refused.
func furnishSessions(t *testing.T, r *rig, a account.Account, key string) sessions.Session {
	t.Helper()
	verified := sessions.Outcome{State: sessions.Verified, Network: "example"}
	timing := facts.Timing{
		DNS: 3 * time.Millisecond, Connect: 9 * time.Millisecond, TLS: 14 * time.Millisecond,
		FirstByte: 38 * time.Millisecond, Total: 64 * time.Millisecond,
	}
	start := func(user string, change ...func(*sessions.Request)) sessions.Session {
		return r.session(a, append(change,
			func(q *sessions.Request) { q.PlatformUserID, q.Key = user, key })...)
	}
	start("expired_eddy")
	r.clock.advance(11 * time.Minute)
	hostile := func(q *sessions.Request) { q.Platform, q.GuildID, q.Test = "чат «море»", "שלום", true }
	start("sailor\u202e24_\n"+strings.Repeat("long", 20), hostile)
	r.ended(start("captain"), verified, facts.Result{
		Verdict: facts.VerdictUnknown, Class: failure.Timeout,
		Detail: "the receiver sent no status line within 10s", Timing: timing,
	})
	r.ended(start("bosun"), sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined},
		facts.Result{Verdict: facts.VerdictDelivered, Status: 204, Timing: timing})
	r.ended(start("cook"), sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason})
	for i := range 6 {
		r.ended(start(fmt.Sprintf("mate_%d", i+1)), verified, facts.Result{
			Verdict: facts.VerdictDelivered, Status: 200, Timing: timing,
		})
	}
	s := start("sailor_42")
	r.store.Emit(timeline.Event{Name: timeline.EventSignIn, Session: s.ID, Network: "example"})
	if _, err := r.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	r.store.Emit(timeline.Event{
		Name: timeline.EventNotSent, Session: s.ID, Attempt: 1, Class: failure.Connect,
		Detail: "hooks.example.com refused the connection: nothing listens on that port",
		Next:   2 * time.Second,
	})
	now := r.clock.Now()
	if err := r.store.Claim(t.Context(), facts.Claim{
		Session: s.ID, Number: 1, Worker: "worker-1", At: now, Deadline: now.Add(time.Second),
		SettleAfter: now.Add(time.Minute),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.StoreResult(t.Context(), facts.Result{
		Session: s.ID, Number: 1, Verdict: facts.VerdictRejected, Class: failure.Status, Status: 500,
		Detail:  "the receiver answered 500 Internal Server Error",
		Address: "203.0.113.7:443", Answer: "<html><h1>Internal Server Error</h1></html>", Timing: timing,
		By: "worker-1", At: r.clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

func setCookies(tab context.Context, t *testing.T, r *rig, cookies []*http.Cookie) {
	t.Helper()
	set := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			return err
		}
		for _, c := range cookies {
			if _, err := cdp.Call(ctx, target, network.SetCookie, network.SetCookieParams{
				Name: c.Name, Value: c.Value, URL: r.base,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	chromiumtest.Do(tab, t, set)
}
