package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd-bench/bench"
	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/topology"
)

// childVariable makes this test binary run as the bench.
const childVariable = "VERIFYD_TEST_CHILD"

// verifydFile is the measured binary.
var verifydFile string

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "verifyd-bench-test-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if verifydFile, err = build(context.Background(), dir); err != nil {
			panic(err)
		}
		code := natstest.Tests(m).Run()
		if err := goleak.Find(); err != nil && code == 0 {
			_, _ = fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}())
}

// buffer may be written and read concurrently.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// benchOptions are those of a bench that takes seconds: its figures mean nothing, but everything it does
// happens.
func benchOptions(t *testing.T, out *bytes.Buffer, rows ...string) bench.Options {
	t.Helper()
	return bench.Options{
		Rows: rows, Sync: "always", Duration: 50 * time.Millisecond, Runs: 1, Scale: 0.01, Connections: 2,
		JSON: true, Dir: t.TempDir(),
		Verifyd: verifydFile, Self: os.Args[0], Env: []string{childVariable + "=1"}, Version: "test",
		Out: out, Err: &buffer{},
	}
}

// runBench runs a bench and checks that it leaves nothing behind.
func runBench(t *testing.T, o bench.Options, out *bytes.Buffer) report.Document {
	t.Helper()
	if err := bench.Run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	leavesNothing(t, o.Dir)
	var doc report.Document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return doc
}

func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	if left := must[[]os.DirEntry](t)(os.ReadDir(dir)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Every row runs against the real binary, and its figures are plausible.
func TestBenchMeasuresEveryRow(t *testing.T) {
	prove.Only(t, "weights", "it starts some fifteen services")
	t.Parallel()
	var out bytes.Buffer
	doc := runBench(t, benchOptions(t, &out), &out)
	out.Reset()
	slow := benchOptions(t, &out, "accounts", "million", "generator")
	slow.Scale, slow.Profile = 0.0005, t.TempDir()
	more := runBench(t, slow, &out)
	if info := must[os.FileInfo](t)(
		os.Stat(filepath.Join(slow.Profile, "million-c256-always-1.pb.gz"))); info.Size() == 0 {
		t.Error("the profile is empty")
	}
	if doc.Machine.Cores < 1 || doc.Machine.Go == "" || doc.Machine.Version != "test" || doc.Failures == nil {
		t.Errorf("machine %+v, failures %v", doc.Machine, doc.Failures)
	}
	seen := map[string]int{}
	for _, r := range slices.Concat(doc.Results, more.Results) {
		seen[r.Row]++
		checkBenchResult(t, r)
	}
	want := map[string]int{
		"generator": 4, "bare-handler": 4, "init": 5, "publish": 4, "complete": 1,
		"bare-client": 1, "dispatch": 2, "paced": 2,
		"bare-session": 5, "signin": 4, "end-to-end": 1, "idle": 1, "accounts": 2, "million": 1,
	}
	for _, row := range slices.Concat(bench.Rows(), []string{"generator"}) {
		if seen[row] != want[row] {
			t.Errorf("%d results for the row %s, want %d", seen[row], row, want[row])
		}
	}
}

// figures checks what a row must have measured.
var figures = map[string]struct{ rate, latency, ceiling, more string }{
	"init":       {rate: "yes", latency: "yes"},
	"complete":   {rate: "yes", latency: "yes", ceiling: "publish batches of"},
	"dispatch":   {rate: "yes", ceiling: "bare-client", more: "kept_bytes_each"},
	"paced":      {rate: "yes", latency: "yes", more: "complete_p50_ms"},
	"end-to-end": {rate: "yes", latency: "yes", ceiling: "bare-session", more: "whole_session_p50_ms"},
	"signin":     {rate: "yes", latency: "yes", ceiling: "bare-session"},
	"accounts":   {rate: "yes", latency: "yes"},
	"idle":       {more: "ready_ms"},
	"million":    {rate: "yes", latency: "yes", more: "tenth_10_per_s"},
}

func checkBenchResult(t *testing.T, r report.Result) {
	t.Helper()
	if r.Errors != 0 || r.Duplicates != 0 || r.Sync != "always" {
		t.Errorf("errors or duplicates: %+v", r)
	}
	if r.P50 > r.P99 {
		t.Errorf("p50 above p99: %+v", r)
	}
	f, known := figures[r.Row]
	if !known { // a ceiling
		f.rate, f.latency = "yes", "yes"
	}
	if f.rate != "" && (r.Rate <= 0 || r.Ops == 0) || f.latency != "" && (r.P50 <= 0 || r.P99 <= 0) {
		t.Errorf("no rate or no latency: %+v", r)
	}
	if f.ceiling != "" && (!strings.HasPrefix(r.Ceiling, f.ceiling) || r.Share <= 0) {
		t.Errorf("not held against %s: %+v", f.ceiling, r)
	}
	if f.more != "" && r.More[f.more] <= 0 {
		t.Errorf("no %s: %+v", f.more, r)
	}
	if r.Row == "dispatch" && r.Ops != 200 || r.Row == "million" &&
		(r.More["pending"] != 500 || r.More["ready_after_kill_ms"] <= 0) {
		t.Errorf("not every session was delivered, or counted: %+v", r)
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil && r.PeakBytes == 0 {
		t.Errorf("no memory: %+v", r)
	}
}

// An interrupted bench stops its children, removes their stores, and prints what it has.
func TestBenchCanBeInterrupted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := benchOptions(t, &out, "bare-handler", "init")
	o.Duration, o.JSON = time.Minute, false
	log := &buffer{}
	o.Err = log
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- bench.Run(ctx, o) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(log.String(), "bare-handler, c = 1,") {
		<-tick.C
	}
	cancel()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "stopped before the end") ||
			!strings.Contains(out.String(), "ops/s") {
			t.Errorf("%v\n%s", err, &out)
		}
	case <-time.After(natstest.TestTimeout):
		t.Fatal("the bench goes on")
	}
	leavesNothing(t, o.Dir)
}

