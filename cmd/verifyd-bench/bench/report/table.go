package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// DocumentOnly is the prefix of figures that are only in the document, since the table has no space for them.
const DocumentOnly = "tenth_"

// Document is what --json prints. The names of its members do not change.
type Document struct {
	Machine  Machine   `json:"machine"`
	Results  []Result  `json:"results"`
	Failures []Failure `json:"failures"`
}

// Failure is a row whose measurement did not finish.
type Failure struct {
	Rows  []string `json:"rows"`
	Sync  string   `json:"sync"`
	Error string   `json:"error"`
}

// PrintJSON prints the document.
func (d Document) PrintJSON(out io.Writer) error {
	d.Results, d.Failures = append([]Result{}, d.Results...), append([]Failure{}, d.Failures...) // not null
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return fmt.Errorf("print the document: %w", err)
	}
	return nil
}

// PrintTable prints machine and results for people. remarks are lines above the rows.
func (d Document) PrintTable(out io.Writer, remarks ...string) error {
	m := d.Machine
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
		b.WriteString("\nThe stores lie in memory, where syncing costs nothing: " +
			"name a folder on a disk with --dir.")
	}
	for _, remark := range remarks {
		b.WriteString("\n" + remark)
	}
	b.WriteString("\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "row\tsync\tc\tops/s\tof ceiling\tp50 ms\tp99 ms\tCPU µs/op\tpeak MB\t")
	for _, r := range d.Results {
		_, _ = fmt.Fprintln(w, strings.Join([]string{
			r.Label(), r.Sync, number(float64(r.Clients), 0), number(r.Rate, 0), number(r.Share, 2),
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

// notes returns the figures without a column.
func (r Result) notes() string {
	var notes []string
	if r.Errors > 0 {
		notes = append(notes, fmt.Sprintf("%d ERRORS: %s", r.Errors, r.FirstError))
	}
	if r.Duplicates > 0 {
		notes = append(notes, fmt.Sprintf("%d DUPLICATES", r.Duplicates))
	}
	for _, name := range slices.Sorted(maps.Keys(r.More)) {
		if strings.HasPrefix(name, DocumentOnly) {
			continue
		}
		notes = append(notes, strings.ReplaceAll(name, "_", " ")+" "+
			strconv.FormatFloat(r.More[name], 'g', 4, 64))
	}
	return strings.Join(notes, ", ")
}
