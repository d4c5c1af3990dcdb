package laws

import (
	"bufio"
	"context"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"verifyd/natsconf/natstest/prove"
)

// What one session may reach, from its start to its callback. The bounds may only become smaller.
const (
	maxLifeFunctions = 780
	maxLifeFiles     = 190
	maxLifePackages  = 53
)

// Who follows one session through the code reads a bounded part of it: the functions that `demo --auto`
// reaches, and a demo that is stopped before its first session does not. With -v it prints them.
func TestLifeOfASession(t *testing.T) {
	prove.Only(t, "life", "it builds the program with coverage")
	program := filepath.Join(t.TempDir(), "verifyd")
	output(t, "go", "build", "-cover", "-coverpkg=verifyd/...", "-o", program, "verifyd/cmd/verifyd")
	life, idle := reached(t, program, "--auto"), reached(t, program)
	maps.DeleteFunc(life, func(function, _ string) bool { return idle[function] != "" })
	if len(idle) < 100 || len(life) < 100 {
		t.Fatalf("an idle demo reaches %d functions, and a session %d more: they are not all found",
			len(idle), len(life))
	}
	files, packages := map[string]int{}, map[string][]string{}
	for function, file := range life {
		files[file]++
		packages[path.Dir(file)] = append(packages[path.Dir(file)], function)
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		slices.Sort(packages[folder])
		t.Logf("%s: %d\n\t%s", folder, len(packages[folder]), strings.Join(packages[folder], "\n\t"))
	}
	t.Logf("figures: a session reaches %d functions (%d at most) in %d files (%d) of %d packages (%d)",
		len(life), maxLifeFunctions, len(files), maxLifeFiles, len(packages), maxLifePackages)
	if len(life) > maxLifeFunctions || len(files) > maxLifeFiles || len(packages) > maxLifePackages {
		t.Error("a session reaches more than that: the functions are listed above")
	}
}

// reached runs a demo, and returns the functions that it reaches, with their files. Without --auto the demo
// is stopped as soon as its service is up.
func reached(t *testing.T, program string, args ...string) map[string]string {
	t.Helper()
	data := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it ends by itself in seconds
	defer cancel()
	demo := exec.CommandContext(ctx, program, append([]string{"demo"}, args...)...)
	demo.Env = append(demo.Environ(), "GOCOVERDIR="+data)
	demo.Stderr = os.Stderr
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	up := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if !strings.Contains(lines.Text(), "verifyd is up") {
			continue
		}
		up = true
		if len(args) == 0 {
			_ = demo.Process.Signal(syscall.SIGTERM) // once: a second one would end it at once
		}
	}
	if err := demo.Wait(); !up || err != nil && len(args) > 0 { // what is stopped may end with an error
		t.Fatalf("demo %s: up %v, %v", args, up, err)
	}
	functions := map[string]string{}
	for line := range strings.Lines(output(t, "go", "tool", "covdata", "func", "-i", data)) {
		// as in "verifyd/edge/api/init.go:31:	api.init	95.2%"
		if f := strings.Fields(line); len(f) == 3 && f[2] != "0.0%" && f[0] != "total" {
			file, _, _ := strings.Cut(f[0], ":")
			functions[f[0]+" "+f[1]] = file
		}
	}
	return functions
}

// output runs a program and returns what it prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", program, args[0], err)
	}
	return string(text)
}
