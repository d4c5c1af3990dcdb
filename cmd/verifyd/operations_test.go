package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	sessionstore "verifyd/sessions/store"
)

// finisher completes sessions of a rig as sign-ins would.
func (r *rig) finisher(t *testing.T) func(session string) {
	t.Helper()
	store := sessionstore.New(sessionstore.Config{
		Conn: r.Store.Conn, Key: r.Store.Key,
		Completions: natstest.Writer(t, r.Store.Conn, topology.StreamCompletions),
	})
	return func(session string) {
		t.Helper()
		id := must[sessions.ID](t)(sessions.ParseID(session))
		open := must[sessions.Session](t)(store.ReadOpen(t.Context(), id))
		if _, err := store.Complete(t.Context(), open,
			sessions.Outcome{State: sessions.Verified}); err != nil {
			t.Fatal(err)
		}
	}
}

// An operator pauses a host during deliveries, sees that, and resumes it: what waited arrives, once.
func TestHostsCommand(t *testing.T) {
	t.Parallel()
	r := boot(t)
	finish := r.finisher(t)
	host, _, _ := strings.Cut(strings.TrimPrefix(r.inbox.CallbackURL(), "https://"), "/")
	if code, _, errOut := r.run(t, "hosts", "pause", "--for", "10m", "--reason", "moving", host); code != 0 ||
		!strings.Contains(errOut, "Nothing is sent to "+host) {
		t.Fatalf("%d %s", code, errOut)
	}
	natstest.Await(t, "the dispatcher knows of the pause", func() bool {
		_, known := r.Paused.Of(host)
		return known
	})
	s := r.begin(t)
	finish(s.Session)
	id := string(must[sessions.ID](t)(sessions.ParseID(s.Session)))
	natstest.Await(t, "it waits at the paused host", func() bool {
		_, out, _ := r.run(t, "hosts", "list")
		return regexp.MustCompile(regexp.QuoteMeta(host) +
			` +paused +\S+ +1 +\S+ +until \S+ by operator.*: moving`).MatchString(out)
	})
	if n := r.inbox.count(id); n != 0 || r.api().read(t, s.Session).Delivery.State != "due" {
		t.Errorf("%d POSTs to the paused host", n)
	}
	if _, out, _ := r.run(t, "explain", id); !strings.Contains(out, "paused") ||
		!regexp.MustCompile(`verifyd hosts resume --data-dir \S+ `+regexp.QuoteMeta(host)).MatchString(out) {
		t.Errorf("explain says nothing of the pause:\n%s", out)
	}
	if code, _, errOut := r.run(t, "hosts", "resume", host); code != 0 {
		t.Fatalf("%d %s", code, errOut)
	}
	r.api().until(t, s.Session, "delivered")
	if n := r.inbox.count(id); n != 1 {
		t.Errorf("%d POSTs", n)
	}
	_, out, _ := r.run(t, "operator", "audit")
	for _, want := range []string{"host.paused", "host.resumed", "reason: moving", host} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in the service's log:\n%s", want, out)
		}
	}
	for _, bad := range [][]string{
		{"pause", host, "--for", "25h"}, {"pause", "https://x.example/"},
		{"pause", host, "--reason", strings.Repeat("x", 201)}, {"resume", host}, {"pause", "bad host"},
	} {
		if code, _, errOut := r.run(t, append([]string{"hosts"}, bad...)...); code != exitUsage ||
			strings.Contains(errOut, "callback_url") {
			t.Errorf("%q: %d %s", bad, code, errOut)
		}
	}
}

