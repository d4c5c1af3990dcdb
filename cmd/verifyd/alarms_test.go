package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/service"
	"verifyd/dispatcher"
	"verifyd/edge/account"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
	"verifyd/sessions/pauses"
	"verifyd/sessions/urlpolicy"
)

const alarmSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// alarming boots a program whose operator events come to the rig's inbox.
func alarming(t *testing.T, change ...func(*config.Config)) *rig {
	t.Helper()
	r := boot(t, append(change, func(c *config.Config) {
		c.Alarms = config.Alarms{
			URL: must[urlpolicy.URL](t)(c.CallbackPolicy.Parse("https://127.0.0.1/")), Secret: alarmSecret,
			Failures: 2,
		}
	})...)
	// no event has come yet
	r.Config.Alarms.URL = must[urlpolicy.URL](t)(r.Config.CallbackPolicy.Parse(r.inbox.CallbackURL()))
	return r
}

// told makes the program check until an operator event has arrived, and returns it.
func (r *rig) told(t *testing.T) alarm.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxSoon)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := r.Alarms.CheckOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-r.inbox.got:
			hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(alarmSecret))
			if err := hook.VerifyIgnoringTimestamp(got.Body, got.Header); err != nil {
				t.Errorf("the event is not signed: %v", err)
			}
			at, err := strconv.ParseInt(got.Header.Get("Webhook-Timestamp"), 10, 64)
			// by the program's clock, which tests set
			if late := r.Clock().Sub(time.Unix(at, 0)); err != nil || late.Abs() > maxSoon {
				t.Errorf("the event is signed for %d: %v", at, err)
			}
			var e alarm.Event
			if err := json.Unmarshal(got.Body, &e); err != nil {
				t.Fatalf("%s: %v", got.Body, err)
			}
			if id := got.Header.Get("Webhook-Id"); id != e.ID+"_"+string(e.Status) {
				t.Errorf("webhook-id %s of event %s", id, got.Body)
			}
			return e
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("no event came")
		}
	}
}

// An unreachable receiver is reported to operators by one signed POST, and once more when it has been quiet.
// The certificate that this meets is the alarm address's, which operators renew.
func TestAlarmAboutAFailingReceiver(t *testing.T) {
	t.Parallel()
	r := alarming(t)
	host := natstest.Address(t) // where nobody answers
	for range 2 {
		s := r.api().init(t, map[string]any{
			"platform": "p", "platform_user_id": "u", "callback_url": "https://" + host + "/",
		})
		b := demo.NewBrowser()
		must[*demo.Page](t)(b.Press(t.Context(), must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL)),
			"decline"))
	}
	if e := r.told(t); e.Type != alarm.ReceiverFailing || e.Status != alarm.Raised || e.About != host ||
		e.Data["class"] != "connect" {
		t.Errorf("told %+v", e)
	}
	r.Receivers.Ended(dispatcher.AttemptEnd{Receiver: host, Verdict: facts.VerdictDelivered})
	if e := r.told(t); e.Type != alarm.ReceiverFailing || e.Status != alarm.Resolved || e.About != host {
		t.Errorf("told %+v", e)
	}
	if met := r.Config.Met.List(); len(met) != 1 || met[0].Of != "alarm address 127.0.0.1" || met[0].Foreign {
		t.Errorf("certificates %+v", met)
	}
}

