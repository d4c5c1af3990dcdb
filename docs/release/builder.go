package main

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
	"runtime"
	"slices"
	"strings"
	"time"
)

// target is a system that there are binaries for.
type target struct{ os, arch string }

var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

func (t target) String() string { return t.os + "_" + t.arch }

// suffix is what files that can be run end with.
func (t target) suffix() string {
	if t.os == "windows" {
		return ".exe"
	}
	return ""
}

// builder makes the files of a release.
type builder struct {
	source
	targets []target
	out     string
	log     io.Writer

	work     string              // a temporary folder
	binaries map[target]binaries // what was compiled
	extras   []file              // completions and man pages, as the archives have them
	made     []string            // names of the files
}

// binaries are the programs of a target, as they are run.
type binaries struct{ verifyd, bench []byte }

// file is one of an archive or package.
type file struct {
	name   string      // in a package from its root, without a slash before it
	mode   fs.FileMode // permissions
	data   []byte
	folder bool
	config bool // it is the operator's once it is installed
	own    bool // it is the service's: of its group, and a folder of its user too
	nobody bool // it is of the image's user
}

// build makes all files, and the sums last.
func (b *builder) build(ctx context.Context) (err error) {
	if entries, err := os.ReadDir(b.out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", b.out)
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil { //nolint:gosec // it is to be published
		return err
	}
	if b.work, err = os.MkdirTemp("", "verifyd-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	if err := b.compile(ctx); err != nil {
		return err
	}
	if err := b.document(ctx); err != nil {
		return err
	}
	for _, step := range []func() error{b.archives, b.packages, b.image, b.boms, b.provenance, b.sums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// write writes one file of the release.
func (b *builder) write(name string, pack func(w io.Writer) error) error {
	var data bytes.Buffer
	if err := pack(&data); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	b.made = append(b.made, name)
	_, _ = fmt.Fprintf(b.log, "%s  %.1f MB\n", name, float64(data.Len())/1e6)
	return os.WriteFile(filepath.Join(b.out, name), data.Bytes(), 0o644) //nolint:gosec // to be published
}

// read reads a file of the repository.
func (b *builder) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(b.root, name)) //nolint:gosec // names are this program's own
}

// compile makes the binaries of each target. Version, commit and date are handed over: what Go itself would
// write of the repository depends on how it was cloned.
func (b *builder) compile(ctx context.Context) error {
	b.binaries = map[target]binaries{}
	for _, t := range b.targets {
		_, _ = fmt.Fprintln(b.log, "compile", t)
		dir := filepath.Join(b.work, t.String())
		if err := b.goBuild(ctx, t, dir); err != nil {
			return err
		}
		var made binaries
		for name, to := range map[string]*[]byte{"verifyd": &made.verifyd, "verifyd-bench": &made.bench} {
			var err error
			*to, err = os.ReadFile(filepath.Join(dir, name+t.suffix())) //nolint:gosec // just made
			if err != nil {
				return err
			}
		}
		b.binaries[t] = made
	}
	return nil
}

// goBuild compiles both programs for a target.
func (b *builder) goBuild(ctx context.Context, t target, dir string) error {
	const pkg = "verifyd/cmd/verifyd/version."
	flags := "-s -w -X " + pkg + "built=" + b.version + " -X " + pkg + "commit=" + b.commit + " -X " + pkg +
		"date=" + b.date.Format(time.RFC3339)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, //nolint:gosec // ours
		"-o", dir+string(filepath.Separator), "./cmd/verifyd", "./cmd/verifyd-bench")
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOPROXY=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile for %s: %w: %s\nif modules are missing: go mod download", t, err, said)
	}
	return nil
}

// document asks the binaries for this machine for their man pages and completions.
func (b *builder) document(ctx context.Context) error {
	here, dir := target{runtime.GOOS, runtime.GOARCH}, filepath.Join(b.work, "here")
	if slices.Contains(b.targets, here) {
		dir = filepath.Join(b.work, here.String())
	} else if err := b.goBuild(ctx, here, dir); err != nil {
		return err
	}
	for _, program := range []string{"verifyd", "verifyd-bench"} {
		ask := []string{"help", "--as"}
		if program == "verifyd-bench" {
			ask = []string{"manual"}
		}
		for as, name := range map[string]string{
			"man": "man/%s.1", "bash": "completions/bash/%s", "zsh": "completions/zsh/_%s",
			"fish": "completions/fish/%s.fish",
		} {
			out, err := exec.CommandContext(ctx, filepath.Join(dir, program+here.suffix()), //nolint:gosec // ours
				append(ask, as)...).Output()
			if err != nil {
				return fmt.Errorf("ask %s for its %s: %w", program, as, err)
			}
			b.extras = append(b.extras, file{name: fmt.Sprintf(name, program), mode: 0o644, data: out})
		}
	}
	slices.SortFunc(b.extras, func(x, y file) int { return strings.Compare(x.name, y.name) })
	return nil
}
