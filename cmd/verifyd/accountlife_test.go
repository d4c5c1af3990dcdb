package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/account"
	"verifyd/edge/network/netsettings"
	"verifyd/edge/problem"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// A typo creates no account for a key, and no store either, and the nearest names are shown.
func TestKeyCreateMakesNoAccount(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	run := func(args ...string) (int, string) {
		code, out, errOut := verifyd(t, append(args, "--data-dir", dir)...)
		return code, out + errOut
	}
	for _, args := range [][]string{
		{"key", "create", "--account", "Harbor Guild"}, {"account", "create", "Harbor Guild"},
	} {
		if code, said := run(args...); code != exitUsage || !strings.Contains(said, "there is no store") {
			t.Errorf("%v where there is no store: %d %s", args, code, said)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Fatalf("%v made a store", args)
		}
	}
	if code, said := run("account", "create", "Harbor Guild", "--new-store"); code != 0 ||
		!strings.Contains(said, "key create --data-dir "+dir+` --account "Harbor Guild"`) {
		t.Fatalf("%d %s", code, said)
	}
	if code, said := run("key", "create", "--account", "Harbour Guild"); code != exitUsage ||
		!strings.Contains(said, `there is "Harbor Guild"`) {
		t.Errorf("a typo: %d %s", code, said)
	}
	if _, said := run("account", "list"); len(strings.Split(strings.TrimSpace(said), "\n")) != 2 {
		t.Errorf("accounts:\n%s", said)
	}
	if code, said := run("key", "create", "--account", "Harbor Guild", "--quota", "7"); code != exitUsage ||
		!strings.Contains(said, "--quota") {
		t.Errorf("a key with a quota: %d %s", code, said)
	}
}

// Anyone may take a name if the dashboard is open. So that a command creates nothing for a stranger's
// account, and shows nothing of it by mistake, such an account must be named by its id.
func TestNamesOfStrangersAreNotEnough(t *testing.T) {
	t.Parallel()
	r := boot(t)
	eve := account.Member{Network: "dev", Subject: "eve", Name: "Eve"}
	a := must[account.Account](t)(r.Store.Accounts.CreateAccount(t.Context(), eve.Actor(), "Acme", eve))
	for _, args := range [][]string{
		{"key", "create", "--account", "Acme"}, {"account", "secret", "Acme"},
		{"account", "login-link", "Acme", "--base-url", r.Base},
		{"account", "rotate-secret", "Acme"}, {"account", "quota", "Acme", "5"},
		{"account", "rename", "Acme", "B"},
		{"account", "disable", "Acme"}, {"account", "delete", "Acme"}, {"account", "verified", "Acme"},
		{"account", "move-member", "--from", "Acme", "--to", "Acme", "dev:eve"},
		{"account", "restore", "Acme"},
		{"account", "return-url", "Acme", "https://x.example"},
	} {
		code, out, said := r.run(t, args...)
		if code != exitUsage || out != "" ||
			!strings.Contains(said, "created on the dashboard by Eve (dev:eve)") ||
			!strings.Contains(said, a.ID) {
			t.Errorf("%v: %d %q %s", args, code, out, said)
		}
	}
	if code, out, said := r.run(t, "key", "create", "--account", a.ID); code != 0 ||
		!apiKeyForm.MatchString(strings.TrimSpace(out)) || !strings.Contains(said, "of Acme") {
		t.Errorf("by its id: %d %s", code, said)
	}
	if code, out, _ := r.run(t, "account", "show", "Acme"); code != 0 || !strings.Contains(out, "dev:eve") {
		t.Errorf("who only looks: %d %s", code, out)
	}
}

// Keys carry a rate and a policy, accounts a quota, and the lists show each.
func TestQuotaAndRatesAreShown(t *testing.T) {
	t.Parallel()
	r := boot(t)
	do := func(args ...string) string {
		t.Helper()
		code, out, said := r.run(t, args...)
		if code != 0 {
			t.Fatalf("%v: %d %s", args, code, said)
		}
		return out + said
	}
	do("account", "quota", "Harbor Guild", "1234")
	do("key", "create", "--account", "Harbor Guild", "--rate-limit", "5/s", "--policy", "at-least-once")
	keys, show, list := do("key", "list"), do("account", "show", "Harbor Guild"), do("account", "list")
	for what, text := range map[string]string{"key list": keys, "account show": show} {
		if !regexp.MustCompile(`5/s\s+at-least-once`).MatchString(text) ||
			!regexp.MustCompile(`the service's default\s+the service's default`).MatchString(text) {
			t.Errorf("%s:\n%s", what, text)
		}
	}
	if !strings.Contains(show, "1234 sessions a month") || !strings.Contains(list, "1234") {
		t.Errorf("the quota:\n%s\n%s", show, list)
	}
	do("account", "quota", "Harbor Guild", "--default")
	if show := do("account", "show", "Harbor Guild"); !regexp.MustCompile(`Quota\s+the service's default`).
		MatchString(show) {
		t.Errorf("the default:\n%s", show)
	}
	for _, bad := range [][]string{{}, {"5", "--default"}, {"0"}} {
		if code, _, said := r.run(t,
			append([]string{"account", "quota", "Harbor Guild"}, bad...)...); code != exitUsage ||
			!strings.Contains(said, "5000") {
			t.Errorf("%v: %d %s", bad, code, said)
		}
	}
}

