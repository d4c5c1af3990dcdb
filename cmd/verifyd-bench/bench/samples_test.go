package bench

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Each run is held against its own ceiling: a disturbance that halves both changes no share.
func TestResultsAreMediansOfRuns(t *testing.T) {
	var all samples
	for _, run := range []struct {
		ops, ceiling int64
		p50          time.Duration
		cpu          time.Duration
	}{{100, 400, 3 * time.Millisecond, 100 * time.Millisecond},
		{50, 100, 9 * time.Millisecond, 100 * time.Millisecond}, {300, 300, 1 * time.Millisecond, -1}} {
		ceiling := sample{row: rowBareHandler, c: 64, ops: run.ceiling, took: time.Second, cpu: -1}
		s := sample{
			row: rowInit, c: 64, ops: run.ops, took: time.Second, p50: run.p50, cpu: run.cpu,
			ceiling: &ceiling, errors: 1, firstErr: "x",
		}
		s.note("more_ms", float64(run.ops))
		all.add(syncAlways, s)
		all.add(syncAlways, ceiling)
	}
	all.add(syncInterval, sample{row: rowBareHandler, c: 64})
	got := all.results(nil)
	if len(got) != 3 || got[0].Row != rowBareHandler || got[1].Row != rowInit || got[2].Sync != syncInterval {
		t.Fatalf("%+v", got)
	}
	r := got[1]
	if r.Rate != 100 || r.Share != 0.5 || r.P50 != 3 || math.Abs(r.CPU-1500) > 1e-6 || r.Runs != 3 ||
		r.Ops != 450 || r.Errors != 3 || r.More["more_ms"] != 100 ||
		r.Ceiling != rowBareHandler || r.FirstError != "x" {
		t.Errorf("%+v", r)
	}
	if got[0].CPU != 0 || got[0].Share != 0 || got[0].Rate != 300 {
		t.Errorf("%+v", got[0])
	}
	if only := all.results(func(row string) bool { return row == rowInit }); len(only) != 1 {
		t.Errorf("%+v", only)
	}
}

// The head of the table says what the row scaling bounded, where it was measured.
func TestTableSaysWhatScalingBounded(t *testing.T) {
	one := Result{
		Row: rowScaling, Variant: "1 dispatcher", Sync: syncExternal, Rate: 159, More: map[string]float64{
			connectionsNote: 16, "of_linear_share": 1,
		},
	}
	for want, results := range map[bool][]Result{true: {one}, false: {{Row: rowIdle}}} {
		var out bytes.Buffer
		if err := printTable(&out, Machine{}, results); err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(out.String(),
			"at most 16 callbacks under way at once (--connections), to one receiver that takes 100ms for each: 160/s"); says != want {
			t.Errorf("it says so: %t, want %t:\n%s", says, want, &out)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	err := printTable(&out, Machine{Version: "v1", Filesystem: "tmpfs"}, []Result{
		{Row: rowInit, Variant: "at half load", Sync: syncAlways, Clients: 64, Rate: 1234.4, Share: 0.354,
			P50: 1.234, Errors: 2, FirstError: "503"},
		{Row: rowIdle, Sync: syncAlways, PeakBytes: 33_400_000, More: map[string]float64{"ready_ms": 75.754}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"init at half load  always  64   1234        0.35    1.23       -          -        - 2 ERRORS: 503\n",
		"             idle  always   -      -           -       -       -          -       33 ready ms 75.75\n",
		"The stores lie in memory",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table misses %q:\n%s", want, &out)
		}
	}
}

// Two rows of the defaults are not measured unless they are named; a ceiling that ran beside a named row is
// shown.
func TestWhatIsMeasuredAndShown(t *testing.T) {
	all := Options{}
	if all.wants(rowMillion) || all.wants(rowGenerator) || !all.wants(rowInit) || !all.wants(rowBareClient) {
		t.Error("the default rows are others")
	}
	one := Options{Rows: []string{rowDispatch}}
	if one.wants(rowBareClient) || !one.shown(rowBareClient) || one.shown(rowInit) {
		t.Error("what is shown beside dispatch is something else")
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(Options{Err: &out})
	p.step("one")
	p.end()
	if got := out.String(); got != "    0 s  one\n" {
		t.Errorf("%q", got)
	}
	out.Reset()
	p = newProgress(Options{Err: &out, Terminal: true})
	p.step("one")
	p.end()
	if got := out.String(); got != "\r    0 s  one\x1b[K\r\x1b[K" {
		t.Errorf("%q", got)
	}
}

// The CPU time and memory of a child are its own.
func TestUsageOfAProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("skipped: this system has no /proc to ask")
	}
	cmd := exec.Command("/bin/sh", "-c",
		"i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read wait; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s := sample{}
	(usage{p: p}).into(&s)
	if s.cpu <= 0 || s.peak < 100<<10 || p.memory(residentNow) > s.peak {
		t.Errorf("CPU %s, %d bytes", s.cpu, s.peak)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	(usage{p: p}).into(&s)
	if s.cpu >= 0 {
		t.Errorf("a process that is gone has used %s", s.cpu)
	}
}

func TestStatTime(t *testing.T) {
	const stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 7 3 20 0 1 0 100\n"
	for times, want := range map[int]time.Duration{2: 2 * time.Second, 4: 2100 * time.Millisecond} {
		if got := statTime([]byte(stat), times); got != want {
			t.Errorf("%d times: %s, want %s", times, got, want)
		}
	}
	for _, bad := range []string{"", "42 (x) S 1 2 3", "42 (x) S 1 42 42 0 -1 4194560 100 0 0 0 a b 7 3"} {
		if got := statTime([]byte(bad), 2); got >= 0 {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
