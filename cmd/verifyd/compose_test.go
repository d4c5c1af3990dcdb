package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"verifyd/cmd/verifyd/check"
)

// maxImage is the maximum size of the image.
const maxImage = 40 << 20

// The whole stack from images built here: every container is hardened and healthy, the demo shows a callback,
// operators reach it, and nothing is left afterwards.
func TestComposeStack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, profile := range []string{"demo", "metrics", "operator"} {
		s.must(t, "--profile", profile, "config", "--quiet")
	}
	s.hurryPrometheus(t)
	s.must(t, "--profile", "demo", "--profile", "metrics", "up", "--detach")
	for service, forEver := range map[string]bool{
		"prepare": false, "apply": false, "nats-1": true, "nats-2": true, "nats-3": true, "edge-1": true,
		"edge-2":       true,
		"dispatcher-1": true, "dispatcher-2": true, "proxy": true, "prometheus": true,
	} {
		t.Run(service, func(t *testing.T) { s.judgeContainer(t, service, forEver) })
	}
	p := s.prometheus(t)
	inUse := t.Run("in use", func(t *testing.T) { // tests that wait for different things, in parallel
		for name, judge := range map[string]func(t *testing.T){
			"image": s.judgeImage, "demo": s.demonstrate, "operator": s.judgeOperator,
			"check of an edge":       func(t *testing.T) { s.judgeCheck(t, "edge-2") },
			"check of a dispatcher":  func(t *testing.T) { s.judgeCheck(t, "dispatcher-2") },
			"targets of Prometheus":  p.judgeTargets,
			"alerts that are loaded": p.judgeRules,
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); judge(t) })
		}
	})
	if !inUse {
		return // the following is about what the demo did
	}
	t.Run("panels", func(t *testing.T) { p.judgePanels(t) })
	t.Run("alert", func(t *testing.T) { s.judgeAlert(t, p) })
}

// judgeOperator checks that an operator reaches the store.
func (s *stack) judgeOperator(t *testing.T) {
	t.Helper()
	s.must(t, "run", "--rm", "-T", "operator", "account", "create", "Compose Guild")
	key := strings.TrimSpace(s.must(t, "run", "--rm", "-T", "operator", "key", "create", "--account",
		"Compose Guild"))
	if !apiKeyForm.MatchString(key) {
		t.Errorf("an operator's new key is %q", key)
	}
}

// judgeCheck reads what a process's own check finds.
func (s *stack) judgeCheck(t *testing.T, service string) {
	t.Helper()
	out := s.must(t, "exec", "-T", service, "/verifyd", "check", "--json")
	var doc struct {
		Worst    check.Level
		Findings []check.Finding
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	byArea := map[string][]check.Finding{}
	for _, f := range doc.Findings {
		byArea[f.Area] = append(byArea[f.Area], f)
	}
	expectFound(t, byArea, "permissions", check.LevelOK, "write nothing else")
	expectFound(t, byArea, "topology", check.LevelOK, "as it should be")
	expectFound(t, byArea, "store", check.LevelOK, "of 61440 MiB")
	if doc.Worst == check.LevelError {
		t.Errorf("%s: %s", service, out)
	}
}

// judgeImage checks the size, the user and the bytes: the same binary is built on this machine outside of the
// image.
func (s *stack) judgeImage(t *testing.T) {
	t.Helper()
	size := must[int64](t)(strconv.ParseInt(s.docker(t, "image", "inspect", "--format", "{{.Size}}",
		"verifyd:local"), 10, 64))
	if size > maxImage {
		t.Errorf("the image takes %d bytes, more than %d", size, maxImage)
	}
	if user := s.docker(t, "image", "inspect", "--format", "{{.Config.User}}",
		"verifyd:local"); user != "65532:65532" {
		t.Errorf("the image's user is %q", user)
	}
	dir := t.TempDir()
	id := s.docker(t, "create", "verifyd:local")
	defer s.docker(t, "rm", id)
	s.docker(t, "cp", id+":/verifyd", filepath.Join(dir, "image"))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w -X verifyd/cmd/verifyd/version.built=", "-o", filepath.Join(dir, "here"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	image, here := digestOf(t, filepath.Join(dir, "image")), digestOf(t, filepath.Join(dir, "here"))
	if image != here {
		t.Errorf("two builds of the same source differ: %x and %x", image, here)
	}
}

func digestOf(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	return sha256.Sum256(must[[]byte](t)(os.ReadFile(path)))
}

// judgeContainer checks the restrictions of a container.
func (s *stack) judgeContainer(t *testing.T, service string, forEver bool) {
	t.Helper()
	id := s.container(t, service)
	var inspected []struct {
		State struct {
			Status   string
			ExitCode int
			Health   *struct{ Status string }
		}
		Config     struct{ User string }
		HostConfig struct {
			ReadonlyRootfs               bool
			CapDrop, CapAdd, SecurityOpt []string
			Memory, PidsLimit            int64
			RestartPolicy                struct{ Name string }
			Privileged                   bool
		}
	}
	if err := json.Unmarshal([]byte(s.docker(t, "inspect", id)), &inspected); err != nil ||
		len(inspected) != 1 {
		t.Fatalf("inspect: %v, %d containers", err, len(inspected))
	}
	c := inspected[0]
	h := c.HostConfig
	user := "65532:65532"
	if service == "prometheus" {
		user = "65534:65534" // its image's
	}
	if c.Config.User != user || !h.ReadonlyRootfs || h.Privileged || strings.Join(h.CapDrop, ",") != "ALL" ||
		!strings.Contains(strings.Join(h.SecurityOpt, ","), "no-new-privileges") {
		t.Errorf("not hardened: user %q, %+v", c.Config.User, h)
	}
	if added := strings.TrimPrefix(strings.Join(h.CapAdd, ","), "CAP_"); added != "" &&
		(service != "proxy" || added != "NET_BIND_SERVICE") {
		t.Errorf("capabilities %s", added)
	}
	if h.Memory == 0 || h.PidsLimit == 0 {
		t.Errorf("no limits: memory %d, processes %d", h.Memory, h.PidsLimit)
	}
	if !forEver {
		if c.State.Status != "exited" || c.State.ExitCode != 0 {
			t.Errorf("it is %s with %d", c.State.Status, c.State.ExitCode)
		}
		return
	}
	if h.RestartPolicy.Name != "unless-stopped" || c.State.Health == nil ||
		c.State.Health.Status == "unhealthy" {
		t.Errorf("restart %q, health %+v", h.RestartPolicy.Name, c.State.Health)
	}
}

// demonstrate reads the demo's log until the callback is there.
func (s *stack) demonstrate(t *testing.T) {
	t.Helper()
	follow := exec.CommandContext(t.Context(), "docker", "logs", "--follow", s.container(t, "demo"))
	out := must[io.ReadCloser](t)(follow.StdoutPipe())
	var errOut bytes.Buffer
	follow.Stderr = &errOut
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = follow.Process.Kill(); _ = follow.Wait() }()
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "its signature is valid") {
			return
		}
	}
	// what the demo says last, if it is read first
	t.Errorf("no callback:\n%s\n%s%s", s.logs(), said.String(), errOut.String())
}
