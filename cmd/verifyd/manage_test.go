package main

import (
	"bytes"
	"encoding/pem"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
)

// elsewhereRig is the command line on another machine: a process in an empty folder, which has only the
// address of the service, its certificate and a token.
type elsewhereRig struct {
	*rig

	url, dir, ca string
}

// elsewhereOf puts TLS in front of a service, as a proxy does.
func elsewhereOf(t *testing.T, r *rig) *elsewhereRig {
	t.Helper()
	to := must[*url.URL](t)(url.Parse(r.Base))
	forward := func(p *httputil.ProxyRequest) { p.SetURL(to) }
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: forward})
	t.Cleanup(proxy.Close)
	e := &elsewhereRig{rig: r, url: proxy.URL, dir: t.TempDir(), ca: filepath.Join(t.TempDir(), "ca.pem")}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	if err := os.WriteFile(e.ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs a command as a process of its own.
func (e *elsewhereRig) run(t *testing.T, token string, args ...string) (code int, out, errOut string) {
	t.Helper()
	file := filepath.Join(e.dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	var o, eo bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &o, &eo, e.dir
	cmd.Env = []string{
		childVariable + "=1", "VERIFYD_SERVER=" + e.url, "VERIFYD_TOKEN_FILE=" + file,
		"VERIFYD_SERVER_CA_FILE=" + e.ca,
	}
	err := runTied(cmd)
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(e.dir)); len(left) != 1 {
		t.Errorf("%v made %v", args, left)
	}
	if token != "" && strings.Contains(eo.String(), token) {
		t.Errorf("%v shows the token: %s", args, eo.String())
	}
	return cmd.ProcessState.ExitCode(), o.String(), eo.String()
}

// newToken creates an operator token on the service's machine.
func (r *rig) newToken(t *testing.T, scopes string) string {
	t.Helper()
	code, out, errOut := r.run(t, "operator", "token", "create", "--name", "deploy", "--scope", scopes)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	return strings.TrimSpace(out)
}

// The command line also manages accounts, keys and members from another machine, over TLS, with a token and
// without the store; the audit log names the token.
func TestAccountsAreManagedFromElsewhere(t *testing.T) {
	t.Parallel()
	r := boot(t)
	e := elsewhereOf(t, r)
	token := r.newToken(t, "accounts:write,keys:write,members:write,secrets:write,audit:read")
	do := func(want int, says string, args ...string) string {
		t.Helper()
		code, out, errOut := e.run(t, token, args...)
		if code != want || !strings.Contains(out+errOut, says) {
			t.Fatalf("%q: exit %d, want %d and %q: %s%s", args, code, want, says, out, errOut)
		}
		return out
	}
	do(0, "was created", "account", "create", "Pier Guild")
	do(2, "account_exists", "account", "create", "Pier Guild")
	do(0, "5000 sessions", "account", "quota", "Pier Guild", "5000")
	do(0, "default", "account", "quota", "Pier Guild", "--default")
	do(2, "#1f5fd0", "account", "colour", "Pier Guild", "red")
	do(0, "show the change", "account", "colour", "Pier Guild", "#1f5fd0")
	do(0, "show the change", "account", "return-url", "Pier Guild", "https://pier.example/")
	do(0, "to pier.example:443", "account", "notices", "Pier Guild",
		"https://pier.example/n/HIDDEN")
	do(2, "URL", "account", "notices", "Pier Guild", "http://pier.example/")
	do(0, "from now on", "account", "binding", "Pier Guild", "code", "--max-users", "2")
	do(0, `now called "Pier"`, "account", "rename", "Pier Guild", "Pier")
	do(0, "the name of Pier", "account", "verified", "Pier")
	do(0, "is disabled", "account", "disable", "Pier", "--reason", "Its bill is open.")
	do(0, "disabled since", "account", "list")
	do(0, "in service", "account", "enable", "Pier")
	do(0, "is deleted on", "account", "delete", "Pier")
	do(0, "was canceled", "account", "restore", "Pier")
	do(2, "only on the store", "account", "delete", "Pier", "--now")
	do(2, "only on the store", "account", "create", "Quay", "--new-store")
	do(2, "verifyd account rotate-secret", "account", "secret", "Pier")
	do(2, "verifyd member invite", "account", "login-link", "Pier", "--base-url", r.Base)
	do(2, "no edge can write", "account", "revoke-login-link", "Pier", "link_a")
	do(2, "no edge can write", "operator", "list")
	do(2, "no edge can write", "operator", "token", "list")
	do(2, "no such account", "account", "quota", "Nobody", "5")
	id := account.IDOf("Pier Guild")
	secret := strings.TrimSpace(do(0, "API key key_", "key", "create", "--account", "Pier",
		"--name", "production", "--expires", "90d", "--rate-limit", "5/s", "--policy", "at-least-once"))
	natstest.Await(t, "the key works", func() bool {
		who, err := r.Mirror.Lookup(secret)
		return err == nil && who.Account.ID == id
	})
	key := regexp.MustCompile(`key_[a-z2-7]+`).FindString(do(0, "5/s", "key", "list"))
	for _, k := range r.Mirror.Keys(id) {
		key = k.ID
	}
	rolled := strings.TrimSpace(do(0, "replaces", "key", "roll", key, "--grace", "0"))
	do(2, "was already rolled", "key", "roll", key)
	do(0, "was revoked on", "key", "revoke", key)
	do(2, "no such API key", "key", "revoke", "key_aaaaaaaaaaaaaaaa")
	natstest.Await(t, "the rolled key works, and the other does not", func() bool {
		_, gone := r.Mirror.Lookup(secret)
		_, err := r.Mirror.Lookup(rolled)
		return err == nil && gone != nil
	})
	link := do(0, "a password", "member", "invite", "--account", "Pier", "--role", "owner", "--for", "Ann")
	if !strings.HasPrefix(link, r.Base+"/dashboard/invite?token=") {
		t.Errorf("the link is %q", link)
	}
	at := must[*url.URL](t)(url.Parse(strings.TrimSpace(link)))
	accounts := r.Store.Accounts
	ann, bob := account.Member{Network: "example", Subject: "1"}, account.Member{
		Network: "example", Subject: "2", Role: access.RoleViewer,
	}
	must[account.Account](t)(accounts.AcceptInvite(t.Context(), at.Query().Get("token"), ann))
	must[account.Account](t)(accounts.AddMember(t.Context(), access.Operator(""), id, bob))
	do(0, "example:2", "member", "list", "--account", "Pier")
	list := do(0, bob.Identity().Address(), "member", "list", "--account", "Pier")
	bobs := regexp.MustCompile(`mem_[a-z2-7]{20}\b.*example:2`).FindString(list)
	bobs, _, _ = strings.Cut(bobs, " ")
	do(0, "is developer", "member", "role", "--account", "Pier", bobs, "--to", "developer")
	do(2, "no such member", "member", "remove", "--account", "Pier", bobs[:20])
	do(2, "last owner", "member", "remove", "--account", "Pier", "example:1")
	do(0, "is owner", "member", "role", "--account", "Pier", "example:2", "--to", "owner")
	do(0, "no longer a member", "member", "remove", "--account", "Pier", "example:1")
	do(0, "a password", "member", "invite", "--account", "Pier")
	invite := regexp.MustCompile(`inv_[a-z2-7]+`).FindString(do(0, "inv_", "member", "list", "--account", "Pier"))
	do(0, "no longer lets anybody", "member", "withdraw", "--account", "Pier", invite)

	e.secretsAndMoves(t, do, id)
	do(0, "operator token deploy (optok_", "account", "audit", id, "--limit", "150")
	code, out, errOut := r.run(t, "account", "audit", id, "--limit", "0")
	if code != 0 || strings.Count(out, "operator token deploy (optok_") < 15 {
		t.Errorf("the audit log: exit %d: %s%s", code, out, errOut)
	}
	if strings.Contains(r.log.String(), token) || strings.Contains(r.log.String(), secret) {
		t.Error("the service's log has a secret")
	}
}

// secretsAndMoves rotates the secret of the account Pier, moves its member example:2 to another account, and
// compares the output of account show here with that on the service's machine.
func (e *elsewhereRig) secretsAndMoves(t *testing.T, do func(int, string, ...string) string, id string) {
	t.Helper()
	accounts := e.Store.Accounts
	secret := strings.TrimSpace(do(0, "both signatures until", "account", "rotate-secret",
		"Pier"))
	now := must[account.Account](t)(accounts.Account(t.Context(), id))
	if now.Secrets[0].Value != secret || len(now.Secrets) != 2 {
		t.Errorf("the secret is not the one that signs now, of %d", len(now.Secrets))
	}
	do(2, "end it first", "account", "rotate-secret", "Pier")
	if code, _, errOut := e.rig.run(t, "account", "login-link", id, "--role", "viewer",
		"--base-url", e.Base); code != 0 {
		t.Fatal(errOut)
	}
	for _, as := range []string{"--json", "--limit"} {
		args := []string{"account", "show", id, as}
		if as == "--limit" {
			args = []string{"account", "audit", id, as, "3"}
		}
		code, here, errOut := e.rig.run(t, args...)
		if there := do(0, "link_", args...); code != 0 || there != here {
			t.Errorf("%v: exit %d: %s\nelsewhere\n%s\nhere\n%s", args, code, errOut, there, here)
		} else if strings.Contains(there, "whsec_") || strings.Contains(there, "HIDDEN") {
			t.Errorf("a secret is shown: %s", there)
		}
	}
	do(0, "no longer signs", "account", "end-rotation", "Pier")
	do(2, "No rotation", "account", "end-rotation", "Pier")
	do(0, "with only the new secret", "account", "rotate-secret", "Pier", "--overlap", "0")
	do(0, "was created", "account", "create", "Quay")
	do(2, "last owner", "account", "move-member", "--from", "Pier", "--to", "Quay", "example:2")
	must[account.Account](t)(accounts.AddMember(t.Context(), access.Operator(""), id, account.Member{
		Network: "example", Subject: "3", Role: access.RoleOwner,
	}))
	do(0, "now owner of Quay", "account", "move-member", "--from", "Pier", "--to", "Quay", "example:2")
	do(2, "no such", "account", "move-member", "--from", "Pier", "--to", "Quay", "example:9")
	four := account.Member{Network: "example", Subject: "4", Role: access.RoleViewer}
	must[account.Account](t)(accounts.AddMember(t.Context(), access.Operator(""), id, four))
	do(0, "now viewer of Quay", "account", "move-member", "--from", "Pier", "--to", "Quay",
		four.Identity().Address())
}

// A token without the scope, a revoked one, a missing one, and a wrong service: each error says what to do.
func TestTokensFromElsewhere(t *testing.T) {
	t.Parallel()
	r := boot(t)
	e := elsewhereOf(t, r)
	keys := r.newToken(t, "keys:write")
	id := account.IDOf("Harbor Guild")
	expectSaid := func(token string, want int, says string, args ...string) {
		t.Helper()
		code, out, errOut := e.run(t, token, args...)
		if code != want || !strings.Contains(out+errOut, says) {
			t.Errorf("%q: exit %d, want %d and %q: %s%s", args, code, want, says, out, errOut)
		}
	}
	expectSaid(keys, 2, "accounts:read", "account", "list")
	expectSaid(keys, 2, "secrets:write", "account", "rotate-secret", id)
	expectSaid(keys, 2, "audit:read", "account", "audit", id)
	expectSaid(keys, 2, "accounts:read", "key", "create", "--account", "Harbor Guild")
	expectSaid(keys, 0, "vfy_", "key", "create", "--account", id) // by its id it needs no other scope
	expectSaid("vfyop_nonsense", 2, "token_invalid", "account", "list")
	expectSaid("", 2, "is empty", "account", "list")
	_, list, _ := r.run(t, "operator", "token", "list")
	if code, _, errOut := r.run(t, "operator", "token", "revoke",
		regexp.MustCompile(`optok_[a-z2-7]+`).FindString(list)); code != 0 {
		t.Fatalf("revoke: %s", errOut)
	}
	expectSaid(keys, 2, "was revoked", "key", "list")
	e.url = "http://192.0.2.1"
	expectSaid(keys, 2, "not https", "key", "list")
	e.url = "https://127.0.0.1:1"
	expectSaid(keys, 1, "was not reached", "key", "list")
	for _, c := range []struct{ says, scope, expires string }{
		{"accounts:read, accounts:write", "everything", "90d"},
		{"for example 90d", "keys:write", "400d"},
		{"has passed", "keys:write", "2001-01-01"},
	} {
		if code, _, errOut := r.run(t, "operator", "token", "create", "--name", "x", "--scope", c.scope,
			"--expires", c.expires); code != exitUsage || !strings.Contains(errOut, c.says) {
			t.Errorf("%+v: exit %d: %s", c, code, errOut)
		}
	}
}

// Commands that work only on the store do not use the local one if a service elsewhere is named.
func TestStoreCommandsRefuseAServer(t *testing.T) {
	t.Parallel()
	r := boot(t)
	id := string(must[sessions.ID](t)(sessions.ParseID(r.begin(t).Session)))
	backup := filepath.Join(t.TempDir(), "backup")
	if code, _, errOut := r.run(t, "backup", backup); code != 0 {
		t.Fatal(errOut)
	}
	for _, args := range [][]string{
		{"status"}, {"explain", id}, {"hosts", "list"}, {"hosts", "pause", "--for", "1m", "h.example"},
		{"hosts", "resume", "h.example"}, {"deliveries", "list"}, {"deliveries", "show", id},
		{"deliveries", "resend", id},
		{"deliveries", "redrive", "--state", "undeliverable", "--dry-run"},
		{"sessions", "export", "--account", "Harbor Guild"},
		{"erase", "--all-accounts", "--platform-user-id", "u"}, {"backup", backup + "2"},
		{"restore", backup}, {"recover"}, {"move", "--to", "nats://127.0.0.1:1"}, {"operator", "list"},
		{"account", "secret", "Harbor Guild"}, {"secret", "rekey"},
	} {
		code, out, errOut := r.run(t, append(args, "--server", "https://elsewhere.example.com")...)
		if code != exitUsage || out != "" || !strings.Contains(errOut, "works only on the store") {
			t.Errorf("%v: exit %d, %s%s", args, code, out, errOut)
		}
	}
}
