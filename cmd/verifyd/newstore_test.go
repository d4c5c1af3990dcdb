package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// sensible are arguments with which a command gets as far as its store.
var sensible = map[string][]string{
	"SESSION":             {strings.Repeat("a", 32)},
	"account login-link":  {"x", "--base-url=https://verify.example.com"},
	"account return-url":  {"x", "https://example.com/"},
	"account notices":     {"x", "https://example.com/"},
	"account move-member": {"example:1"},
	"account quota":       {"x", "5"}, "account colour": {"x", "#1f5fd0"}, "account binding": {"x", "code"},
	"member invite": {"--base-url=https://verify.example.com"},
	"member role":   {"example:1"}, "member remove": {"example:1"},
	"operator login-link": {"--base-url=https://verify.example.com"}, "erase": {"--all-accounts"},
	"operator grant": {"example:1"}, "operator revoke": {"example:1"}, "move": {"--to=nats://127.0.0.1:1"},
	"check": {"--dev-network"},
	"demo-beside": {
		"--service=http://127.0.0.1:1", "--network=https://127.0.0.1:1", "--receiver=https://127.0.0.1:1",
		"--network-listen=127.0.0.1:0", "--receiver-listen=127.0.0.1:0",
	},
}

// reachLine is a command line that gets as far as the command's store. A file that it would write is in dir.
func reachLine(command *kong.Node, dir string) []string {
	line := fullLine(command, "")
	more := sensible[command.Path()]
	if len(more) > 0 && len(command.Positional) > 0 && command.Positional[0].Required {
		line = line[:len(line)-1]
	}
	if len(command.Positional) > 0 && command.Positional[0].Name == "session" {
		line[len(line)-1] = sensible["SESSION"][0]
	}
	if command.Name == "backup" {
		line[len(line)-1] = filepath.Join(dir, "backup")
	}
	return append(line, more...)
}

// Only serve, a restore and commands with --new-store create a new store; any other command leaves a folder
// without one as it is, and reports that.
func TestCommandsCreateNoStoreUnlessRequested(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "folders without a store")
	makers := []string{"serve", "restore"}
	others := map[string]string{ // the output of commands that open no store here
		"check": "no service runs", "status": "no service runs", "apply": "VERIFYD_NATS_URL",
	}
	looked := 0
	for _, command := range must[*kong.Kong](t)(newParser()).Model.Leaves(false) {
		if !slices.Contains(hearsAll(command), "data-dir") || slices.Contains(makers, command.Path()) {
			continue
		}
		looked++
		want := "there is no store in"
		if other := others[command.Path()]; other != "" {
			want = other
		}
		empty, missing := t.TempDir(), filepath.Join(t.TempDir(), "missing")
		for _, dir := range []string{empty, missing} {
			code, out, errOut := verifyd(t, append(reachLine(command, t.TempDir()), "--data-dir", dir)...)
			if (code == 0) != (command.Name == "check") || !strings.Contains(out+errOut, want) {
				t.Errorf("%s: exit %d: %s%s", command.Path(), code, out, errOut)
			}
		}
		if made := must[[]os.DirEntry](t)(os.ReadDir(empty)); len(made) > 0 {
			t.Errorf("%s made %s", command.Path(), made[0].Name())
		}
		if _, err := os.Stat(missing); err == nil {
			t.Errorf("%s made the folder", command.Path())
		}
	}
	if looked < 20 {
		t.Errorf("only %d commands were looked at", looked)
	}
	dir := filepath.Join(t.TempDir(), "store")
	if code, _, errOut := verifyd(t, "account", "create", "Harbor Guild", "--new-store", "--data-dir",
		dir); code != 0 {
		t.Fatalf("with --new-store: exit %d: %s", code, errOut)
	}
	if code, out, errOut := verifyd(t, "account", "list", "--data-dir", dir); code != 0 ||
		!strings.Contains(out, "Harbor Guild") {
		t.Errorf("behind it: exit %d: %s%s", code, out, errOut)
	}
}

