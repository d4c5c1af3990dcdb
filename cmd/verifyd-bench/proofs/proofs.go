// Package proofs runs the proofs: the tests that `go test ./...` leaves out, since they take minutes, kill
// processes, need root, a browser, containers or another language, or measure.
//
// A row of a table in docs/EVIDENCE.md ends with a command that begins with VERIFYD_PROVE=, which names its
// proof first. Run runs the rows of a proof, one after the other and nothing beside them. What the tests log
// in lines that begin with "figures: " is what the row has shown.
package proofs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Proof is a set of tests.
type Proof struct {
	Name string
	What string
	// Needs is what it needs beside Go, by Debian's packages, each behind the programs of which one shows
	// that it is there, if it has any.
	Needs []string
	// For are the files and folders whose changes ask for it, beside those of its own tests.
	For []string
}

// browser is what Chromium is called elsewhere, and its package.
const browser = "chromium|chromium-browser|google-chrome|google-chrome-stable:chromium"

// all are the proofs, in the order in which they are run.
var all = []Proof{
	{
		"race", "the race detector over the service's packages",
		[]string{"gcc:gcc", "libc6-dev"},
		[]string{"dispatcher", "sessions", "edge", "natsconf", "cmd/verifyd", "go.mod", ".ci/race"},
	},
	{
		"fuzz", "20,000 inputs for each fuzz test", nil,
		[]string{"dispatcher/callback", "sessions", "edge", "natsconf", ".ci/fuzz"},
	},
	{
		"simulation", "10,000 schedules of faults, seeds that repeat, and the whole models", nil,
		[]string{"dispatcher", "edge/signin", "edge/api", "sessions", "natsconf/simtest", "go.mod"},
	},
	{
		"cluster", "three NATS servers, some of which are killed or stopped", nil,
		[]string{"natsconf", "sessions", "dispatcher", "edge/limit", "edge/account", "edge/api", "go.mod"},
	},
	{
		"kills", "processes that are killed at every step, and what their stores hold", nil,
		[]string{
			"dispatcher", "sessions", "natsconf", "edge/signin", "cmd/verifyd/move", "cmd/verifyd/store",
			"go.mod",
		},
	},
	{
		"disk", "disks that fail, fill up or lose what was not synced, as root",
		[]string{"mkfs.ext4:e2fsprogs"},
		[]string{
			"natsconf/embedded", "natsconf/storefile", "natsconf/transfer", "edge/dashboard/logins", "go.mod",
		},
	},
	{
		"chaos", "processes killed and paused at random for minutes", nil,
		[]string{"dispatcher", "sessions", "natsconf", "cmd/verifyd/service", "go.mod"},
	},
	{
		"weights", "bursts, isolation, memory, and what the bench measures", nil,
		[]string{"dispatcher", "cmd/verifyd-bench"},
	},
	{
		"life", "how many functions, files and packages one session reaches", nil,
		[]string{"dispatcher", "edge/api", "edge/signin", "sessions/records", "sessions/store"},
	},
	{
		"upgrade", "the store and the processes of the last release, beside this build", nil,
		[]string{
			"sessions/records", "edge/account/record", "natsconf/topology", "natsconf/embedded", "go.mod",
		},
	},
	{
		"browser", "every page in Chromium, as root", []string{browser, "ip:iproute2"},
		[]string{
			"edge/signin", "edge/dashboard", "edge/guide", "edge/apidoc", "edge/page", "edge/chromiumtest",
		},
	},
	{
		"languages", "SDKs, guides, samples, man page, completions, alert rules, manifests",
		[]string{
			"curl:curl", "node:nodejs", "npm:npm", "tsc:node-typescript", "pip:python3-pip",
			"python3-cryptography", "mypy:mypy", "php:php-cli", "ruby:ruby", "zsh:zsh", "fish:fish",
			"groff:groff-base", "systemd-analyze:systemd", "promtool:prometheus",
		},
		[]string{
			"docs", "edge/sdk", "edge/client", "edge/apidoc", "cmd/verifyd/command", "cmd/verifyd/manual",
		},
	},
	{
		"providers", "sign-ins at two third-party identity providers, in Chromium",
		[]string{
			browser, "glewlwyd:glewlwyd", "dbconfig-sqlite3", "liblemonldap-ng-portal-perl",
			"starman:starman", "libgd-securityimage-perl", "libimage-magick-perl", "libio-string-perl",
			"libstring-random-perl",
		},
		[]string{"edge/network", "edge/signin"},
	},
	{
		"packages", "the release is built twice, installed, and run, as root",
		[]string{
			"debootstrap:debootstrap", "rpm:rpm", "lintian:lintian", "systemd-analyze:systemd",
			"docker:docker.io",
		},
		[]string{"docs/release", "Dockerfile"},
	},
	{
		"containers", "the stack of docker-compose.yml, and its faults",
		[]string{"docker:docker.io", "docker-compose:docker-compose"},
		[]string{"docs/compose", "docker-compose.yml", "Dockerfile", "dispatcher", "sessions", "natsconf"},
	},
	{"soak", "a whole site under faults for 20 minutes", nil, nil},
	{"quarantine", "tests that are upset by the machine, each with its reason and date", nil, nil},
}

