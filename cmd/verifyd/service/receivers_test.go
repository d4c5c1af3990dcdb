package service

import (
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/dispatcher"
	"verifyd/edge/account/notice"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// What one process counts of receivers: which failure class counts, how many sessions it takes, and what ends
// it.
func TestReceiversAreWatched(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := newReceivers(3, func() time.Time { return now })
	types := func() (ts []alarm.Type) {
		for _, c := range r.conditions(t.Context()) {
			ts = append(ts, c.Type)
		}
		slices.Sort(ts)
		return ts
	}
	fail := func(session sessions.ID, v facts.Verdict, c failure.Class) {
		r.Ended(dispatcher.AttemptEnd{
			Session: session, Receiver: "bot.example.com:443", Verdict: v, Class: c,
		})
	}
	for _, s := range []sessions.ID{"a", "b", "b", "b"} {
		fail(s, "", failure.Connect)
	}
	fail("c", facts.VerdictReleased, failure.Late)
	fail("d", facts.VerdictUndeliverable, failure.Unsigned)
	if got := types(); got != nil {
		t.Errorf("two sessions, and trouble of our own: %v", got)
	}
	fail("e", facts.VerdictRejected, failure.Status)
	if got := types(); !slices.Equal(got, []alarm.Type{alarm.ReceiverFailing}) {
		t.Errorf("three sessions: %v", got)
	}
	fail("f", facts.VerdictUnknown, failure.Timeout)
	fail("g", facts.VerdictDelivered, "")
	if got := types(); !slices.Equal(got, []alarm.Type{alarm.DeliveriesUnknown}) {
		t.Errorf("one unknown, and then it takes callbacks again: %v", got)
	}
	for _, s := range []sessions.ID{"h", "i", "j"} {
		fail(s, facts.VerdictRejected, failure.Status)
	}
	now = now.Add(QuietAfter)
	if got := types(); got != nil || len(r.hosts.failing) != 0 {
		t.Errorf("a quiet while later: %v", got)
	}
}

// Nobody has to decide about a callback that is sent again by itself. The notice of the hour is kept for one
// that is not.
func TestUnknownThatIsSentAgainWaitsForNobody(t *testing.T) {
	t.Parallel()
	r := newReceivers(3, time.Now)
	var told []notice.Notice
	r.offer = func(n notice.Notice) { told = append(told, n) }
	end := dispatcher.AttemptEnd{
		Session: "a", Account: "acc_a", Receiver: "bot.example.com:443", Verdict: facts.VerdictUnknown,
		Class: failure.Timeout, Again: true,
	}
	r.Ended(end)
	if events := r.conditions(t.Context()); len(told)+len(events) != 0 {
		t.Errorf("while another attempt follows: %+v, %+v", told, events)
	}
	end.Again = false
	r.Ended(end)
	events := r.conditions(t.Context())
	if len(events) != 1 || events[0].Type != alarm.DeliveriesUnknown || events[0].Data["count"] != 1 {
		t.Errorf("at the end: %+v", events)
	}
	if len(told) != 1 || told[0].Type != notice.OutcomeWaiting {
		t.Errorf("at the end the account is told %+v", told)
	}
}

// That a receiver recovered is said only of one that was seen to accept a callback after its last failure.
func TestRecoveredIsWhatWorked(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := newReceivers(2, func() time.Time { return now })
	end := func(session sessions.ID, v facts.Verdict, c failure.Class, status int) {
		r.Ended(dispatcher.AttemptEnd{
			Session: session, Account: "acc_a", Receiver: "bot.example.com:443", Verdict: v, Class: c,
			Status: status,
		})
	}
	fail := func() {
		end("a", facts.VerdictRejected, failure.Status, 503)
		end("b", facts.VerdictRejected, failure.Status, 502)
	}
	worked := func() bool { return r.worked("acc_a", "bot.example.com:443") }
	end("c", facts.VerdictDelivered, "", 204)
	fail()
	told := r.ofAccounts(t.Context())
	if len(told) != 1 || !strings.HasSuffix(told[0].Detail, "HTTP status 502, of session b.") ||
		told[0].Data["session"] != sessions.ID("b") || told[0].Data["status"] != 502 {
		t.Errorf("told %+v", told)
	}
	now = now.Add(QuietAfter)
	if told := r.ofAccounts(t.Context()); len(told) != 0 || worked() {
		t.Errorf("after silence: %+v, it worked: %t", told, worked())
	}
	fail()
	end("d", facts.VerdictDelivered, "", 204)
	if r.ofAccounts(t.Context()); !worked() {
		t.Error("it accepted a callback, and that is not known")
	}
	if fail(); worked() {
		t.Error("it failed since")
	}
}