// hearsAll are the flags of a command that are settings.
func hearsAll(command *kong.Node) (names []string) {
	for _, flag := range command.Flags {
		if flags.IsSetting(flag) {
			names = append(names, flag.Name)
		}
	}
	return names
}

// A command waits for a folder that a service has just opened, and a folder that it left before it created a
// store is none.
func TestAFolderWithoutItsStore(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "folders without a store")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := verifyd(t, "key", "list", "--data-dir", dir)
	if made := must[[]os.DirEntry](t)(os.ReadDir(dir)); code != exitUsage ||
		!strings.Contains(errOut, "there is no store") || len(made) != 1 {
		t.Errorf("exit %d: %s, %v", code, errOut, made)
	}
}

// Servers that were named by mistake get no streams.
func TestCommandsMakeNoStoreOnServers(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	key := filepath.Join(t.TempDir(), config.SecretFile)
	if err := secretbox.Save(key, secretbox.NewKey()); err != nil {
		t.Fatal(err)
	}
	on := []string{
		"--nats-url", e.URL, "--nats-creds", e.Credential(permission.RoleOperator), "--replicas", "1",
		"--secret-key-file", key,
	}
	for _, line := range [][]string{
		{"key", "list"}, {"account", "create", "Harbor Guild"},
		{"key", "create", "--account", "Harbor Guild"},
	} {
		code, _, errOut := verifyd(t, append(line, on...)...)
		if code != exitUsage {
			t.Errorf("%v: exit %d: %s", line, code, errOut)
		}
		expect(t, errOut, "VERIFYD_NATS_URL", "no store", "--new-store")
	}
	if code, _, errOut := verifyd(t,
		append([]string{"account", "create", "Harbor Guild", "--new-store"}, on...)...); code != 0 {
		t.Fatalf("with --new-store: exit %d: %s", code, errOut)
	}
	if code, out, errOut := verifyd(t, append([]string{"account", "list"}, on...)...); code != 0 ||
		!strings.Contains(out, "Harbor Guild") {
		t.Errorf("behind it: exit %d: %s%s", code, out, errOut)
	}
}

// Bytes of settings in the store's files are flipped. check --deep and recover report them, and the first
// command mends them, without changing how long messages are kept.
func TestDamagedSettings(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "what its files hold")
	c := newChild(t)
	c.args = []string{"--keep-results", "720h"}
	c.start(t)
	data := filepath.Join(c.dir, "store")
	natstest.Await(t, "the witness knows how long outcomes are kept", func() bool {
		b, err := os.ReadFile(filepath.Join(data, embedded.WitnessFile))
		return err == nil && strings.Contains(string(b), `"name":"COMPLETIONS"`)
	})
	c.kill()
	folder := embedded.StreamFolder(data, topology.StreamCompletions)
	for _, part := range []string{"", filepath.Join("obs", topology.ConsumerDispatcher)} {
		path := filepath.Join(folder, part, "meta.inf")
		b := must[[]byte](t)(os.ReadFile(path))
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{{"check", "--deep"}, {"recover"}} {
		out, err := c.command(t, command...)
		for _, want := range []string{
			"COMPLETIONS: its settings do not match",
			"COMPLETIONS: the settings of consumer dispatcher do not match",
		} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%q does not say %q: %v\n%s", command, want, err, out)
			}
		}
	}
	if _, err := c.command(t, "key", "list"); err != nil {
		t.Fatal(err)
	}
	if out, err := c.command(t, "check", "--deep"); err != nil || strings.Contains(out, "do not match") {
		t.Errorf("after a command, check --deep: %v\n%s", err, out)
	}
	c.log = &buffer{}
	c.start(t)
	if log := c.log.String(); strings.Contains(log, "a setting of the store was changed") {
		t.Errorf("the command had changed it, the service changed it back: %s", log)
	}
}
