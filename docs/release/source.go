package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"verifyd/cmd/verifyd/version"
)

// source is what a release is made of.
type source struct {
	root       string // of the repository
	version    string // 0.9.0, or 0.9.0-dev+5221851a2264 of what is no release
	unreleased []string
	commit     string
	changed    bool      // files differ from the commit
	date       time.Time // of the commit
	author     string    // of the commit, who answers for the packages: Name <address>
}

// look finds out what is checked out in the repository at root. The version is that of the code. It is a
// release where the changelog has it, the files are the commit's, and Go is the one that the Dockerfile
// names; otherwise it is a build on the way to that version, and its version says so.
func look(ctx context.Context, root string) (s source, err error) {
	s.root = root
	log, err := git(ctx, root, "log", "-1", "--format=%H%n%ct%n%an <%ae>")
	if err != nil {
		return s, err
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	seconds, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || len(lines) != 3 {
		return s, fmt.Errorf("git log says %q", log)
	}
	s.commit, s.date, s.author = lines[0], time.Unix(seconds, 0).UTC(), lines[2]
	files, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return s, err
	}
	if s.changed = files != ""; s.changed {
		s.unreleased = append(s.unreleased, "files are not as the commit has them")
	}
	s.version = version.Number()
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md")) //nolint:gosec // our own
	if err != nil {
		return s, err
	}
	if !strings.Contains(string(changelog), "\n## ["+s.version+"] - ") {
		s.unreleased = append(s.unreleased, "CHANGELOG.md has no "+s.version)
	}
	named, err := dockerfileGo(root)
	if err != nil {
		return s, err
	}
	if runtime.Version() != named {
		s.unreleased = append(s.unreleased, "this is "+runtime.Version()+", the Dockerfile names "+named)
	}
	if len(s.unreleased) > 0 {
		s.version += "-dev+" + s.commit[:12]
		if s.changed {
			s.version += ".changed"
		}
	}
	return s, nil
}

var goImage = regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:([0-9.]+)`)

// dockerfileGo returns the Go that the Dockerfile builds with: go1.26.8.
func dockerfileGo(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile")) //nolint:gosec // our own
	if err != nil {
		return "", err
	}
	found := goImage.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("the Dockerfile names no version of Go")
	}
	return "go" + string(found[1]), nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...) //nolint:gosec // our own
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said.String())
	}
	return string(out), nil
}

// packageVersion returns the version as dpkg and rpm compare it: a build on the way sorts before the release.
func (s source) packageVersion() string { return strings.Replace(s.version, "-", "~", 1) }

// imageTag returns the version as tags of images are written, which have no plus.
func (s source) imageTag() string { return strings.ReplaceAll(s.version, "+", "-") }