// Select returns the proofs of these names, or all without a name.
func Select(names ...string) ([]Proof, error) {
	if len(names) == 0 {
		return all, nil
	}
	var selected []Proof
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Proof) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no proof %q; there are %s", name, strings.Join(allNames(), ", "))
		}
		selected = append(selected, all[i])
	}
	return selected, nil
}

func allNames() []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return names
}

// Asked returns the names of the proofs that changes of these files ask for, in the repository at root.
func Asked(root string, files []string) (names []string) {
	for _, p := range all {
		if slices.ContainsFunc(files, func(file string) bool { return p.asked(root, file) }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// asked reports whether a change of a file asks for the proof: it has tests of it, or is in its list, in
// which a folder stands for all in it.
func (p Proof) asked(root, file string) bool {
	if strings.HasSuffix(file, "_test.go") {
		text, _ := os.ReadFile(filepath.Join(root, file)) //nolint:gosec // none if it was removed
		if bytes.Contains(text, []byte(`prove.Only(t, "`+p.Name+`"`)) {
			return true
		}
	}
	return slices.ContainsFunc(p.For, func(of string) bool {
		return file == of || strings.HasPrefix(file, of+"/")
	})
}

// List prints a line for each proof: its name, what it shows, and what of its needs is missing.
func List(ctx context.Context, proofs []Proof, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range proofs {
		lacks := ""
		if missing := p.Missing(ctx); len(missing) > 0 {
			lacks = fmt.Sprintf("missing: %s (prove --install %s)", strings.Join(missing, " "), p.Name)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.What, lacks)
	}
	return w.Flush()
}

// Missing returns which of Debian's packages that the proof needs are not installed. On another system it
// returns none: the tests say what they lack.
func (p Proof) Missing(ctx context.Context) (packages []string) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return nil
	}
	for _, need := range p.Needs {
		programs, name, known := strings.Cut(need, ":")
		if !known {
			name = programs
		} else if slices.ContainsFunc(strings.Split(programs, "|"), there) {
			continue
		}
		status, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Status}", name). //nolint:gosec // of the table
													Output()
		if err != nil || !strings.HasSuffix(string(status), " installed") {
			packages = append(packages, name)
		}
	}
	return packages
}

func there(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// policy is Debian's file that decides whether services start as their packages are installed.
const policy = "/usr/sbin/policy-rc.d"

// Install installs what proofs need and is missing, on Debian, as root. No service starts: the tests run
// processes of their own.
func Install(ctx context.Context, proofs []Proof, log io.Writer) error {
	var missing []string
	for _, p := range proofs {
		missing = append(missing, p.Missing(ctx)...)
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := os.Stat(policy); errors.Is(err, fs.ErrNotExist) { // one that stands is kept
		if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil { //nolint:gosec // a program
			return fmt.Errorf("it needs Debian, and root: %w", err)
		}
		defer func() { _ = os.Remove(policy) }()
	}
	for _, line := range [][]string{{"update", "-qq"},
		append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)} {
		apt := exec.CommandContext(ctx, "apt-get", line...) //nolint:gosec // of the table
		apt.Stdout, apt.Stderr = log, log
		apt.Env = append(apt.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := apt.Run(); err != nil {
			return fmt.Errorf("apt-get %s, which needs Debian, and root: %w", strings.Join(line, " "), err)
		}
	}
	return nil
}
