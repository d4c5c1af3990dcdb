package main

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf/natstest"
)

// operator changes accounts in the tests: the user who runs them, as in the commands.
var operator = command.Operator

// The operator creates and shows accounts, lets people in and rotates secrets, on a stopped service and on a
// running one.
func TestAccountCommands(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	do := func(wantCode int, args ...string) (out, errOut string) {
		t.Helper()
		code, out, errOut := verifyd(t, append(args, "--data-dir", dir)...)
		if code != wantCode {
			t.Fatalf("%v: exit %d: %s", args, code, errOut)
		}
		return strings.TrimSpace(out), errOut
	}
	contains := func(what, text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", what, want, text)
			}
		}
	}
	_, said := do(0, "account", "create", "Harbor Guild", "--new-store")
	contains("create", said, "acc_", "login-link")
	_, said = do(exitUsage, "account", "create", "Harbor Guild")
	contains("creating it twice", said, "already exists")
	_, said = do(exitUsage, "account", "create", "Har\u202ebor")
	contains("a bad name", said, "printable text")

	key, said := do(0, "key", "create", "--account", "Harbor Guild", "--name", "bot", "--expires", "90d")
	contains("key create", said, "It works until "+time.Now().UTC().Add(90*24*time.Hour).Format("2006-01-02"))
	list, _ := do(0, "key", "list")
	id := strings.Fields(strings.Split(list, "\n")[1])[0]
	contains("key list", list, "EXPIRES", "LAST USED", "bot", "active", id)
	next, said := do(0, "key", "roll", id, "--grace", "1h")
	contains("key roll", said, "replaces "+id, "1h0m0s")
	if !strings.HasPrefix(next, "vfy_") || next == key {
		t.Errorf("the successor is %q", next)
	}
	list, _ = do(0, "key", "list")
	contains("key list after a roll", list, "rolled", "active")

	first, said := do(0, "account", "secret", "Harbor Guild")
	if strings.Contains(said, "still signs") {
		t.Errorf("one secret: %s", said)
	}
	fresh, said := do(0, "account", "rotate-secret", "Harbor Guild", "--overlap", "24h")
	contains("rotate-secret", said, "both signatures until", "Its public key: whpk_")
	_, said = do(exitUsage, "account", "rotate-secret", "Harbor Guild")
	contains("rotating again", said, "end it first")
	secret, said := do(0, "account", "secret", "Harbor Guild")
	contains("two secrets", said, first, "still signs, until", "Its public key: whpk_")
	public := regexp.MustCompile(`whpk_\S{43}=`).FindString(said)
	if secret != fresh || fresh == first {
		t.Error("the current secret is not the new one alone")
	}

	show, _ := do(0, "account", "show", "Harbor Guild")
	contains("show", show, "Harbor Guild", "the service's default", "Previous secret", "0 days ago", public,
		"signs until", "bot", "rolled", "MEMBER")
	if strings.Contains(show, "whsec_") || strings.Contains(show, next) {
		t.Error("show shows a secret")
	}
	do(0, "account", "end-rotation", "Harbor Guild")
	_, said = do(exitUsage, "account", "end-rotation", "Harbor Guild")
	contains("ending it twice", said, "no rotation")

	_, said = do(0, "account", "return-url", "Harbor Guild", "https://harbor.example/verified")
	contains("return-url", said, "Harbor Guild")
	do(0, "account", "colour", "Harbor Guild", "#1F5FD0")
	show, _ = do(0, "account", "show", "Harbor Guild")
	contains("show", show, "https://harbor.example/verified", "#1f5fd0")
	do(0, "account", "colour", "Harbor Guild", "--clear")
	_, said = do(0, "account", "binding", "Harbor Guild", "code", "--max-users", "2")
	contains("binding", said, "Harbor Guild")
	do(0, "account", "binding", "Harbor Guild", "--max-users", "3")
	show, _ = do(0, "account", "show", "Harbor Guild")
	contains("show", show, "code", "Users of an identity")
	do(0, "account", "binding", "Harbor Guild", "--clear")

	link, said := do(0, "account", "login-link", "Harbor Guild", "--role", "developer",
		"--base-url", "https://verify.example.com/x/")
	contains("login-link", said, "works once, until", "developer of Harbor Guild")
	if !strings.HasPrefix(link, "https://verify.example.com/x/dashboard/link?token=") ||
		strings.ContainsAny(link, " \n") {
		t.Errorf("link is %q", link)
	}
	linkID := regexp.MustCompile("link_[a-z0-9]{16}").FindString(said)
	contains("login-link", said, "verifyd account revoke-login-link --data-dir "+dir+
		" \"Harbor Guild\" "+linkID)
	show, _ = do(0, "account", "show", "Harbor Guild")
	contains("show with a link", show, "LOGIN LINK", linkID+"  developer")
	_, said = do(0, "account", "revoke-login-link", "Harbor Guild", linkID)
	contains("revoke-login-link", said, linkID, "Harbor Guild")
	_, said = do(exitUsage, "account", "revoke-login-link", "Harbor Guild", linkID)
	contains("revoking it twice", said, "LINK: no such login link",
		"verifyd account show --data-dir "+dir+" \"Harbor Guild\"")
	if show, _ := do(0, "account", "show", "Harbor Guild"); strings.Contains(show, linkID) {
		t.Errorf("show after the link was taken back:\n%s", show)
	}
	list, _ = do(0, "account", "list")
	contains("list", list, "Harbor Guild", "QUOTA")
	log, _ := do(0, "account", "audit", "Harbor Guild")
	contains("audit", log, "operator", "account.created", "key.created", "key.rolled", "secret.rotated",
		"secret.revealed", "secret.rotation_ended", "return_url.set", "colour.set", "binding.set",
		"users_to: 3", "login_link.created",
		"role: developer")
	if lines := strings.Split(log, "\n"); !strings.Contains(lines[1], "login_link.revoked") ||
		!strings.Contains(lines[len(lines)-1], "account.created") {
		t.Errorf("audit is not newest first:\n%s", log)
	}
	few, _ := do(0, "account", "audit", "Harbor Guild", "--limit", "2")
	if n := len(strings.Split(few, "\n")); n != 3 {
		t.Errorf("audit with a limit has %d lines", n)
	}
	everything := list + log + show
	for _, hidden := range []string{key, next, first, fresh, strings.SplitAfter(link, "token=")[1]} {
		if strings.Contains(everything, hidden) {
			t.Error("a secret is shown by a command that shows none")
		}
	}
}

func TestAccountCommandRefusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	if code, _, errOut := verifyd(t, "account", "create", "a", "--new-store", "--data-dir", dir); code != 0 {
		t.Fatal(errOut)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"account", "show", "nobody"}, "verifyd account list"},
		{[]string{"account", "secret", "nobody"}, "verifyd account list"},
		{[]string{"account", "audit", "nobody"}, "verifyd account list"},
		{[]string{"account", "audit", "a", "--limit=-1"}, "below zero"},
		{[]string{"account", "rotate-secret", "nobody"}, "verifyd account list"},
		{[]string{"account", "rotate-secret", "a", "--overlap", "soon"}, "24h"},
		{[]string{"account", "rotate-secret", "a", "--overlap", "31d"}, "out of range"},
		{[]string{"account", "rotate-secret", "a", "--overlap", "1500ms"}, "whole seconds"},
		{[]string{"account", "end-rotation", "nobody"}, "verifyd account list"},
		{[]string{"account", "return-url", "nobody", "https://x.example"},
			"verifyd account list"},
		{[]string{"account", "return-url", "a", "http://x.example"},
			"https://example.com/verified"},
		{[]string{"account", "return-url", "a"}, "--clear"},
		{[]string{"account", "notices", "a", "http://x.example"}, "absolute https URL"},
		{[]string{"account", "notices", "a"}, "--clear"},
		{[]string{"account", "notices", "a", "https://x.example", "--clear"}, "--clear"},
		{[]string{"account", "return-url", "a", "https://x.example", "--clear"}, "--clear"},
		{[]string{"account", "colour", "a", "red"}, "#1f5fd0"},
		{[]string{"account", "binding", "a", "tight"}, "link, code or account"},
		{[]string{"account", "binding", "a"}, "--max-users"},
		{[]string{"account", "binding", "a", "--max-users", "11"}, "use 1 to 10"},
		{[]string{"account", "login-link", "a"}, "base-url"},
		{[]string{"account", "login-link", "a", "--base-url", "verify.example.com"},
			"https://verify.example.com"},
		{[]string{"account", "login-link", "a", "--base-url", "https://x", "--role", "king"},
			"owner, developer or viewer"},
		{[]string{"account", "login-link", "nobody", "--base-url", "https://x"},
			"verifyd account list"},
		{[]string{"account", "revoke-login-link", "nobody", "link_x"}, "verifyd account list"},
		{[]string{"account", "revoke-login-link", "a", "link_*"}, "verifyd account show"},
		{[]string{"account", "revoke-login-link", "a"}, "<link>"},
		{[]string{"key", "create", "--account", "a", "--expires", "2020-01-01"}, "has passed"},
		{[]string{"key", "create", "--account", "a", "--expires", "soon"}, "2027-01-31"},
		{[]string{"key", "create", "--account", "a", "--expires", "-3h"}, "--expires"},
		{[]string{"key", "create", "--account", "a", "--name", strings.Repeat("x", 65)}, "64 bytes"},
		{[]string{"key", "roll", "key_nobody"}, "verifyd key list"},
		{[]string{"key", "roll", "key_nobody", "--grace", "99d"}, "out of range"},
		{[]string{"key", "roll", "key_nobody", "--grace", "x"}, "24h"},
	} {
		code, _, errOut := verifyd(t, append(c.args, "--data-dir", dir)...)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d: %s", c.args, code, errOut)
		}
	}
}