// An account near its quota is reported to operators once, until its quota is raised.
func TestAlarmAboutAQuota(t *testing.T) {
	t.Parallel()
	r := alarming(t)
	a := must[account.Account](t)(r.Store.Accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	if err := r.Store.Accounts.SetQuota(t.Context(), operator(), a.ID, 10); err != nil {
		t.Fatal(err)
	}
	limited := func(quota int64) func() bool {
		return func() bool { known, _ := r.Mirror.Account(a.ID); return known.Quota == quota }
	}
	soon(t, limited(10))
	for range 8 {
		r.begin(t)
	}
	if e := r.told(t); e.Type != alarm.QuotaNear || e.Status != alarm.Raised || e.About != a.ID ||
		e.Data["used"] != 8.0 || e.Data["limit"] != 10.0 {
		t.Errorf("told %+v", e)
	}
	if err := r.Store.Accounts.SetQuota(t.Context(), operator(), a.ID, 100); err != nil {
		t.Fatal(err)
	}
	soon(t, limited(100))
	r.begin(t)
	if e := r.told(t); e.Type != alarm.QuotaNear || e.Status != alarm.Resolved {
		t.Errorf("told %+v", e)
	}
}

// quiet makes the program check a few more times, and checks that nothing is reported again.
func (r *rig) quiet(t *testing.T) {
	t.Helper()
	for range 3 {
		if err := r.Alarms.CheckOnce(t.Context()); err != nil { // it notifies before it returns
			t.Fatal(err)
		}
	}
	select {
	case got := <-r.inbox.got:
		t.Errorf("told once more: %s", got.Body)
	default:
	}
}

// expect waits for an operator event, which is sent once, and returns its data.
func (r *rig) expect(t *testing.T, kind alarm.Type, status alarm.Status, about string) map[string]any {
	t.Helper()
	e := r.told(t)
	if e.Type != kind || e.Status != status || e.About != about || e.Detail == "" || e.Since.IsZero() {
		t.Errorf("told %+v, want %s %s", e, kind, status)
	}
	r.quiet(t)
	return e.Data
}

// pass advances the program's clock.
func (r *rig) pass(d time.Duration) { r.offset.Add(int64(d)) }

// A store that fills up is reported to operators from 80 % of its limit on, until it is below 75 %.
func TestAlarmAboutAStoreThatFills(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the limit of its store")
	const limit = 64 << 20
	r := alarming(t, func(c *config.Config) { c.Store.StoreBytes = limit })
	r.quiet(t)
	fillWithEvents(t, r.Store.Conn, limit*82/100)
	data := r.expect(t, alarm.StoreHigh, alarm.Raised, "")
	if used, ok := data["used_bytes"].(float64); !ok || used < 0.8*limit ||
		data["limit_bytes"] != float64(limit) {
		t.Errorf("data %+v", data)
	}
	// as if they had aged out
	if err := r.Store.Conn.Purge(t.Context(), topology.StreamEvents, ">"); err != nil {
		t.Fatal(err)
	}
	r.expect(t, alarm.StoreHigh, alarm.Resolved, "")
}

// A stream that has no leader, or lacks a copy, is reported to operators after a while, until it is whole
// again.
func TestAlarmAboutADegradedStore(t *testing.T) {
	t.Parallel()
	r := alarming(t)
	natstest.Await(t, "all streams are whole", func() bool {
		streams, _ := provision.Degraded(r.Observer.Health().Streams)
		return len(streams) == 0
	})
	r.quiet(t)
	if err := r.Store.Conn.JS.DeleteStream(t.Context(), topology.StreamEvents); err != nil {
		t.Fatal(err)
	}
	r.Observer.AskOnce(t.Context())
	r.quiet(t)
	r.pass(service.DegradedGrace - time.Second)
	r.quiet(t) // a server that restarts is no event
	r.pass(time.Second)
	if data := r.expect(t, alarm.StoreDegraded, alarm.Raised, ""); !reflect.DeepEqual(data["streams"],
		[]any{topology.StreamEvents}) {
		t.Errorf("data %+v", data)
	}
	natstest.Ensure(t, r.Store.Conn)
	natstest.Await(t, "the stream is back", func() bool {
		r.Observer.AskOnce(t.Context())
		streams, _ := provision.Degraded(r.Observer.Health().Streams)
		return len(streams) == 0
	})
	r.expect(t, alarm.StoreDegraded, alarm.Resolved, "")
}

// A delivery that is older than its retry time is reported to operators until it has ended: here one that
// waits for a paused host.
func TestAlarmAboutAnOldDelivery(t *testing.T) {
	t.Parallel()
	r := alarming(t)
	host, _, _ := strings.Cut(strings.TrimPrefix(r.inbox.CallbackURL(), "https://"), "/")
	book := pauses.NewStore(r.Store.Conn, r.Config.Now)
	must[pauses.Pause](t)(book.Begin(t.Context(), host, "olga", "moving", 12*time.Hour))
	soon(t, func() bool { _, known := r.Paused.Of(host); return known })
	s, b := r.begin(t), demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	r.pass(r.Config.CallbackRetryFor)
	r.quiet(t)
	r.pass(service.BacklogGrace)
	data := r.expect(t, alarm.BacklogOld, alarm.Raised, "")
	if old, ok := data["oldest_seconds"].(float64); !ok ||
		old < (r.Config.CallbackRetryFor+service.BacklogGrace).Seconds() || data["deliveries"] != 1.0 {
		t.Errorf("data %+v", data)
	}
	must[pauses.Pause](t)(book.End(t.Context(), host, "olga"))
	r.api().until(t, s.Session, "delivered")
	if got := <-r.inbox.got; !strings.HasPrefix(got.Header.Get("Webhook-Id"), "cb_") {
		t.Errorf("the callback is %s", got.Body)
	}
	r.expect(t, alarm.BacklogOld, alarm.Resolved, "")
}

// An identity network that does not answer for a while is reported to operators, by its id, until it answers.
func TestAlarmAboutAnUnavailableNetwork(t *testing.T) {
	t.Parallel()
	var back atomic.Bool
	var provider *httptest.Server
	provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": provider.URL, "authorization_endpoint": provider.URL + "/authorize",
			"token_endpoint": provider.URL + "/token", "jwks_uri": provider.URL + "/keys",
			"response_types_supported":              []string{"code"},
			"id_token_signing_alg_values_supported": []string{"RS256"},
			"code_challenge_methods_supported":      []string{"S256"},
		})
	}))
	t.Cleanup(provider.Close)
	r := alarming(t, func(c *config.Config) {
		c.Networks = append(c.Networks, netsettings.Settings{
			ID: "harbor", Name: "Harbor Network", Kind: netsettings.KindOIDC, Issuer: provider.URL,
			ClientID:     "c",
			ClientSecret: "s",
		})
	})
	r.awaitCheck(t, "network harbor", false)
	r.quiet(t) // a restarting provider is no event
	r.pass(service.NetworkGrace)
	if data := r.expect(t, alarm.NetworkUnavailable, alarm.Raised, "harbor"); data["network"] != "harbor" {
		t.Errorf("data %+v", data)
	}
	back.Store(true)
	r.expect(t, alarm.NetworkUnavailable, alarm.Resolved, "harbor")
}

