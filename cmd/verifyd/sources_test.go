package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/flags"
	"verifyd/natsconf/secretbox"
)

// storeFlags are the flags that select the store, on every command that opens one.
var storeFlags = []string{
	"data-dir", "nats-url", "nats-creds", "nats-ca-file", "replicas", "sync", "store-limit", "keep-results",
	"secret-key", "secret-key-file",
	// of commands that also work from another machine
	"server", "token", "token-file", "server-ca-file",
}

// heard lists which flags of a command may be set by a variable or the file, as documented. For any other
// command it is storeFlags, as far as the command has them.
var heard = map[string][]string{
	"healthcheck": {"admin-listen"}, "log-level": {"admin-listen"},
	"demo": {}, "try": {}, "listen": {}, "prepare": {}, "version": {},
}

// secretVariables are those that pass a secret to a command although they are no settings.
var secretVariables = map[string]string{
	"listen --key": "VERIFYD_API_KEY", "try --secret": "VERIFYD_TRY_SECRET",
	"demo-beside --client-secret": "VERIFYD_NETWORK_CLIENT_SECRET",
}

// hears reports whether a flag of a command is a setting.
func hears(command, flag string) bool {
	if command == "serve" || command == "check" {
		return !slices.Contains([]string{"json", "probe", "deep", "files"}, flag)
	}
	want, named := heard[command]
	if !named {
		want = storeFlags
	}
	return slices.Contains(want, flag)
}

// otherValue returns a value for a flag that is not its default.
func otherValue(v *kong.Value) string {
	switch v.Target.Interface().(type) {
	case bool:
		return "true"
	case int, int64:
		return "7"
	case float64:
		return "0.5"
	case time.Duration:
		return "7h"
	}
	if v.Enum != "" {
		return v.EnumSlice()[len(v.EnumSlice())-1]
	}
	return "planted"
}

// fullLine is a command line with all that the command needs, but for one flag.
func fullLine(command *kong.Node, without string) []string {
	line := strings.Fields(command.Path())
	for _, flag := range command.Flags {
		if flag.Required && flag.Name != without {
			line = append(line, "--"+flag.Name+"="+otherValue(flag.Value))
		}
	}
	for _, arg := range command.Positional {
		if arg.Required {
			line = append(line, otherValue(arg))
		}
	}
	return line
}

// parsed returns the value of a command's flag after a command line was read. If the line is refused, it is
// the error.
func parsed(t *testing.T, parser *kong.Kong, command, flag string, line ...string) string {
	t.Helper()
	if _, err := parser.Parse(line); err != nil {
		return err.Error()
	}
	for _, leaf := range parser.Model.Leaves(false) {
		for _, f := range leaf.Flags {
			if leaf.Path() == command && f.Name == flag {
				return fmt.Sprint(f.Target.Interface())
			}
		}
	}
	t.Fatalf("%s --%s is gone", command, flag)
	return ""
}

// parsedAll is parsed for all flags of a command.
func parsedAll(parser *kong.Kong, command *kong.Node, line []string) map[string]string {
	_, err := parser.Parse(line)
	all := map[string]string{}
	for _, f := range command.Flags {
		all[f.Name] = fmt.Sprint(f.Target.Interface())
		if err != nil {
			all[f.Name] = err.Error()
		}
	}
	return all
}

