package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/demo"
	"verifyd/dispatcher"
	"verifyd/edge/account"
	"verifyd/edge/account/notice"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// notified is a notice as it is posted.
type notified struct {
	Type    notice.Type    `json:"type"`
	ID      string         `json:"id"`
	Account string         `json:"account"`
	Detail  string         `json:"detail"`
	Data    map[string]any `json:"data"`
}

// notified waits for the next POST, which must be a notice, signed with a secret.
func (r *rig) notified(t *testing.T, secret string) (n notified, header http.Header) {
	t.Helper()
	select {
	case got := <-r.inbox.got:
		hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(secret))
		if err := hook.Verify(got.Body, got.Header); err != nil {
			t.Errorf("the notice is not signed: %v", err)
		}
		if err := json.Unmarshal(got.Body, &n); err != nil {
			t.Fatalf("%s: %v", got.Body, err)
		}
		if id := got.Header.Get("Webhook-Id"); id != n.ID || !strings.HasPrefix(id, "notice_") {
			t.Errorf("webhook-id %s of %s", id, got.Body)
		}
		return n, got.Header
	case <-time.After(2 * maxSoon):
		t.Fatal("no notice came")
		return n, nil
	}
}

// noticed sets the rig's inbox as the account's address for notices, with the command.
func (r *rig) noticed(t *testing.T, address string) account.Account {
	t.Helper()
	if code, _, said := r.run(t, "account", "notices", "Harbor Guild", address); code != 0 {
		t.Fatal(said)
	}
	a := must[account.Account](t)(r.Store.Accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	soon(t, func() bool { known, _ := r.Mirror.Account(a.ID); return known.NoticeURL == address })
	return a
}

// An account is notified of a rotation and of a member by signed POSTs to its address, and callbacks do not
// change.
func TestNoticesArriveByPost(t *testing.T) {
	t.Parallel()
	r := boot(t)
	a := r.noticed(t, r.inbox.CallbackURL())
	if _, err := r.Store.Accounts.RotateSecret(t.Context(), operator(), a.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	n, header := r.notified(t, r.secret) // the old one signs alongside the new
	if n.Type != notice.SecretRotated || n.Account != a.ID || n.Detail == "" {
		t.Errorf("told %+v", n)
	}
	if all := strings.Fields(header.Get("Webhook-Signature")); len(all) < 2 ||
		!strings.HasPrefix(all[0], "v1,") || !strings.HasPrefix(all[len(all)-1], "v1a,") {
		t.Errorf("signatures %q", all)
	}
	if _, err := r.Store.Accounts.AddMember(t.Context(), operator(), a.ID, account.Member{
		Network: "example", Subject: "7", Name: "Zoe", Role: "viewer",
	}); err != nil {
		t.Fatal(err)
	}
	if n, _ = r.notified(t, r.secret); n.Type != notice.MemberJoined || n.Data["name"] != "Zoe" {
		t.Errorf("told %+v", n)
	}
	// A callback is sent independently, to the same receiver, with the body of the contract.
	s := r.begin(t)
	b := demo.NewBrowser()
	must[*demo.Page](t)(b.Press(t.Context(), must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL)),
		"decline"))
	got := <-r.inbox.got
	if string(got.Body) != `{"platform_user_id":"sailor_42","guild_id":"118","verified":false}` {
		t.Errorf("the callback is %s", got.Body)
	}
	if log := r.log.String(); strings.Contains(log, r.inbox.CallbackURL()) {
		t.Error("the address is in the log")
	}
}

