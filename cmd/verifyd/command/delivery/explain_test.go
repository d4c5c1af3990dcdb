package delivery

import (
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/timeline"
)

// explain has texts for every state and event, and every sentence is filled in.
func TestEveryStateHasItsWords(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, time.November, 21, 12, 3, 11, 0, time.UTC)
	s := explanation{Report: timeline.Report{Workers: true, Account: "Harbor Guild",
		View: facts.View{Session: sessions.Session{
			ID:        "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral",
			Request:   sessions.Request{CallbackURL: "https://hooks.harbor.example/p?q=1"},
			CreatedAt: at, ExpiresAt: at.Add(sessions.Lifetime),
		}}}}
	good := func(words string) {
		t.Helper()
		if words == "" || strings.ContainsAny(words, "{}%") || strings.Contains(words, "/p") ||
			strings.HasSuffix(words, ": ") {
			t.Errorf("the words are %q", words)
		}
	}
	for _, state := range []sessions.State{sessions.Pending, sessions.Expired, sessions.Canceled} {
		s.State, s.Delivery.State = state, facts.DeliveryNone
		good(s.advice())
	}
	s.State, s.Reason = sessions.Expired, sessions.UnreadableReason
	good(s.advice())
	if said := s.Describe(timeline.Entry{Kind: timeline.EntryExpired}); !strings.Contains(said,
		"cannot be read") {
		t.Errorf("the words are %q", said)
	}
	s.Reason = sessions.NoReason
	for _, state := range []facts.DeliveryState{
		facts.DeliveryDue, facts.DeliveryClaimed, facts.DeliveryDelivered, facts.DeliveryRejected,
		facts.DeliveryUnknown,
		facts.DeliveryUndeliverable,
	} {
		s.State, s.Delivery.State = sessions.Verified, state
		good(s.advice())
	}
	for _, class := range []failure.Class{
		failure.None, failure.DNS, failure.RefusedAddress, failure.Connect,
		failure.Proxy, failure.TLS, failure.Timeout,
		failure.Reset, failure.Protocol, failure.Status, failure.Unsigned,
		failure.Crash, failure.Late,
		failure.Restored, failure.Unreadable,
	} {
		if timeline.Classes[class] == "" {
			t.Errorf("no words for %q", class)
		}
		good(s.Describe(result(facts.Result{Verdict: facts.VerdictReleased, Class: class})))
	}
	for _, c := range []struct {
		entry timeline.Entry
		want  string
	}{
		{event(timeline.Event{Name: timeline.EventOpened}), "The user opened the page"},
		{event(timeline.Event{Name: timeline.EventSignIn, Network: "default"}), "Signing in with default"},
		{event(timeline.Event{Name: timeline.EventReturned, Network: "default"}),
			"The user came back from default"},
		{event(timeline.Event{Name: timeline.EventFinished}), "The user was shown the outcome"},
		{event(timeline.Event{Name: timeline.EventNetworkError, Network: "default", Detail: "no answer"}),
			"No verdict from default: no answer"},
		{event(timeline.Event{Name: timeline.EventNotSent, Class: failure.DNS}),
			"Not sent: the receiver's name did not resolve"},
		{
			event(timeline.Event{
				Name: timeline.EventNotSent, Class: failure.Connect,
				Detail: "hooks.harbor.example refused the connection", Next: 2 * time.Second,
			}),
			"Not sent: hooks.harbor.example refused the connection; next attempt in 2 s",
		},
		{event(timeline.Event{Name: "newer"}), "newer"},
		{timeline.Entry{Kind: timeline.EntryResendRequested,
			Resend: &facts.Resend{Number: 2, By: "operator"}}, "Attempt 2: requested by operator"},
		{result(facts.Result{Verdict: "quantum", Class: "new"}), "quantum: new"},
		{
			result(facts.Result{
				Verdict: facts.VerdictRejected, Detail: "the receiver answered 503", Next: at,
			}),
			"Rejected: the receiver answered 503; next attempt from 12:03:11",
		},
		{
			result(facts.Result{Verdict: facts.VerdictDelivered, Status: 204, Timing: facts.Timing{
				DNS: 3 * time.Millisecond, Connect: 9 * time.Millisecond, TLS: 14 * time.Millisecond,
				FirstByte: time.Second, Total: 38 * time.Millisecond,
			}}),
			"Delivered: 204 in 38 ms (DNS 3 ms, connect 9 ms, TLS 14 ms)",
		},
	} {
		if got := s.Describe(c.entry); got != c.want {
			t.Errorf("says %q, want %q", got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Microsecond: "under 1 ms", 38_400 * time.Microsecond: "38 ms", 1250 * time.Millisecond: "1.3 s",
		75 * time.Second: "75 s",
	} {
		if got := timeline.FormatDuration(d); got != want {
			t.Errorf("%v is written %q", d, got)
		}
	}
	if err := noneKept("x", errors.New("broken")); errors.As(err, new(config.UsageError)) {
		t.Error("a broken store is called a fault of the command line")
	}
}

func event(e timeline.Event) timeline.Entry {
	return timeline.Entry{Kind: timeline.EntryEvent, Event: &e}
}

func result(r facts.Result) timeline.Entry {
	return timeline.Entry{Kind: timeline.EntryResult, Result: &r}
}
