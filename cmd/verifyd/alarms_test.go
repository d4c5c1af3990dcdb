package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/dispatcher"
	"verifyd/edge/account"
	"verifyd/edge/network"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/target"
)

const alarmSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// alarming boots a program whose operator events come to the rig's inbox.
func alarming(t *testing.T, change ...func(*config)) *rig {
	t.Helper()
	r := boot(t, append(change, func(c *config) {
		c.alarms = alarmConfig{url: must[target.URL](t)(c.callbackPolicy.Parse("https://127.0.0.1/")), secret: alarmSecret, failures: 2}
	})...)
	r.c.alarms.url = must[target.URL](t)(r.c.callbackPolicy.Parse(r.inbox.callbackURL())) // no event has come yet
	return r
}

// told lets the program look until an operator event has come, and gives it.
func (r *rig) told(t *testing.T) alarm.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soonMost)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := r.alarms.LookOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-r.inbox.got:
			hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(alarmSecret))
			if err := hook.VerifyIgnoringTimestamp(got.body, got.header); err != nil {
				t.Errorf("the event is not signed: %v", err)
			}
			at, err := strconv.ParseInt(got.header.Get("Webhook-Timestamp"), 10, 64)
			if late := r.clock().Sub(time.Unix(at, 0)); err != nil || late.Abs() > soonMost { // by the program's clock, which tests move
				t.Errorf("the event is signed for %d: %v", at, err)
			}
			var e alarm.Event
			if err := json.Unmarshal(got.body, &e); err != nil {
				t.Fatalf("%s: %v", got.body, err)
			}
			if id := got.header.Get("Webhook-Id"); id != e.ID+"_"+string(e.Status) {
				t.Errorf("webhook-id %s of event %s", id, got.body)
			}
			return e
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("no event came")
		}
	}
}

// A receiver that nobody can reach is told to operators by one signed POST, and once more when it has been quiet.
func TestOperatorsAreToldOfAFailingReceiver(t *testing.T) {
	beside(t)
	r := alarming(t)
	host := natstest.Address(t) // where nobody answers
	for range 2 {
		s := r.api().init(t, map[string]any{"platform": "p", "platform_user_id": "u", "callback_url": "https://" + host + "/"})
		b := newBrowser()
		must[*page](t)(b.press(t.Context(), must[*page](t)(b.open(t.Context(), s.VerifyURL)), "decline"))
	}
	if e := r.told(t); e.Type != alarm.ReceiverFailing || e.Status != alarm.Raised || e.About != host || e.Data["class"] != "connect" {
		t.Errorf("told %+v", e)
	}
	r.receivers.ended(dispatcher.Ending{Receiver: host, Verdict: sessions.VerdictDelivered})
	if e := r.told(t); e.Type != alarm.ReceiverFailing || e.Status != alarm.Resolved || e.About != host {
		t.Errorf("told %+v", e)
	}
}