// gone waits until a key that was just ended is refused, and returns the refusal. A request later than a
// second after its end is not accepted, however long the answer takes: an edge that cannot know yet answers
// 503. A client that has sent too many invalid keys, as knownSoon does, is refused with a 429.
func (a api) gone(t *testing.T) (header http.Header, answer string) {
	t.Helper()
	ended := time.Now()
	natstest.Await(t, "the key is refused", func() bool {
		asked := time.Since(ended)
		status, h, body := a.call(t, http.MethodGet, "/sessions/x", "")
		if asked > time.Second && status != http.StatusUnauthorized &&
			status != http.StatusServiceUnavailable &&
			!bytes.Contains(body, []byte(problem.CodeTooManyFailedKeys)) {
			t.Fatalf("asked %s after its end, a key gets %d", asked, status)
		}
		header, answer = h, string(body)
		return status == http.StatusUnauthorized
	})
	return header, answer
}

// A disabled account's keys are refused within a second and nobody signs in for it; when it is enabled,
// everything continues.
func TestAccountIsDisabledAndEnabled(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	b := demo.NewBrowser()
	at := atProvider(t, b, s.VerifyURL)
	if code, _, said := r.run(t, "account", "disable", "Harbor Guild"); code != 0 ||
		!strings.Contains(said, "verifyd account enable --") || !strings.Contains(said, `"Harbor Guild"`) {
		t.Fatalf("%d %s", code, said)
	}
	if _, answer := r.api().gone(t); !strings.Contains(answer, `"account_disabled"`) {
		t.Errorf("refused with %s", answer)
	}
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), at, "sign-in")), http.StatusForbidden,
		"Sign-in is not available right now")
	if _, out, _ := r.run(t, "account", "list"); !strings.Contains(out, "disabled since") {
		t.Errorf("list:\n%s", out)
	}
	if code, _, said := r.run(t, "account", "enable", "Harbor Guild"); code != 0 {
		t.Fatal(said)
	}
	natstest.Await(t, "the key works", func() bool { _, err := r.Mirror.Lookup(r.apiKey); return err == nil })
	p := must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL))
	p = must[*demo.Page](t)(b.Press(t.Context(), must[*demo.Page](t)(b.Press(t.Context(), p, "dev")),
		"sign-in"))
	expectTitle(t, p, http.StatusOK, "You are verified")
	r.api().until(t, s.Session, "delivered")
}

// A deleted account's open sessions are canceled, and its results cannot be read; an outcome that was stored
// before is still delivered, once, and signed as before.
func TestDeletedAccountOwesItsOutcomes(t *testing.T) {
	t.Parallel()
	r := boot(t)
	host := strings.TrimPrefix(strings.TrimSuffix(r.inbox.CallbackURL(), demo.CallbackPath), "https://")
	if code, _, said := r.run(t, "hosts", "pause", host, "--for", "1h", "--reason", "test"); code != 0 {
		t.Fatal(said)
	}
	natstest.Await(t, "the host is paused", func() bool {
		p, ok := r.Paused.Of(host)
		return ok && p.Until.After(time.Now())
	})
	owed, open := r.begin(t), r.begin(t)
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, owed.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	if code, _, said := r.run(t, "account", "delete", "Harbor Guild", "--dry-run"); code != 0 ||
		!strings.Contains(said, "Nothing was deleted") {
		t.Fatalf("%d %s", code, said)
	}
	r.api().read(t, open.Session)
	a := must[account.Account](t)(r.Store.Accounts.AccountByName(t.Context(), "Harbor Guild"))
	code, _, said := r.run(t, "account", "delete", "Harbor Guild", "--now")
	if code != 0 || !strings.Contains(said, "1 open sessions were canceled") ||
		!strings.Contains(said, "1 keys") {
		t.Fatalf("%d %s", code, said)
	}
	if _, answer := r.api().gone(t); !strings.Contains(answer, "revoked") {
		t.Errorf("refused with %s", answer)
	}
	natstest.Await(t, "the session is canceled", func() bool {
		p, err := b.Open(t.Context(), open.VerifyURL)
		return err == nil && p.Title() == "No longer needed"
	})
	if _, out, said := r.run(t, "explain", open.Session); !strings.Contains(out,
		"its account was deleted") {
		t.Errorf("explain:\n%s\n%s", out, said)
	}
	if code, _, said := r.run(t, "account", "delete", a.ID, "--now"); code != 0 ||
		!strings.Contains(said, "0 open sessions") {
		t.Errorf("a repeat by its id: %d %s", code, said)
	}
	if code, _, said := r.run(t, "account", "delete", "Harbor Guild", "--now"); code != exitUsage {
		t.Errorf("a repeat by its name: %d %s", code, said)
	}

	if _, out, _ := r.run(t, "account", "audit", a.ID); !strings.Contains(out, "account.deleted") ||
		!strings.Contains(out, "account.sessions_canceled") {
		t.Errorf("its log:\n%s", out)
	}

	// Another account gets the name, and nothing of the old one.
	if code, _, said := r.run(t, "account", "create", "Harbor Guild"); code != exitUsage ||
		!strings.Contains(said, "nobody else can take it until") {
		t.Errorf("the name is free: %d %s", code, said)
	}
	if code, _, said := r.run(t, "account", "create", "Harbor Guild", "--grant"); code != 0 {
		t.Fatal(said)
	}
	key, _ := r.enroll(t, "Harbor Guild")
	for _, s := range []demo.Started{owed, open} {
		if status, _, body := (api{base: r.Base, key: key}).
			call(t, http.MethodGet, "/sessions/"+s.Session, ""); status != http.StatusNotFound {
			t.Errorf("the next of that name reads %d %s", status, body)
		}
	}
	if code, _, said := r.run(t, "hosts", "resume", host); code != 0 {
		t.Fatal(said)
	}
	got := <-r.inbox.got
	hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(r.secret))
	if err := hook.VerifyIgnoringTimestamp(got.Body, got.Header); err != nil {
		t.Errorf("the callback that was owed: %v", err)
	}
	id := sessions.Token(owed.Session).ID()
	natstest.Await(t, "it is settled", func() bool {
		v, err := r.Store.Reader().Read(t.Context(), id)
		return err == nil && v.Delivery.State == facts.DeliveryDelivered
	})
	if n := r.inbox.count(string(id)); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// The commands on an account's life, from its name to its end. They judge names as the running service does.