// emptyServer is an external server that holds no store.
func emptyServer(t *testing.T) (natsURL string, conn *natsconf.Conn) {
	t.Helper()
	dir := t.TempDir()
	e := must[*embedded.Server](t)(embedded.Open(embedded.Options{
		DataDir: dir, Log: zerolog.Nop(),
	}))
	stop := natstest.Serve(t, e)
	t.Cleanup(func() { stop(); _ = e.Close() })
	<-e.Ready()
	end := must[embedded.Endpoint](t)(embedded.ReadEndpoint(dir))
	conn = must[*natsconf.Conn](t)(natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		Embedded: e, Name: t.Name(), Log: zerolog.Nop(),
	}))
	t.Cleanup(conn.Close)
	at := must[*url.URL](t)(url.Parse(end.URL))
	at.User = url.UserPassword(end.User, end.Password)
	return at.String(), conn
}

// On an external server the bench cleans up after itself; one that holds a store is left alone.
func TestBenchOnAnExternalServer(t *testing.T) {
	prove.Only(t, "weights", "it starts some five services")
	t.Parallel()
	var out bytes.Buffer
	o := benchOptions(t, &out, "publish", "complete", "dispatch", "paced")
	var conn *natsconf.Conn
	o.NATSURL, conn = emptyServer(t)
	o.Replicas = 1
	if err := bench.Run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), `"sync": "external"`) {
		t.Errorf("not told as external: %s", &out)
	}
	for name := range conn.JS.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s is left", name)
	}
	if _, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: topology.StreamCompletions, Subjects: []string{"completion.*"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := bench.Run(t.Context(), o); !errors.Is(err, bench.ErrForeignStore) {
		t.Errorf("a server with a store: %v", err)
	}
	if _, err := conn.JS.Stream(t.Context(), topology.StreamCompletions); err != nil {
		t.Errorf("somebody's stream: %v", err)
	}
}

// The row scaling bounds each dispatcher process through its setting, counts the result at the receiver, and
// reports the bound.
func TestBenchScalesUnderABound(t *testing.T) {
	prove.Only(t, "weights", "it starts ten services")
	t.Parallel()
	var out bytes.Buffer
	o := benchOptions(t, &out, "scaling")
	o.NATSURL, _ = emptyServer(t)
	o.Replicas, o.Connections, o.Scale = 1, 3, 0.2 // thirty callbacks for each dispatcher, a second's work
	doc := runBench(t, o, &out)
	want := []string{"1 dispatcher", "2 dispatchers", "4 dispatchers"}
	if len(doc.Results) != len(want) {
		t.Fatalf("%+v", doc.Results)
	}
	for i, r := range doc.Results {
		most := float64(o.Connections << i) // of all processes together
		if r.Variant != want[i] || r.Errors != 0 || r.Duplicates != 0 || r.Rate <= 0 ||
			r.More["of_linear_share"] <= 0 || r.More["of_bound_share"] <= 0 ||
			r.More["connections_each"] != 3 {
			t.Errorf("%+v, want %s", r, want[i])
		}
		if got := r.More["under_way_most"]; got < float64(o.Connections) || got > most {
			t.Errorf("%s of 3 connections: %g callbacks under way at once, want up to %g", want[i], got, most)
		}
	}
}

func TestBenchRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--row inits":    `there is no row "inits"; the rows are bare-handler, init,`,
		"--sync never":   `--sync: "never" is not a mode; use always, interval or both`,
		"--duration 1ms": "--duration: 1ms is out of range; use 20ms to 1h",
		"--runs 0":       "--runs: 0 is out of range",
		"--scale 0":      "--scale: 0 is out of range",
		"--connections 0": "--connections: 0 is out of range; use 1 to 1024, for " +
			"example 16",
		"--profile /nowhere":                  `--profile: "/nowhere" is not a folder`,
		"--dir /nowhere/at/all":               `--dir: "/nowhere/at/all" is not a folder`,
		"--nats-creds x":                      "--nats-creds: set without --nats-url",
		"--replicas 3":                        "--replicas: set without --nats-url",
		"--nats-url http://user:SECRET@a":     "--nats-url: it is not a nats:// or tls:// URL",
		"--nats-url nats://a --replicas 2":    "--replicas: 2 copies cannot hold a majority",
		"--nats-url nats://a --nats-creds /x": `--nats-creds: "/x" cannot be read`,
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), strings.Fields(flags), &out, &errOut)
		if code != exitUsage || !strings.Contains(errOut.String(), want) ||
			strings.Contains(errOut.String(), "SECRET") || out.Len() > 0 {
			t.Errorf("%s: exit %d, %s, want %q", flags, code, &errOut, want)
		}
	}
}

// The service's own variables do not reach the bench: they would load the servers that the service runs on.
func TestBenchIgnoresTheServicesVariables(t *testing.T) {
	t.Setenv("VERIFYD_NATS_URL", "nats://production:4222")
	t.Setenv("VERIFYD_NATS_CREDS", "/nowhere")
	t.Setenv("VERIFYD_SYNC", "never")
	file := filepath.Join(t.TempDir(), "verifyd.yaml")
	if err := os.WriteFile(file, []byte("nats_url: nats://production:4222\nsync: interval\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VERIFYD_CONFIG", file)
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"--runs", "0"}, &out, &errOut)
	if got := errOut.String(); code != exitUsage || strings.Contains(got, "nats") ||
		strings.Contains(got, "sync") || !strings.Contains(got, "--runs") {
		t.Errorf("exit %d: %s", code, got)
	}
}

// A password on the command line is warned of, with what to use instead, and never repeated.
func TestBenchWarnsOfASecretOnTheCommandLine(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"--nats-url", "nats://me:hunter2@127.0.0.1:1", "--verifyd", "/nowhere"},
		&out, &errOut)
	if got := errOut.String(); code != exitFailed || !strings.Contains(got, "shows a secret") ||
		!strings.Contains(got, "--nats-creds") ||
		strings.Contains(got, "hunter2") {
		t.Errorf("exit %d: %s", code, got)
	}
}

func TestBenchChildAloneReportsWhatItIs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := child.Main(t.Context(), "publish", strings.NewReader(""), &out); err == nil ||
		!strings.Contains(err.Error(), "for verifyd-bench alone") {
		t.Error(err)
	}
	if err := child.Main(t.Context(), "nobody", strings.NewReader("{}\n"), &out); err == nil ||
		!strings.Contains(err.Error(), `"nobody"`) {
		t.Error(err)
	}
}

// The command lines in the documents are understood: their only fault is the one that the test adds, so that
// nothing is measured.
func TestDocumentedBenchCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/PERFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^go run \./cmd/verifyd-bench(.*)$`).FindAllStringSubmatch(string(text), -1)
	for _, line := range lines {
		flags, _, _ := strings.Cut(strings.ReplaceAll(line[1], " DIR", " "+t.TempDir()), " #")
		flags = regexp.MustCompile(`--runs \d+`).ReplaceAllString(flags, "")
		var out, errOut bytes.Buffer
		code := run(t.Context(), append(strings.Fields(flags), "--runs", "0"), &out, &errOut)
		if text := strings.TrimSpace(errOut.String()); code != exitUsage || strings.Count(text, "\n") > 0 ||
			!strings.Contains(text, "--runs: 0 is out of range") {
			t.Errorf("%s: exit %d, %s", line[0], code, text)
		}
	}
	if len(lines) < 5 {
		t.Errorf("%d command lines; are they read?", len(lines))
	}
}
