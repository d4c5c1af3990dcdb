package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
)

// elsewhere are commands that print tables, and whose JSON other tests check.
var elsewhere = []string{"status", "check", "try", "move", "restore", "explain"}

// tableless are commands that print no table.
var tableless = []string{
	"serve", "demo", "demo-beside", "key create", "key roll", "key revoke", "account create", "account quota",
	"account rename",
	"account disable", "account enable", "account delete", "account restore", "account verified",
	"account move-member", "account secret", "account rotate-secret",
	"account end-rotation", "account login-link", "account revoke-login-link", "account return-url",
	"account colour", "account binding", "account notices", "operator token create", "operator token revoke",
	"member invite", "member withdraw", "member role", "member remove", "operator grant",
	"operator revoke", "operator login-link", "hosts pause", "hosts resume", "deliveries resend",
	"sessions export",
	"listen", "log-level", "prepare",
	"apply", "recover", "healthcheck", "version", "completion", "help", "secret rekey",
}

// Every command that prints a table prints the same as one JSON document for --json. A new command has to
// be in one of the lists.
func TestEveryTableAsJSON(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	delivered := r.api().until(t, s.Session, "delivered")
	natstest.Await(t, "when the key was used is stored", func() bool {
		used, err := r.Store.Accounts.LastUsed(t.Context())
		return err == nil && len(used) == 1
	})
	for _, line := range [][]string{
		{"operator", "login-link", "--base-url", r.Base},
		{"account", "login-link", "Harbor Guild", "--base-url", r.Base},
		{"member", "invite", "--account", "Harbor Guild", "--for", "Bob", "--base-url", r.Base},
		{"operator", "token", "create", "--name", "deploy", "--scope", "keys:write"},
		{"hosts", "pause", "bot.example.com", "--reason", "moving house"},
	} {
		if code, _, errOut := r.run(t, line...); code != 0 {
			t.Fatalf("%v: exit %d: %s", line, code, errOut)
		}
	}
	file := filepath.Join(t.TempDir(), "backup")
	here := map[string][]string{
		"key list": nil, "account list": nil, "account show": {"Harbor Guild"},
		"account audit": {"Harbor Guild"}, "member list": {"--account", "Harbor Guild"},
		"operator token list": nil, "operator list": nil, "operator audit": nil,
		"hosts list": nil, "deliveries list": nil, "deliveries show": {delivered.ID}, "deliveries redrive": {
			"--state", "rejected", "--dry-run",
		},
		"erase": {"--platform-user-id", "sailor_42", "--all-accounts", "--dry-run"}, "backup": {file},
	}
	lists := map[string]string{ // with what each must have
		"key list": "keys", "account list": "accounts", "account show": "login_links",
		"account audit": "records", "member list": "invites", "operator token list": "tokens",
		"operator list":  "operators",
		"operator audit": "records", "hosts list": "hosts", "deliveries list": "deliveries",
		"deliveries show": "attempts", "erase": "accounts", "backup": "assets",
	}
	for _, command := range must[*kong.Kong](t)(newParser()).Model.Leaves(false) {
		path := command.Path()
		args, isHere := here[path]
		isTable := isHere || slices.Contains(elsewhere, path)
		has := slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == "json" })
		if isTable == slices.Contains(tableless, path) {
			t.Errorf("does %s print a table? Say so in this test", path)
		}
		if has != isTable {
			t.Errorf("%s has the flag --json: %t, want %t", path, has, isTable)
		}
		if !isHere {
			continue
		}
		line := append(strings.Fields(path), args...)
		_, text, errOut := r.run(t, line...)
		if path == "backup" {
			text, line[len(line)-1] = errOut, file+".json"
		}
		code, out, errOut := r.run(t, append(line, "--json")...)
		doc := map[string]any{}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 {
			t.Errorf("%s: exit %d, %v: %s%s", path, code, err, out, errOut)
		}
		if rows, _ := doc[lists[path]].([]any); lists[path] != "" && len(rows) == 0 {
			t.Errorf("%s: nothing is in %q of %s", path, lists[path], out)
		}
		expectSameWords(t, path, doc, text)
	}
}

// expectSameWords checks that every text of a document is in the output for people.
func expectSameWords(t *testing.T, path string, doc any, text string) {
	t.Helper()
	switch v := doc.(type) {
	case map[string]any:
		for name, member := range v {
			if name != "use" { // of a secret: shown in another word
				expectSameWords(t, path, member, text)
			}
		}
	case []any:
		for _, item := range v {
			expectSameWords(t, path, item, text)
		}
	case string:
		if !strings.Contains(text, v) {
			t.Errorf("%s: people do not read %q, which programs do", path, v)
		}
	}
}