// Settings are the service's and what opens its store. Everything else comes only from a command's command
// line: not from a variable, and not from the service's file.
func TestEveryFlagListensToWhoItShould(t *testing.T) {
	// one for all: creating it takes longer than parsing
	parser := must[*kong.Kong](t)(newParser(kong.Writers(io.Discard, io.Discard)))
	settings := flags.SettingKeys(parser.Model)
	for _, command := range parser.Model.Leaves(false) {
		// by command line: each flag's value if nothing else is set
		unmoved := map[string]map[string]string{}
		for _, flag := range command.Flags {
			path, value := command.Path(), otherValue(flag.Value)
			t.Run(path+" --"+flag.Name, func(t *testing.T) {
				line := fullLine(command, flag.Name)
				all := unmoved[strings.Join(line, " ")]
				if all == nil {
					all = parsedAll(parser, command, line)
					unmoved[strings.Join(line, " ")] = all
				}
				before := all[flag.Name]
				want := hears(path, flag.Name)

				file := filepath.Join(t.TempDir(), "verifyd.yaml")
				if err := os.WriteFile(file, []byte(flags.YAMLKey(flag)+": "+value+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				withFile := parsed(t, parser, path, flag.Name, append(line, "--config="+file)...)
				switch {
				case !flags.TakesSettings(command):
					expect(t, withFile, "has no settings")
				case !slices.Contains(settings, flags.YAMLKey(flag)):
					expect(t, withFile, `"`+flags.YAMLKey(flag)+`" is not a setting`)
				case want != (withFile != before):
					t.Errorf("by the file: %q, before it %q", withFile, before)
				}

				t.Setenv("VERIFYD_"+strings.ToUpper(flags.YAMLKey(flag)), value)
				if got := parsed(t, parser, path, flag.Name, line...); (got != before) != want {
					t.Errorf("by the variable: %q, before it %q", got, before)
				}
				secret := secretVariables[path+" --"+flag.Name]
				if !want && secret == "" && len(flag.Envs) > 0 {
					t.Errorf("it reads %q", flag.Envs)
				}
				if secret != "" && !slices.Equal(flag.Envs, []string{secret}) {
					t.Errorf("it reads %q, want %s", flag.Envs, secret)
				}
			})
		}
	}
}

func expect(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in: %s", want, text)
		}
	}
}

// These faults have occurred: the service's variables and file set limits and ends of keys, and reduced the
// limit of the NATS servers.
func TestTheServicesSettingsTellNoCommandWhatToDo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "verifyd.yaml")
	if err := os.WriteFile(file,
		[]byte("store_limit: 8GiB\nnats_url: nats://production:4222\nnats_creds: /nowhere\nsync: interval\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VERIFYD_CONFIG", file)
	t.Setenv("VERIFYD_STORE_LIMIT", "8GiB")
	prepared := filepath.Join(dir, "prepared")
	prepare(t, prepared, "--store-limit", "60GiB")
	prepare(t, prepared)
	expect(t, folder(t, prepared)["nats/accounts.conf"], "max_store: 64424509440")

	code, _, errOut := verifyd(t, "prepare", prepared, "--config", file)
	if code != exitUsage {
		t.Errorf("prepare with the service's file: exit %d", code)
	}
	expect(t, errOut, "--config")
}

// A fault of a command's own flag names no variable, which nothing would read.
func TestFaultsOfOwnFlagsNameNoVariable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, line := range [][]string{
		{"try", "--timeout", "0s", "--ca-file", "/nowhere.pem", "https://bot.example.com"},
		{"key", "create", "--account", "x", "--policy", "twice"},
		{"account", "login-link", "x", "--base-url", "x"},
		{"operator", "login-link", "--base-url", "x"},
	} {
		if line[0] != "try" {
			line = append(line, "--data-dir", dir)
		}
		code, _, errOut := verifyd(t, line...)
		if code != exitUsage || !strings.Contains(errOut, ": --") && !strings.Contains(errOut, "  --") ||
			strings.Contains(errOut, "VERIFYD_") {
			t.Errorf("%v: exit %d: %s", line, code, errOut)
		}
	}
}

// A member of the file that is none of serve's settings is refused by everything that reads the file,
// with the nearest.
func TestTheFileHasSettingsOfServeAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for content, wants := range map[string][]string{
		"callback_timeuot: 3s\n":        {`"callback_timeuot"`, "did you mean callback_timeout?"},
		"VERIFYD_BASE_URL: https://x\n": {"did you mean base_url?"},
		"base-url: https://x\n":         {"did you mean base_url?"},
		"quota: 5\ndry_run: true\n": {
			"did you mean monthly_quota?", `"dry_run" is not a setting of verifyd serve`,
		},
		"grace: 0\n":                       {`"grace"`, "callback_timeout"},
		"config: other.yaml\n":             {`"config"`},
		"base_url:\n":                      {"base_url has no value"},
		"sync: always\n---\nsync: never\n": {"more than one YAML document"},
	} {
		file := filepath.Join(dir, "verifyd.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"serve", "--dev-network"}, {"check", "--dev-network"}} {
			code, _, errOut := verifyd(t,
				append(command, "--data-dir", filepath.Join(dir, "store"), "--config", file)...)
			if code != exitUsage {
				t.Errorf("%q, %s: exit %d", content, command[0], code)
			}
			expect(t, errOut, wants...)
		}
	}
	if code, _, errOut := verifyd(t, "key", "list", "--config",
		filepath.Join(dir, "verifyd.yaml")); code != exitUsage {
		t.Errorf("key list: exit %d: %s", code, errOut)
	}
	if code, _, errOut := verifyd(t, "check", "--config",
		filepath.Join(dir, "nowhere.yaml")); code != exitUsage || !strings.Contains(errOut, "nowhere.yaml") {
		t.Errorf("a file that is not there: exit %d: %s", code, errOut)
	}
}