func TestAccountLifeAtTheCommandLine(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) {
		c.Networks = append(c.Networks, netsettings.Settings{
			ID: "lighthouse", Name: "Lighthouse Network", Kind: netsettings.KindOIDC,
			Issuer: "http://127.0.0.1:1", ClientID: "c", ClientSecret: "s",
		})
	})
	do := func(want int, says string, args ...string) string {
		t.Helper()
		code, out, said := r.run(t, append([]string{"account"}, args...)...)
		if code != want || !strings.Contains(out+said, says) {
			t.Errorf("%v: %d %s%s, want %d %q", args, code, out, said, want, says)
		}
		return out + said
	}
	do(exitUsage, "is reserved", "create", "Discord Support")
	do(exitUsage, "looks like", "create", "Harb0r Guild")
	do(exitUsage, "mixes letters of Cyrillic and Latin", "create", "Pi\u0435r Guild")
	do(exitUsage, "is reserved", "create", "Lighthouse Network")
	do(0, "was created", "create", "Pier Guild")
	do(exitUsage, "is reserved", "rename", "Pier Guild", "lighthouse team")
	do(0, "has verified the name", "verified", "Pier Guild")
	do(0, "verified mark was lost", "rename", "Pier Guild", "Quay Guild")
	do(exitUsage, "was the name of", "create", "Pier Guild")
	do(exitUsage, "is reserved", "rename", "Quay Guild", "Steam")
	do(0, `is now called "Steam"`, "rename", "Quay Guild", "Steam", "--grant")
	do(0, "granted: yes", "audit", "Steam")
	do(0, "has verified the name", "verified", "Steam")
	do(0, "no verified mark", "verified", "Steam", "--remove")

	do(0, "account enable", "disable", "Steam", "--reason", "Its bill is open.")
	do(0, "Its bill is open.", "show", "Steam")
	do(0, "account restore", "delete", "Steam")
	do(0, "deleted on", "list")
	do(0, "is deleted on", "enable", "Steam")
	do(exitUsage, "restore", "enable", "Steam")
	do(0, "in service", "restore", "Steam")
	do(0, "Nothing was deleted", "delete", "Steam", "--dry-run")

	pier := must[account.Account](t)(r.Store.Accounts.AccountByName(t.Context(), "Steam"))
	for _, m := range []account.Member{
		{Network: "dev", Subject: "ada", Role: "owner"}, {Network: "dev", Subject: "eve", Role: "viewer"},
	} {
		if _, err := r.Store.Accounts.AddMember(t.Context(), operator(), pier.ID, m); err != nil {
			t.Fatal(err)
		}
	}
	move := []string{"move-member", "--from", "Steam", "--to", "Harbor Guild"}
	do(exitUsage, "last owner", append(move, "dev:ada")...)
	do(exitUsage, "no such member", append(move, "dev:bob")...)
	do(exitUsage, "owner, developer or viewer", append(move, "dev:eve", "--role", "root")...)
	do(exitUsage, "NETWORK:SUBJECT", append(move, "eve")...)
	do(exitUsage, "no such member", append(move, "mem_"+strings.Repeat("a", 20))...)
	do(0, "developer of Harbor Guild", append(move, "dev:eve", "--role", "developer")...)
	do(0, "dev:eve", "show", "Harbor Guild")
}