// An account that comes near its quota is told to operators once, until its quota is raised.
func TestOperatorsAreToldOfAQuota(t *testing.T) {
	beside(t)
	r := alarming(t)
	a := must[account.Account](t)(r.store.accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	if err := r.store.accounts.SetQuota(t.Context(), operator(), a.ID, 10); err != nil {
		t.Fatal(err)
	}
	limited := func(quota int64) func() bool {
		return func() bool { known, _ := r.mirror.Account(a.ID); return known.Quota == quota }
	}
	soon(t, limited(10))
	for range 8 {
		r.begin(t)
	}
	if e := r.told(t); e.Type != alarm.QuotaNear || e.Status != alarm.Raised || e.About != a.ID || e.Data["used"] != 8.0 || e.Data["limit"] != 10.0 {
		t.Errorf("told %+v", e)
	}
	if err := r.store.accounts.SetQuota(t.Context(), operator(), a.ID, 100); err != nil {
		t.Fatal(err)
	}
	soon(t, limited(100))
	r.begin(t)
	if e := r.told(t); e.Type != alarm.QuotaNear || e.Status != alarm.Resolved {
		t.Errorf("told %+v", e)
	}
}

// quiet lets the program look a few more times, and sees that what was told once is not told again.
func (r *rig) quiet(t *testing.T) {
	t.Helper()
	for range 3 {
		if err := r.alarms.LookOnce(t.Context()); err != nil { // it tells before it returns
			t.Fatal(err)
		}
	}
	select {
	case got := <-r.inbox.got:
		t.Errorf("told once more: %s", got.body)
	default:
	}
}

// expect takes an operator event, which is told once, and gives its data.
func (r *rig) expect(t *testing.T, kind alarm.Type, status alarm.Status, about string) map[string]any {
	t.Helper()
	e := r.told(t)
	if e.Type != kind || e.Status != status || e.About != about || e.Detail == "" || e.Since.IsZero() {
		t.Errorf("told %+v, want %s %s", e, kind, status)
	}
	r.quiet(t)
	return e.Data
}

// pass moves the program's clock.
func (r *rig) pass(d time.Duration) { r.offset.Add(int64(d)) }

// A store that fills up is told to operators from 80 % of its limit on, until it is below 75 %.
func TestOperatorsAreToldOfAStoreThatFills(t *testing.T) {
	beside(t)
	natstest.NeedsEmbedded(t, "the limit of its store")
	const limit = 64 << 20
	r := alarming(t, func(c *config) { c.store.storeBytes = limit })
	r.quiet(t)
	fillWithEvents(t, r.store.conn, limit*82/100)
	data := r.expect(t, alarm.StoreHigh, alarm.Raised, "")
	if used, ok := data["used_bytes"].(float64); !ok || used < 0.8*limit || data["limit_bytes"] != float64(limit) {
		t.Errorf("data %+v", data)
	}
	if err := r.store.conn.Purge(t.Context(), natsconf.StreamEvents, ">"); err != nil { // as if they had aged out
		t.Fatal(err)
	}
	r.expect(t, alarm.StoreHigh, alarm.Resolved, "")
}

// A delivery that is older than it may be tried is told to operators until it has ended: here one that waits for a paused host.
func TestOperatorsAreToldOfAnOldDelivery(t *testing.T) {
	beside(t)
	r := alarming(t)
	host, _, _ := strings.Cut(strings.TrimPrefix(r.inbox.callbackURL(), "https://"), "/")
	book := must[*pauses.Store](t)(pauses.NewStore(t.Context(), r.store.conn, r.c.now))
	must[pauses.Pause](t)(book.Begin(t.Context(), host, "olga", "moving", 12*time.Hour))
	soon(t, func() bool { _, known := r.paused.Of(host); return known })
	s, b := r.begin(t), newBrowser()
	expectTitle(t, must[*page](t)(b.press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")), http.StatusOK, "You are verified")
	r.pass(r.c.callbackRetryFor)
	r.quiet(t)
	r.pass(backlogGrace)
	data := r.expect(t, alarm.BacklogOld, alarm.Raised, "")
	if old, ok := data["oldest_seconds"].(float64); !ok || old < (r.c.callbackRetryFor+backlogGrace).Seconds() || data["deliveries"] != 1.0 {
		t.Errorf("data %+v", data)
	}
	must[pauses.Pause](t)(book.End(t.Context(), host, "olga"))
	r.api().until(t, s.Session, "delivered")
	if got := <-r.inbox.got; !strings.HasPrefix(got.header.Get("Webhook-Id"), "cb_") {
		t.Errorf("the callback is %s", got.body)
	}
	r.expect(t, alarm.BacklogOld, alarm.Resolved, "")
}

// An identity network that does not answer for a while is told to operators, by its id, until it answers.
func TestOperatorsAreToldOfANetworkThatIsAway(t *testing.T) {
	beside(t)
	var back atomic.Bool
	var provider *httptest.Server
	provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": provider.URL, "authorization_endpoint": provider.URL + "/authorize", "token_endpoint": provider.URL + "/token", "jwks_uri": provider.URL + "/keys",
			"response_types_supported": []string{"code"}, "id_token_signing_alg_values_supported": []string{"RS256"}, "code_challenge_methods_supported": []string{"S256"},
		})
	}))
	t.Cleanup(provider.Close)
	r := alarming(t, func(c *config) {
		c.networks = append(c.networks, network.Settings{
			ID: "harbor", Name: "Harbor Network", Kind: network.KindOIDC, Issuer: provider.URL, ClientID: "c", ClientSecret: "s",
		})
	})
	r.awaitCheck(t, "network harbor", false)
	r.quiet(t) // a provider that restarts is no event
	r.pass(networkGrace)
	if data := r.expect(t, alarm.NetworkUnavailable, alarm.Raised, "harbor"); data["network"] != "harbor" {
		t.Errorf("data %+v", data)
	}
	back.Store(true)
	r.expect(t, alarm.NetworkUnavailable, alarm.Resolved, "harbor")
}

// soonMost bounds the wait for what comes by a message, or within a pause of seconds.
const soonMost = time.Minute

// soon waits until something holds that comes by a message.
func soon(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soonMost)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it never came")
		}
	}
}

// What one process learns of receivers: which class counts, how many sessions it takes, and what ends it.
func TestReceiversAreWatched(t *testing.T) {
	beside(t)
	now := time.Now()
	r := newReceivers(3, func() time.Time { return now })
	types := func() (ts []alarm.Type) {
		for _, c := range r.conditions(t.Context()) {
			ts = append(ts, c.Type)
		}
		slices.Sort(ts)
		return ts
	}
	fail := func(session sessions.ID, v sessions.Verdict, c sessions.Class) {
		r.ended(dispatcher.Ending{Session: session, Receiver: "bot.example.com:443", Verdict: v, Class: c})
	}
	for _, s := range []sessions.ID{"a", "b", "b", "b"} {
		fail(s, "", sessions.ClassConnect)
	}
	fail("c", sessions.VerdictReleased, sessions.ClassLate)
	fail("d", sessions.VerdictUndeliverable, sessions.ClassUnsigned)
	if got := types(); got != nil {
		t.Errorf("two sessions, and trouble of our own: %v", got)
	}
	fail("e", sessions.VerdictRejected, sessions.ClassStatus)
	if got := types(); !slices.Equal(got, []alarm.Type{alarm.ReceiverFailing}) {
		t.Errorf("three sessions: %v", got)
	}
	fail("f", sessions.VerdictUnknown, sessions.ClassTimeout)
	fail("g", sessions.VerdictDelivered, "")
	if got := types(); !slices.Equal(got, []alarm.Type{alarm.DeliveriesUnknown}) {
		t.Errorf("one unknown, and then it takes callbacks again: %v", got)
	}
	for _, s := range []sessions.ID{"h", "i", "j"} {
		fail(s, sessions.VerdictRejected, sessions.ClassStatus)
	}
	now = now.Add(quietAfter)
	if got := types(); got != nil || len(r.failing) != 0 {
		t.Errorf("a quiet while later: %v", got)
	}
}