// Through a rotation callbacks carry both signatures, then one; a rolled key works until its grace is over,
// and is then refused with that reason.
func TestRotationAndRollSeenFromOutside(t *testing.T) {
	t.Parallel()
	r := boot(t)
	a := must[account.Account](t)(r.Store.Accounts.AccountByName(t.Context(), "Harbor Guild"))
	signatures := func() (all string, old, fresh bool) {
		t.Helper()
		s := r.begin(t)
		b := demo.NewBrowser()
		expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
			http.StatusOK, "You are verified")
		got := <-r.inbox.got
		verifies := func(i int) bool {
			current := must[account.Account](t)(r.Store.Accounts.AccountByName(t.Context(), "Harbor Guild"))
			secrets := append([]string{r.secret}, current.Secrets[0].Value)
			hook := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(secrets[i]))
			return hook.VerifyIgnoringTimestamp(got.Body, got.Header) == nil
		}
		return got.Header.Get("Webhook-Signature"), verifies(0), verifies(1)
	}
	must[account.Account](t)(r.Store.Accounts.RotateSecret(t.Context(), operator(), a.ID, time.Hour))
	natstest.Await(t, "both secrets sign", func() bool {
		secrets, _ := r.Mirror.SigningSecrets(a.ID)
		return len(secrets) == 4
	})
	if all, old, fresh := signatures(); len(strings.Fields(all)) != 4 || !old || !fresh {
		t.Errorf("in the overlap: %q, old %t, new %t", all, old, fresh)
	}

	before := r.apiKey
	secret, _, err := r.Store.Accounts.RollKey(t.Context(), operator(), a.ID, r.Mirror.Keys(a.ID)[0].ID,
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Knows(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	r.begin(t) // with the old key
	r.apiKey = secret
	r.offset.Store(int64(2 * time.Hour))
	if all, old, fresh := signatures(); len(strings.Fields(all)) != 2 || old || !fresh {
		t.Errorf("after the overlap: %q, old %t, new %t", all, old, fresh)
	}
	status, _, answer := (api{base: r.Base, key: before}).call(t, http.MethodGet, "/sessions/x", "")
	if status != http.StatusUnauthorized || !strings.Contains(string(answer), "its grace period ended on") {
		t.Errorf("the old key after the grace: %d %s", status, answer)
	}
	natstest.Await(t, "both keys were used", func() bool {
		used, err := r.Store.Accounts.LastUsed(t.Context())
		return err == nil && len(used) == 2
	})
}

// Two people may have one name, and one of them that of the operator.
func TestAuditNamesAreDistinguished(t *testing.T) {
	t.Parallel()
	member := account.Member{Network: "example", Subject: "1", Name: "operator"}
	nameless := account.Member{Network: "example", Subject: "1"}
	for want, who := range map[string]access.Actor{
		"operator": access.Operator(""), "operator (example:1)": member.Actor(),
		"example:1": nameless.Actor(),
	} {
		if got := command.ActorText(who); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
