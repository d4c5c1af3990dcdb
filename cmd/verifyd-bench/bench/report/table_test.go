package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

// Each run is compared with its own ceiling: a disturbance that halves both changes no share.
func TestResultsAreMediansOfRuns(t *testing.T) {
	var all Samples
	for _, run := range []struct {
		ops, ceiling int64
		p50          time.Duration
		cpu          time.Duration
	}{{100, 400, 3 * time.Millisecond, 100 * time.Millisecond},
		{50, 100, 9 * time.Millisecond, 100 * time.Millisecond}, {300, 300, 1 * time.Millisecond, -1}} {
		ceiling := Sample{Row: "bare-handler", Clients: 64, Ops: run.ceiling, Took: time.Second, CPU: -1}
		s := Sample{
			Row: "init", Clients: 64, Ops: run.ops, Took: time.Second, P50: run.p50, CPU: run.cpu,
			Ceiling: &ceiling, Errors: 1, FirstErr: "x",
		}
		s.Note("more_ms", float64(run.ops))
		all.Add("always", s)
		all.Add("always", ceiling)
	}
	all.Add("interval", Sample{Row: "bare-handler", Clients: 64})
	got := all.Results([]string{"bare-handler", "init"})
	if len(got) != 3 || got[0].Row != "bare-handler" || got[1].Row != "init" || got[2].Sync != "interval" {
		t.Fatalf("%+v", got)
	}
	r := got[1]
	if r.Rate != 100 || r.Share != 0.5 || r.P50 != 3 || math.Abs(r.CPU-1500) > 1e-6 || r.Runs != 3 ||
		r.Ops != 450 || r.Errors != 3 || r.More["more_ms"] != 100 ||
		r.Ceiling != "bare-handler" || r.FirstError != "x" {
		t.Errorf("%+v", r)
	}
	if got[0].CPU != 0 || got[0].Share != 0 || got[0].Rate != 300 {
		t.Errorf("%+v", got[0])
	}
	if only := all.Results([]string{"init"}); len(only) != 1 {
		t.Errorf("%+v", only)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	d := Document{Machine: Machine{Version: "v1", Filesystem: "tmpfs"}, Results: []Result{
		{Row: "init", Variant: "at half load", Sync: "always", Clients: 64, Rate: 1234.4, Share: 0.354,
			P50: 1.234, Errors: 2, FirstError: "503"},
		{Row: "idle", Sync: "always", PeakBytes: 33_400_000, More: map[string]float64{"ready_ms": 75.754}},
	}}
	if err := d.PrintTable(&out, "a remark"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"init at half load  always  64   1234        0.35    1.23       -          -        - 2 " +
			"ERRORS: 503\n",
		"             idle  always   -      -           -       -       -          -       33 ready ms " +
			"75.75\n",
		"The stores lie in memory", "\na remark\n\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table misses %q:\n%s", want, &out)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, false)
	p.Step("one")
	p.End()
	if got := out.String(); got != "    0 s  one\n" {
		t.Errorf("%q", got)
	}
	out.Reset()
	p = NewProgress(&out, true)
	p.Step("one")
	p.End()
	if got := out.String(); got != "\r    0 s  one\x1b[K\r\x1b[K" {
		t.Errorf("%q", got)
	}
}
