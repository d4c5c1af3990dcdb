package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// made writes what verifyd help makes for man or a shell into a file.
func made(t *testing.T, as string) (file string) {
	t.Helper()
	code, out, errOut := verifyd(t, "help", "--as", as)
	if code != 0 || errOut != "" {
		t.Fatalf("help --as %s: exit %d: %s", as, code, errOut)
	}
	file = filepath.Join(t.TempDir(), "verifyd."+as)
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The completions have the name that they have in other programs, too.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		want, err := os.ReadFile(made(t, shell))
		if err != nil {
			t.Fatal(err)
		}
		if code, out, errOut := verifyd(t, "completion", shell); code != 0 || out != string(want) {
			t.Errorf("%s: exit %d: %s", shell, code, errOut)
		}
	}
	code, _, errOut := verifyd(t, "completion", "tcsh")
	if code != exitUsage || !strings.Contains(errOut, "bash") {
		t.Errorf("of a shell that is not known: exit %d: %s", code, errOut)
	}
}

// completed are incomplete command lines, with some of the completions that must be offered, and some that
// must not be.
var completed = []struct {
	line       []string
	want, none []string
}{
	{[]string{""}, []string{"serve", "key", "help"}, []string{"create"}},
	{[]string{"ke"}, []string{"key"}, []string{"serve"}},
	{[]string{"key", ""}, []string{"create", "revoke"}, []string{"serve"}},
	{[]string{"key", "create", "--"}, []string{"--account", "--data-dir", "--config"}, []string{"--listen"}},
	{[]string{"help", ""}, []string{"serve", "key"}, nil},
	{[]string{"help", "key", ""}, []string{"create"}, []string{"serve"}},
	{[]string{"help", "--a"}, []string{"--as"}, nil},
	{[]string{"key", "--config", "x", "create", "--acc"}, []string{"--account"}, nil},
	{[]string{"help", "--as", "f"}, []string{"fish"}, []string{"bash"}},
}

// Each shell offers what the command line accepts.
func TestCompletions(t *testing.T) {
	prove.Only(t, "languages", "it runs three shells")
	t.Parallel()
	shells := map[string]func(t *testing.T, file string, line []string) string{
		"bash": func(t *testing.T, file string, line []string) string {
			const ask = `. "$1"; shift; COMP_WORDS=(verifyd "$@"); COMP_CWORD=$#; _verifyd; echo "${COMPREPLY[@]}"`
			return output(t, "bash", append([]string{"-c", ask, "bash", file}, line...)...)
		},
		"fish": func(t *testing.T, file string, line []string) string {
			return output(t, "fish", "--no-config", "-c",
				"source "+file+"; complete -C 'verifyd "+strings.Join(line, " ")+"' | cut -f 1")
		},
		// What zsh would show is read from the functions that get it.
		"zsh": func(t *testing.T, file string, line []string) string {
			const ask = `compdef() { :; }; _files() { :; }
				_describe() { print -l -- "${(@)${(@P)@[-1]}%%:*}"; }
				compadd() { shift; print -l -- $*; }
				. "$1"; shift; words=(verifyd "$@"); CURRENT=$#words; PREFIX=$words[-1]; _verifyd`
			out := output(t, "zsh", append([]string{"-f", "-c", ask, "zsh", file}, line...)...)
			return strings.Join(slices.DeleteFunc(strings.Fields(out), func(word string) bool {
				return !strings.HasPrefix(word, line[len(line)-1])
			}), " ")
		},
	}
	for shell, ask := range shells {
		t.Run(shell, func(t *testing.T) {
			prove.Program(t, "the shell "+shell, shell)
			file := made(t, shell)
			for _, c := range completed {
				got := strings.Fields(ask(t, file, c.line))
				for _, want := range c.want {
					if !slices.Contains(got, want) {
						t.Errorf("%q: %s is not offered, but %q", c.line, want, got)
					}
				}
				for _, none := range c.none {
					if slices.Contains(got, none) {
						t.Errorf("%q: %s is offered", c.line, none)
					}
				}
			}
		})
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// The man page has every command, and man prints no warning.
func TestManPage(t *testing.T) {
	prove.Only(t, "languages", "groff formats the page")
	t.Parallel()
	file := made(t, "man")
	groff := prove.Program(t, "groff, which man formats by", "groff")
	cmd := exec.Command(groff, "-man", "-Tutf8", "-ww", "-P-cbou", file)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		t.Errorf("%v: %s", err, said.String())
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	expect(t, text, "verifyd key create --account=NAME [flags]",
		"--data-dir=\"verifyd-data\", VERIFYD_DATA_DIR",
		examples["key create"], "It takes the settings of the store.")
}
