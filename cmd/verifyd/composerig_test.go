package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// repository is the path of the repository, from this package.
const repository = "../.."

// stack is what docker-compose.yml brings up, from images that were built here, under a project name and on
// networks of its own.
type stack struct {
	command []string // docker compose, or docker-compose if there is only that
	files   []string // that a test uses in addition to the repository's
	env     []string
	project string
	images  []string // made for this stack alone
	https   string   // where the proxy listens
	gateway string   // this machine's address on the network that leads out: the engine takes the first
}

var (
	// buildImages runs once for all tests.
	buildImages sync.Once
	// stacks counts those of this process, so that each has a name and networks of its own.
	stacks atomic.Int32
)

// newStack builds the images and prepares a stack; nothing runs yet. It ends with the test.
func newStack(t *testing.T) *stack {
	t.Helper()
	prove.Only(t, "containers", "images take a minute")
	number := stacks.Add(1)
	s := &stack{project: fmt.Sprintf("verifyd-test-%d-%d", os.Getpid(), number)}
	if out, err := exec.Command("docker", "info", "--format", "{{.ServerVersion}}").
		CombinedOutput(); err != nil {
		t.Fatalf("this proof needs an engine of Docker that answers: %v %s", err, out)
	}
	for _, command := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if s.command == nil && exec.Command(command[0], append(command[1:], "version")...).Run() == nil {
			s.command = command
		}
	}
	if s.command == nil {
		t.Fatal("this proof needs docker compose or docker-compose; Debian has docker-compose")
	}
	s.environment(t, 2*os.Getpid()+int(number))
	buildImages.Do(func() {
		if out, err := s.run(t, filepath.Join(repository, "docs", "compose", "local-images")); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if out, err := s.compose(ctx, "--profile", "demo", "--profile", "metrics", "--profile", "operator",
			"down", "--volumes", "--timeout", "0").CombinedOutput(); err != nil {
			t.Errorf("take the stack down: %v: %s", err, out)
		}
		if left := s.docker(t, "ps", "--all", "--quiet", "--filter",
			"label=com.docker.compose.project="+s.project); left != "" {
			t.Errorf("containers are left: %s", left)
		}
		for _, image := range s.images {
			s.docker(t, "image", "rm", image)
		}
	})
	return s
}

// environment names the stack's networks, which follow from its number, and ports that nothing else has.
func (s *stack) environment(t *testing.T, number int) {
	t.Helper()
	settings, err := os.ReadFile(filepath.Join(repository, "docs", "compose", "verifyd.env"))
	if err != nil {
		t.Fatal(err)
	}
	const from = "10.87.2.0/24"
	subnet := number % 125 * 2
	front, out := fmt.Sprintf("10.88.%d.0/24", subnet), fmt.Sprintf("10.88.%d.0/24", subnet+1)
	if !bytes.Contains(settings, []byte(from)) {
		t.Fatalf("verifyd.env does not name the network %s", from)
	}
	file := filepath.Join(t.TempDir(), "verifyd.env")
	if err := os.WriteFile(file, bytes.ReplaceAll(settings, []byte(from), []byte(out)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.https, s.gateway = natstest.Address(t), strings.TrimSuffix(out, "0/24")+"1"
	s.env = append(os.Environ(), "VERIFYD_ENV_FILE="+file, "VERIFYD_FRONT_SUBNET="+front,
		"VERIFYD_OUT_SUBNET="+out,
		"VERIFYD_HTTPS_PORT="+s.https, "VERIFYD_HTTP_PORT="+natstest.Address(t),
		"COMPOSE_PROJECT_NAME="+s.project)
}

// compose makes a command on the stack.
func (s *stack) compose(ctx context.Context, args ...string) *exec.Cmd {
	all := append(slices.Clone(s.command), "-f", "docker-compose.yml", "-f", "docs/compose/local.yml")
	for _, file := range s.files {
		all = append(all, "-f", file)
	}
	all = append(all, args...)
	c := exec.CommandContext(ctx, all[0], all[1:]...)
	c.Dir, c.Env = repository, s.env
	return c
}

// must runs a command on the stack and returns what it printed on standard output.
func (s *stack) must(t *testing.T, args ...string) string {
	t.Helper()
	c := s.compose(t.Context(), args...)
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, errOut.String(), s.logs())
	}
	return out.String()
}

// logs returns the last lines of everything, for a failure.
func (s *stack) logs() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, _ := s.compose(ctx, "logs", "--no-color", "--tail", "15").CombinedOutput()
	return string(out)
}

func (s *stack) run(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Env = s.env
	return c.CombinedOutput()
}

// docker runs a docker command and returns what it printed.
func (s *stack) docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// container returns the id of a service's container. The engine answers in a tenth of the time that compose
// takes.
func (s *stack) container(t *testing.T, service string) string {
	t.Helper()
	return s.docker(t, "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project="+s.project,
		"--filter", "label=com.docker.compose.service="+service)
}