// If it cannot be read whose the identities of a network are, an edge starts without that network; operators
// learn which it is, and users sign in with the others.
func TestStartWithoutANetworkOfUnknownIdentities(t *testing.T) {
	t.Parallel()
	before := boot(t)
	natstest.Publish(t, before.Store.Conn,
		topology.BucketSubject(topology.BucketIdentities, "network.harbor"), []byte(`{"v":1,"network":"har`))
	before.stop()
	r := alarming(t, func(c *config.Config) {
		c.Store = before.Config.Store
		c.Networks = append(c.Networks, netsettings.Settings{
			ID: "harbor", Name: "Harbor Network", Kind: netsettings.KindOIDC, Issuer: "http://127.0.0.1:1",
			ClientID: "c", ClientSecret: "s",
		})
	})
	if status, reason := r.awaitCheck(t, "network harbor", false); status != http.StatusOK ||
		!strings.Contains(reason, "cannot be read") {
		t.Errorf("readyz: %d %q", status, reason)
	}
	if log := r.log.String(); !strings.Contains(log, `"network":"harbor"`) {
		t.Error("the log does not name it")
	}
	r.quiet(t)
	r.pass(service.NetworkGrace)
	r.expect(t, alarm.NetworkUnavailable, alarm.Raised, "harbor")
	r.offset.Store(0)
	s, b := r.begin(t), demo.NewBrowser()
	question := must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL))
	if strings.Contains(question.Text, "Harbor Network") {
		t.Errorf("the network is offered: %q", question.Text)
	}
	must[*demo.Page](t)(b.Press(t.Context(), question, "decline"))
	r.api().until(t, s.Session, "delivered")

	r.stop()
	alone := r.Config
	alone.DevNetwork, alone.Networks = "", alone.Networks[len(alone.Networks)-1:]
	if err := service.New(alone).Serve(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `network "harbor"`) {
		t.Errorf("with no other network it starts: %v", err)
	}
}

// maxSoon bounds the wait for what arrives by a message, or after a pause of seconds.
const maxSoon = natstest.TestTimeout

// soon waits for a condition that a message fulfils.
func soon(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxSoon)
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
