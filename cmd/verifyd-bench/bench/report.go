package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Machine is where it was measured.
type Machine struct {
	Version    string  `json:"verifyd"`
	Go         string  `json:"go"`
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	Cores      int     `json:"cores"`                  // shared by generator, receiver and service
	Others     float64 `json:"others_cores,omitempty"` // how many of them other programs used meanwhile
	Filesystem string  `json:"filesystem,omitempty"`   // of the stores
	Sync       float64 `json:"fsync_us,omitempty"`     // the median of a written and synced 4 KiB
	Duration   float64 `json:"duration_s"`             // of one measurement
	Runs       int     `json:"runs"`
	Scale      float64 `json:"scale,omitempty"`
}

// Document is what --json prints. The names of its members do not change.
type Document struct {
	Machine  Machine   `json:"machine"`
	Results  []Result  `json:"results"`
	Failures []failure `json:"failures"`
}

func machineFacts(o Options, dir string) Machine {
	m := Machine{
		Version: o.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Cores:      runtime.GOMAXPROCS(0),
		Filesystem: filesystemOf(dir), Duration: o.Duration.Seconds(), Runs: o.Runs, Scale: o.Scale,
	}
	m.Sync, _ = syncTime(dir) // left out where it cannot be told
	return m
}

// filesystemOf returns the type of the filesystem that holds dir, where Linux tells: the mount with the
// longest path above it.
func filesystemOf(dir string) (kind string) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return ""
	}
	longest := 0
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= longest {
			longest, kind = len(at), f[2]
		}
	}
	return kind
}

// syncTime returns the median time in microseconds of a write of 4 KiB that is synced: what every durable
// write waits for at least.
func syncTime(dir string) (_ float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync")) //nolint:gosec // the bench's own folder
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	var times []float64
	for range 50 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4<<10)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(began))/float64(time.Microsecond))
	}
	return medianFloat(times), nil
}

// tell prints the table or the document.
func tell(o Options, m Machine, all *samples, failed []failure) error {
	results := all.results(o.shown)
	if o.JSON {
		e := json.NewEncoder(o.Out)
		e.SetIndent("", "  ")
		if err := e.Encode(Document{
			m, append([]Result{}, results...), append([]failure{}, failed...),
		}); err != nil {
			return fmt.Errorf("print the document: %w", err)
		}
		return nil
	}
	return printTable(o.Out, m, results)
}

// shown reports whether a row stands in the table: those that are wanted, and the ceilings that ran beside
// them.
func (o Options) shown(row string) bool {
	if o.wants(row) {
		return true
	}
	for _, s := range suites {
		if slices.Contains(s.rows, row) {
			return slices.ContainsFunc(s.rows, o.wants)
		}
	}
	return false
}

func printTable(out io.Writer, m Machine, results []Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "verifyd %s, %s %s/%s, %d cores for generator, receiver and service together", m.Version,
		m.Go, m.OS, m.Arch, m.Cores)
	if m.Filesystem != "" {
		fmt.Fprintf(&b, ", stores on %s", m.Filesystem)
	}
	if m.Sync > 0 {
		fmt.Fprintf(&b, ", 4 KiB synced in %.0f µs", m.Sync)
	}
	fmt.Fprintf(&b, "\nmedians of %d runs of %gs; CPU and memory are those of the service or ceiling alone",
		m.Runs, m.Duration)
	if m.Others > 0 {
		fmt.Fprintf(&b, "\nOther programs used %.1f of the cores meanwhile.", m.Others)
	}
	if m.Filesystem == "tmpfs" {
		b.WriteString("\nThe stores lie in memory, where syncing costs nothing: name a folder on a disk with --dir.")
	}
	b.WriteString(scalingSays(results))
	b.WriteString("\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "row\tsync\tc\tops/s\tof ceiling\tp50 ms\tp99 ms\tCPU µs/op\tpeak MB\t")
	for _, r := range results {
		_, _ = fmt.Fprintln(w, strings.Join([]string{
			r.label(), r.Sync, number(float64(r.Clients), 0), number(r.Rate, 0), number(r.Share, 2),
			number(r.P50, 2), number(r.P99, 2),
			number(r.CPU, 0), number(float64(r.PeakBytes)/1e6, 0), " " + r.notes(),
		}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// number leaves out what was not measured.
func number(v float64, decimals int) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// notes are what has no column.
func (r Result) notes() string {
	var notes []string
	if r.Errors > 0 {
		notes = append(notes, fmt.Sprintf("%d ERRORS: %s", r.Errors, r.FirstError))
	}
	if r.Duplicates > 0 {
		notes = append(notes, fmt.Sprintf("%d DUPLICATES", r.Duplicates))
	}
	for _, name := range slices.Sorted(maps.Keys(r.More)) {
		if strings.HasPrefix(name, tenthNote) {
			continue
		}
		notes = append(notes, strings.ReplaceAll(name, "_", " ")+" "+
			strconv.FormatFloat(r.More[name], 'g', 4, 64))
	}
	return strings.Join(notes, ", ")
}
