package timeline_test

import (
	"strings"
	"testing"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
	"verifyd/sessions/timeline"
)

func TestOutcomeWordsNameTheRule(t *testing.T) {
	for want, o := range map[string]sessions.Outcome{
		"Not verified: the network's rules do not accept this identity: min_account_age (discord)": {
			State: sessions.Failed, Reason: sessions.Refused, Rule: failure.RuleAccountAge,
			Network: "discord",
		},
		"Not verified: the network's rules do not accept this identity (discord)": {
			State: sessions.Failed, Reason: sessions.Refused, Network: "discord",
		},
		"Not verified: the user declined": {
			State: sessions.Failed, Reason: sessions.Declined,
		},
	} {
		if got := (timeline.Report{View: facts.View{Outcome: o}}).DescribeOutcome(); got != want {
			t.Errorf("words %q, want %q", got, want)
		}
	}
}

// A host is named as pauses, dispatchers and operators' filters name it, however the callback URL writes it.
func TestHostIsTheDestination(t *testing.T) {
	for raw, want := range map[string]string{
		"https://bot.example.com/x":       "bot.example.com:443",
		"HTTPS://Bot.Example.COM/x":       "bot.example.com:443",
		"https://bot.example.com.:8443/x": "bot.example.com:8443",
		// such a URL is refused; it is shown as it is
		"https://bot.example.com:08443?a=b": "bot.example.com:08443",
		"https://[2001:DB8:0::1]/x":         "[2001:db8::1]:443",
		"https://127.0.0.1:9/x":             "127.0.0.1:9",
		"bot.example.com":                   "-",
	} {
		if got := timeline.Host(sessions.Session{Request: sessions.Request{CallbackURL: raw}}); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// A duration is shown if it is how long an answer took. People who run the service see which process sent,
// others do not.
func TestWordsOfAttempts(t *testing.T) {
	timing := facts.Timing{Connect: 9 * time.Millisecond, Total: 10 * time.Second}
	for want, r := range map[string]facts.Result{
		"Delivered: 204 in 10 s (connect 9 ms)": {
			Verdict: facts.VerdictDelivered, Status: 204, Timing: timing,
		},
		"Unknown: the receiver sent no status line within 10s": {
			Verdict: facts.VerdictUnknown, Class: failure.Timeout,
			Detail: "the receiver sent no status line within 10s", Timing: timing,
		},
		"Undeliverable: bot.example.com refused the connection": {
			Verdict: facts.VerdictUndeliverable, Class: failure.Connect,
			Detail: "bot.example.com refused the connection", Timing: facts.Timing{Total: 1},
		},
	} {
		e := timeline.Entry{Kind: timeline.EntryResult, Result: &r}
		if got := (timeline.Report{}).Describe(e); got != want {
			t.Errorf("words %q, want %q", got, want)
		}
	}
	claim := timeline.Entry{
		Kind: timeline.EntryClaimed, Claim: &facts.Claim{Number: 1, Worker: "edge-1.7"},
	}
	signIn := timeline.Entry{
		Kind: timeline.EntryEvent, Event: &timeline.Event{Name: timeline.EventSignIn, Network: "dev"},
	}
	names := func(string) string { return "Dev Network" }
	for want, got := range map[string]string{
		"Attempt 1: claimed by worker edge-1.7": timeline.Report{Workers: true}.Describe(claim),
		"Attempt 1: claimed":                    timeline.Report{}.Describe(claim),
		"Signing in with Dev Network":           timeline.Report{Networks: names}.Describe(signIn),
		"Signing in with dev":                   timeline.Report{}.Describe(signIn),
	} {
		if got != want {
			t.Errorf("words %q, want %q", got, want)
		}
	}
}

// A session that requires more than a link shows the level, and, once it has ended, what was proven.
func TestWordsOfBindings(t *testing.T) {
	view := func(asked, reached proof.Level, state sessions.State) timeline.Report {
		return timeline.Report{View: facts.View{
			Session: sessions.Session{Request: sessions.Request{Level: asked}},
			Outcome: sessions.Outcome{State: state, Reached: reached},
		}}
	}
	const reached = "the binding reached is "
	for _, row := range []struct {
		report timeline.Report
		kind   timeline.EntryKind
		want   string // empty: it is not mentioned
	}{
		{view(proof.Code, "", sessions.Pending), timeline.EntryCreated, ", binding code"},
		{view(proof.Account, "", sessions.Pending), timeline.EntryCreated, ", binding account"},
		{view(proof.Link, "", sessions.Pending), timeline.EntryCreated, ""},
		{view(proof.Code, proof.Code, sessions.Verified), timeline.EntryCompleted, reached + "code"},
		{view(proof.Code, proof.Link, sessions.Failed), timeline.EntryCompleted, reached + "link"},
		{view(proof.Code, proof.Link, sessions.Expired), timeline.EntryExpired, reached + "link"},
		{view(proof.Account, "", sessions.Expired), timeline.EntryExpired, ""},
		{view(proof.Link, proof.Link, sessions.Verified), timeline.EntryCompleted, ""},
	} {
		got := row.report.Describe(timeline.Entry{Kind: row.kind})
		if !strings.Contains(got, row.want) || row.want == "" && strings.Contains(got, "binding") {
			t.Errorf("%q does not say %q", got, row.want)
		}
	}
}
