package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/flags"
	"verifyd/cmd/verifyd/version"
)

var updateDocs = flag.Bool("update", false,
	"write anew what the program makes of docs/CONFIGURATION.md and docs/CLI.md, and its version")

// The settings and commands in the documents are the program's own.
func TestDocumentsOfTheProgram(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]string{
		"CONFIGURATION.md": settingsMade(t), "CLI.md": commandsMade(t),
	} {
		path := filepath.Join("../../docs", name)
		text := string(must[[]byte](t)(os.ReadFile(path)))
		const begin, end = "<!-- made from the program", "<!-- /made -->"
		head, rest, ok := strings.Cut(text, begin)
		how, rest, ok2 := strings.Cut(rest, "\n")
		old, tail, ok3 := strings.Cut(rest, end)
		old = strings.TrimSuffix(old, "\n")
		if !ok || !ok2 || !ok3 {
			t.Errorf("%s has no place for what the program makes", name)
			continue
		}
		if old == made {
			continue
		}
		if !*updateDocs {
			t.Errorf("%s is not what the program says; write it anew: "+
				"go test ./cmd/verifyd -run %s -args -update", name, t.Name())
			continue
		}
		if err := os.WriteFile(path, []byte(head+begin+how+"\n"+made+"\n"+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The documents install this version: the service provides no other SDK.
func TestDocumentsNameThisVersion(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(verifyd[-_:]|/sdk/go@v)[0-9]+\.[0-9]+\.[0-9]+`)
	found := 0
	for _, path := range must[[]string](t)(filepath.Glob("../../docs/*.md")) {
		text := string(must[[]byte](t)(os.ReadFile(path)))
		want := named.ReplaceAllString(text, "${1}"+version.Number())
		found += len(named.FindAllString(text, -1))
		switch {
		case want == text:
		case !*updateDocs:
			t.Errorf("%s names another version than %s; write it anew: "+
				"go test ./cmd/verifyd -run %s -args -update", path, version.Number(), t.Name())
		default:
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found < 5 {
		t.Errorf("the documents name the version %d times; are they read?", found)
	}
}

// settingsMade returns a table of each group of settings.
func settingsMade(t *testing.T) string {
	t.Helper()
	var serve, remote *kong.Node // remote: one that works from another machine, too
	for _, command := range must[*kong.Kong](t)(newParser()).Model.Leaves(false) {
		switch command.Path() {
		case "serve":
			serve = command
		case "account list":
			remote = command
		}
	}
	var b strings.Builder
	for _, group := range flags.SettingGroups {
		title := strings.TrimSuffix(strings.TrimPrefix(group.Title, "Settings of "), ":")
		title, _, _ = strings.Cut(title, ", the same as")
		fmt.Fprintf(&b, "\n## %s%s\n\n| variable | default | meaning |\n|---|---|---|\n",
			strings.ToUpper(title[:1]), title[1:])
		of := serve
		if group.Key == "server" {
			of = remote
		}
		for _, f := range of.Flags {
			if f.Group == nil || f.Group.Key != group.Key {
				continue
			}
			value := "–"
			switch {
			case f.Default != "":
				value = "`" + f.Default + "`"
			case f.IsBool():
				value = "`false`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.Join(f.Envs, "` or `"), value,
				strings.ReplaceAll(strings.TrimSuffix(f.Help, "."), "|", `\|`))
		}
	}
	return b.String()
}

// commandsMade returns the help of each command, without the common parts.
func commandsMade(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, leaf := range must[*kong.Kong](t)(newParser()).Model.Leaves(true) {
		code, out, errOut := verifyd(t, append([]string{"help"}, strings.Fields(leaf.Path())...)...)
		if code != 0 {
			t.Fatalf("help of %s: %s", leaf.Path(), errOut)
		}
		own, _, _ := strings.Cut(out, "Flags of every command:")
		what, usage, _ := strings.Cut(own, "\n\n")
		fmt.Fprintf(&b, "\n## verifyd %s\n\n%s\n\n```\n%s\n```\n", leaf.Path(),
			strings.Join(strings.Fields(what), " "), strings.TrimSpace(usage))
	}
	return b.String()
}