// Many failed callbacks are sent again by one command, and only the requested ones.
func TestRedriveCommand(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) { c.CallbackRetryFor = time.Nanosecond })
	finish := r.finisher(t)
	address := natstest.Address(t) // where nobody answers
	var lost []string
	for range 3 {
		s := r.api().init(t, map[string]any{
			"platform": "p", "platform_user_id": "u", "callback_url": "https://" + address + "/hook",
		})
		finish(s.Session)
		lost = append(lost, s.Session)
	}
	for _, s := range lost {
		r.api().until(t, s, "undeliverable")
	}
	if code, out, errOut := r.run(t, "deliveries", "redrive", "--state", "undeliverable", "--host",
		"elsewhere.example"); code != 0 || out != "" || !strings.Contains(errOut, "0 are due again") {
		t.Errorf("of another host: %d %s%s", code, out, errOut)
	}
	code, out, errOut := r.run(t, "deliveries", "redrive", "--state", "undeliverable", "--dry-run")
	if code != 0 || strings.Count(out, address) != 3 {
		t.Errorf("a dry run: %d %s%s", code, out, errOut)
	}
	for _, s := range lost {
		if v := r.api().read(t, s); len(v.Delivery.Attempts) != 1 {
			t.Errorf("a dry run made %d attempts", len(v.Delivery.Attempts))
		}
	}
	code, out, errOut = r.run(t, "deliveries", "redrive", "--state", "undeliverable", "--host", address,
		"--account", "Harbor Guild", "--limit", "2")
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(errOut, "2 are due again") {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	again := 0
	for _, s := range lost {
		if strings.Contains(out, string(must[sessions.ID](t)(sessions.ParseID(s)))) {
			again++
			r.api().untilAttempts(t, s, "undeliverable", 2)
		}
	}
	if again != 2 {
		t.Errorf("%d were sent again", again)
	}
	if _, out, _ := r.run(t, "account", "audit", "Harbor Guild"); strings.Count(out,
		"callback.sent_again") != 1 || !strings.Contains(out, "count: 2") {
		t.Errorf("the account's log:\n%s", out)
	}
	for _, bad := range [][]string{
		{}, {"--state", "delivered"}, {"--state", "unknown", "--limit", "101"},
		{"--state", "unknown", "--account", "nobody"}, {"--state", "unknown", "--host", "a b"},
	} {
		if code, _, errOut := r.run(t,
			append([]string{"deliveries", "redrive"}, bad...)...); code != exitUsage {
			t.Errorf("%q: %d %s", bad, code, errOut)
		}
	}
}

func TestOperatorCommand(t *testing.T) {
	t.Parallel()
	r := boot(t)
	grant := func(identity string) (code int, errOut string) {
		t.Helper()
		natstest.Await(t, "the edge answers within the moment that the command gives it", func() bool {
			code, _, errOut = r.run(t, "operator", "grant", identity)
			return !strings.Contains(errOut, "no running edge")
		})
		return code, errOut
	}
	if code, errOut := grant("example:12345"); code != exitUsage ||
		!strings.Contains(errOut, "these do: dev") {
		t.Errorf("a network that is not there: %d %s", code, errOut)
	}
	if code, errOut := grant("dev:olga"); code != 0 || !strings.Contains(errOut, "is an operator") {
		t.Errorf("a network that is there: %d %s", code, errOut)
	}
	if code, _, errOut := r.run(t, "operator", "grant", "--unchecked", "example:12345"); code != 0 ||
		!strings.Contains(errOut, "is an operator") {
		t.Fatalf("%d %s", code, errOut)
	}
	if _, out, _ := r.run(t, "operator", "list"); !strings.Contains(out, "example:12345") {
		t.Errorf("list:\n%s", out)
	}
	if code, _, _ := r.run(t, "operator", "revoke", "example:12345"); code != 0 {
		t.Errorf("revoke: %d", code)
	}
	if code, _, errOut := r.run(t, "operator", "revoke", "example:12345"); code != exitUsage ||
		!strings.Contains(errOut, "no such operator") {
		t.Errorf("a second revoke: %d %s", code, errOut)
	}
	if _, out, _ := r.run(t, "operator", "list"); strings.Contains(out, "example") {
		t.Errorf("list after the revoke:\n%s", out)
	}
	code, out, errOut := r.run(t, "operator", "login-link", "--base-url", r.Base)
	if code != 0 || !strings.HasPrefix(out, r.Base+"/dashboard/link?token=") ||
		!strings.Contains(errOut, "once") {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	link := regexp.MustCompile("link_[a-z0-9]{16}").FindString(errOut)
	if _, out, _ := r.run(t, "operator", "list"); link == "" || !strings.Contains(out, link) {
		t.Errorf("list with the link %s:\n%s", link, out)
	}
	if code, _, errOut := r.run(t, "operator", "revoke", link); code != 0 {
		t.Errorf("revoke the link: %d %s", code, errOut)
	}
	if _, out, _ := r.run(t, "operator", "list"); strings.Contains(out, link) {
		t.Errorf("list after the link was taken back:\n%s", out)
	}
	if _, out, _ := r.run(t, "operator", "audit"); strings.Count(out, "example:12345") != 2 ||
		strings.Count(out, link) != 2 || !strings.Contains(out, "login_link.created") {
		t.Errorf("audit:\n%s", out)
	}
	for _, bad := range [][]string{
		{"grant", "nobody"}, {"grant", ":x"}, {"grant", "example:"}, {"grant", "a\x00b:c"},
		{"login-link", "--base-url", "x"}, {"audit", "--limit=-1"}, {"revoke", "link_*"}, {"revoke", "x"},
		{"revoke", ":x"},
	} {
		if code, _, errOut := r.run(t, append([]string{"operator"}, bad...)...); code != exitUsage {
			t.Errorf("%q: %d %s", bad, code, errOut)
		}
	}
}