// Variables that nothing reads are reported; those of Kubernetes, of the tests and of programs around a
// service are not.
func TestVariablesThatNothingReads(t *testing.T) {
	model := must[*kong.Kong](t)(newParser()).Model
	got := flags.Unknowns(model, []string{
		"VERIFYD_LISTEM=x", "VERIFYD_QUOTA=5", "VERIFYD_ZZZZ=x", "VERIFYD_PORT=8080",
		"VERIFYD_SECRET=hunter2",
		"PATH=x", "VERIFYD_LISTEN=x", "VERIFYD_CONFIG=x", "VERIFYD_API_KEY=x", "VERIFYD_TEST_CHILD=1",
		"VERIFYD_SIGNING_SECRET=x", "VERIFYD_HOST=x",
	})
	want := []flags.Unknown{
		{Name: "VERIFYD_LISTEM", Nearest: "VERIFYD_LISTEN"}, {Name: "VERIFYD_PORT", Nearest: ""},
		{Name: "VERIFYD_QUOTA", Nearest: "VERIFYD_MONTHLY_QUOTA"},
		{Name: "VERIFYD_SECRET", Nearest: "VERIFYD_ALARM_SECRET"}, {Name: "VERIFYD_ZZZZ", Nearest: ""},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	pod := []string{
		"VERIFYD_SERVICE_HOST=10.0.0.1", "VERIFYD_SERVICE_PORT=80", "VERIFYD_SERVICE_PORT_HTTP=80",
		"VERIFYD_PORT=tcp://10.0.0.1:80",
		"VERIFYD_PORT_80_TCP=tcp://10.0.0.1:80", "VERIFYD_PORT_80_TCP_ADDR=10.0.0.1",
		"VERIFYD_EDGE_SERVICE_HOST=10.0.0.2", "VERIFYD_EDGE_PORT=x",
	}
	if got := flags.Unknowns(model, pod); len(got) > 0 {
		t.Errorf("of a pod: %+v", got)
	}
}

// The start of a service and the check of its settings report them; other commands ignore them.
func TestUnknownVariablesAreReported(t *testing.T) {
	t.Setenv("VERIFYD_CALLBACK_TIMEUOT", "hunter2")
	dir := filepath.Join(t.TempDir(), "store")
	// without a network it does not start
	_, _, errOut := verifyd(t, "serve", "--data-dir", dir, "--log-format", "json")
	expect(t, errOut, `"level":"warn"`, "VERIFYD_CALLBACK_TIMEUOT is set",
		"did you mean VERIFYD_CALLBACK_TIMEOUT?", "VERIFYD_NETWORK_ISSUER")
	_, found := checked(t, "--data-dir", dir)
	expectFound(t, found, "configuration", check.LevelWarning, "VERIFYD_CALLBACK_TIMEUOT is set")
	_, _, other := verifyd(t, "key", "list", "--data-dir", dir)
	if strings.Contains(other, "TIMEUOT") || strings.Contains(errOut+other, "hunter2") {
		t.Errorf("%s%s", errOut, other)
	}
}

// Every variable in the documents is read by something, or known to belong to another program.
func TestDocumentedVariablesAreKnown(t *testing.T) {
	model := must[*kong.Kong](t)(newParser()).Model
	for _, name := range []string{
		"README.md", "docs/OPERATING.md", "docs/SECURITY.md", "docs/INTEGRATING.md", "docs/NETWORKS.md",
		"docs/UPGRADING.md", "docs/CONFIGURATION.md", "docs/CLI.md", "docker-compose.yml",
		"docs/compose/verifyd.env",
	} {
		text := string(must[[]byte](t)(os.ReadFile(filepath.Join("../..", filepath.FromSlash(name)))))
		for _, variable := range variableNames.FindAllString(text, -1) {
			if got := flags.Unknowns(model, []string{variable + "=x"}); len(got) > 0 {
				t.Errorf("%s names %s, which nothing reads", name, variable)
			}
		}
	}
}

var variableNames = regexp.MustCompile(`\bVERIFYD_[A-Z_]*[A-Z]\b`)

// A secret on a command line is reported, with what to use instead; one in its variable is not.
func TestSecretsOnACommandLineAreReported(t *testing.T) {
	key := secretbox.NewKey().Encode()
	dir := filepath.Join(t.TempDir(), "store")
	for _, c := range []struct {
		line []string
		want []string
	}{
		{[]string{"key", "list", "--secret-key", key},
			[]string{"--secret-key:", "set VERIFYD_SECRET_KEY", "--secret-key-file"}},
		{[]string{"key", "list", "--nats-url", "nats://me:hunter2@127.0.0.1:1x"},
			[]string{"--nats-url:", "set VERIFYD_NATS_URL", "--nats-creds"}},
		{[]string{"move", "--to", "nats://me:hunter2@127.0.0.1:1"}, []string{"--to:", "--to-creds"}},
		{[]string{"serve", "--alarm-secret", "hunter2"},
			[]string{"--alarm-secret:", "set VERIFYD_ALARM_SECRET"}},
		{[]string{"serve", "--network-client-secret", "hunter2"},
			[]string{"--network-client-secret:", "set VERIFYD_NETWORK_CLIENT_SECRET"}},
		{[]string{"serve", "--trace-headers", "hunter2"},
			[]string{"--trace-headers:", "set VERIFYD_TRACE_HEADERS"}},
		{[]string{"serve", "--callback-proxy", "http://me:hunter2@proxy"},
			[]string{"--callback-proxy:", "set VERIFYD_CALLBACK_PROXY"}},
		{[]string{"listen", "--key", "hunter2", "--forward", "nowhere"},
			[]string{"--key:", "set VERIFYD_API_KEY"}},
		{[]string{"try", "--secret", "hunter2", "--timeout", "0s", "x"},
			[]string{"--secret:", "set VERIFYD_TRY_SECRET"}},
	} {
		line := c.line
		if slices.Contains([]string{"key", "serve", "move"}, line[0]) {
			line = append(line, "--data-dir", dir)
		}
		_, out, errOut := verifyd(t, line...)
		expect(t, errOut, append(c.want, "shows a secret")...)
		if strings.Contains(out+errOut, "hunter2") || strings.Contains(out+errOut, key) {
			t.Errorf("%v: the secret is repeated: %s%s", c.line, out, errOut)
		}
	}
	_, found := checked(t, "--data-dir", dir, "--secret-key", key)
	expectFound(t, found, "configuration", check.LevelWarning,
		"--secret-key: the command line shows a secret")
	t.Setenv("VERIFYD_SECRET_KEY", key)
	if _, _, errOut := verifyd(t, "key", "list", "--data-dir", dir); strings.Contains(errOut,
		"shows a secret") {
		t.Errorf("by its variable: %s", errOut)
	}
}

// Every flag that is named like a secret is marked as one.
func TestFlagsWithSecretsAreMarked(t *testing.T) {
	model := must[*kong.Kong](t)(newParser()).Model
	marked := 0
	for flag, command := range flags.AllFlags(model) {
		word := flag.Name[strings.LastIndex(flag.Name, "-")+1:]
		named := slices.Contains([]string{"secret", "password", "token", "headers", "key"}, word)
		isText := flag.Target.Type().String() == "string"
		if flag.Tag.Has(flags.SecretTag) {
			marked++
			if len(flag.Envs) == 0 {
				t.Errorf("%s --%s has no variable to be given by", command.Path(), flag.Name)
			}
		} else if named && isText {
			t.Errorf("%s --%s is not marked as a secret", command.Path(), flag.Name)
		}
	}
	if marked < 10 {
		t.Errorf("only %d flags are marked; is the tag read?", marked)
	}
}