// What only this process knows is reported, too: a receiver that fails and recovers, outcomes that wait for a
// person, a quota, and a key.
func TestNoticesReportWhatHappens(t *testing.T) {
	t.Parallel()
	r := alarming(t)
	a := r.noticed(t, r.inbox.CallbackURL())
	attempt := func(session sessions.ID, v facts.Verdict, c failure.Class) {
		r.Receivers.Ended(dispatcher.AttemptEnd{
			Session: session, Account: a.ID, Receiver: "bot.example.com:443", Verdict: v, Class: c,
		})
	}
	told := map[notice.Type]notified{}
	store := notice.NewStore(r.Store.Conn)
	expect := func(types ...notice.Type) {
		t.Helper()
		r.Kill("notice watch") // it looks again as soon as it has started
		natstest.Await(t, "the notices", func() bool {
			if err := r.AccountAlarms.CheckOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			all, err := store.List(t.Context(), a.ID)
			if err != nil {
				return false
			}
			for _, n := range all {
				told[n.Type] = notified{n.Type, n.ID, n.Account, n.Detail, n.Data}
			}
			for _, want := range types {
				if told[want].ID == "" {
					return false
				}
			}
			return len(all) == len(types)
		})
	}
	r.Kill("alarms") // operators' events share the inbox
	if !r.Kill("receivers of accounts") {
		t.Error("nobody checks the receivers of accounts")
	}
	attempt("one", facts.VerdictUnknown, failure.Timeout)
	attempt("two", facts.VerdictUndeliverable, failure.Connect) // in the same hour
	if err := r.Store.Accounts.SetQuota(t.Context(), operator(), a.ID, 2); err != nil {
		t.Fatal(err)
	}
	soon(t, func() bool { known, _ := r.Mirror.Account(a.ID); return known.Quota == 2 })
	r.begin(t)
	expect(notice.OutcomeWaiting, notice.ReceiverFailing, notice.QuotaReached)
	if n := told[notice.OutcomeWaiting]; n.Data["session"] != "one" || n.Data["verdict"] != "unknown" {
		t.Errorf("told %+v", n)
	}
	if n := told[notice.QuotaReached]; n.Data["percent"] != 50.0 {
		t.Errorf("told %+v", n)
	}
	attempt("three", facts.VerdictDelivered, "")
	if _, _, err := r.Store.Accounts.CreateKey(t.Context(), operator(), a.ID, account.KeyOptions{
		Name: "bot", ExpiresAt: r.Clock().Add(4 * time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	soon(t, func() bool { return len(r.Mirror.Keys(a.ID)) == 2 })
	r.pass(3*time.Hour + 30*time.Minute)
	expect(notice.OutcomeWaiting, notice.ReceiverFailing, notice.ReceiverRecovered, notice.QuotaReached,
		notice.KeyExpiring)
	r.pass(time.Hour)
	expect(notice.OutcomeWaiting, notice.ReceiverFailing, notice.ReceiverRecovered, notice.QuotaReached,
		notice.KeyExpiring, notice.KeyExpired)
}

// An address for notices that hangs slows no callback: callbacks arrive while one try of a notice waits for
// its answer, and it is the only one. A machine may be so slow that the try ends meanwhile; then the next one
// counts.
func TestAHangingAddressForNoticesSlowsNoCallback(t *testing.T) {
	t.Parallel()
	r := boot(t)
	hung := newInbox(t)
	defer hung.keepWaiting()()
	r.Config.CallbackRoots.AppendCertsFromPEM(hung.ca.PEM())
	a := r.noticed(t, hung.CallbackURL())
	store := notice.NewStore(r.Store.Conn)
	for _, cause := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"} {
		if err := store.Raise(t.Context(), notice.New(a.ID, notice.MemberJoined, cause, time.Now(), "x",
			nil)); err != nil {
			t.Fatal(err)
		}
	}
	arrived := 0
	for tries := 0; arrived < 3; tries++ {
		if tries == 10 {
			t.Fatalf("%d callbacks arrived while a notice waited, of %d", arrived, tries)
		}
		natstest.Await(t, "a notice waits for its answer", func() bool {
			_, wait := hung.waiting()
			return wait > 0
		})
		before, _ := hung.waiting()
		s := r.begin(t)
		b := demo.NewBrowser()
		page := must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL))
		must[*demo.Page](t)(b.Press(t.Context(), page, "decline"))
		r.api().until(t, s.Session, "delivered")
		came, wait := hung.waiting()
		if wait > 1 {
			t.Errorf("%d POSTs to an address that hangs are under way, want one", wait)
		}
		if came == before && wait == 1 {
			arrived++
		}
	}
}
