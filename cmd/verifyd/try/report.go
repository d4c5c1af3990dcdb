package try

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"verifyd/dispatcher/callback"
)

// Report is what a receiver did.
type Report struct {
	Receiver string // host and port; the rest of a URL may be a secret
	Checks   []Finding
	Stopped  string // why not all checks were made; empty when they were
}

// Finding is the end of one check.
type Finding struct {
	Check   string
	Outcome Outcome
	Got     string // what came back
	Why     string // why it matters, and what to do; empty for a pass
	Took    time.Duration

	unreached bool
}

// Failed gives how many checks failed.
func (r Report) Failed() (n int) {
	for _, f := range r.Checks {
		if f.Outcome == Fail {
			n++
		}
	}
	return n
}

// marks are how outcomes stand in the table.
var marks = map[Outcome]string{Pass: "pass", Fail: "FAIL", Look: "look"}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "Receiver %s\n\n", r.Receiver)
	for _, f := range r.Checks {
		took := ""
		if f.Took > 0 {
			took = strconv.FormatInt(f.Took.Milliseconds(), 10) + " ms"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", marks[f.Outcome], f.Check, f.Got, took)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for _, outcome := range []Outcome{Fail, Look} {
		for _, f := range r.Checks {
			if f.Outcome == outcome && f.Why != "" {
				fmt.Fprintf(&b, "\n%s  %s\n      %s\n", marks[outcome], f.Check, f.Why)
			}
		}
	}
	b.WriteString("\n" + r.sum() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// sum is the report in one sentence or two.
func (r Report) sum() string {
	sum := fmt.Sprintf("%d of %d checks failed.", r.Failed(), len(r.Checks))
	if r.Failed() == 0 {
		sum = fmt.Sprintf("No check of %d failed.", len(r.Checks))
	}
	return strings.TrimSpace(sum + " " + r.Stopped)
}

// JSON writes the report for programs.
func (r Report) JSON(w io.Writer) error {
	type finding struct {
		Check   string  `json:"check"`
		Outcome Outcome `json:"outcome"`
		Got     string  `json:"got"`
		Why     string  `json:"why,omitempty"`
		TookMS  int64   `json:"took_ms"`
	}
	doc := struct {
		Receiver string    `json:"receiver"`
		Failed   int       `json:"failed"`
		Stopped  string    `json:"stopped,omitempty"`
		Checks   []finding `json:"checks"`
	}{Receiver: r.Receiver, Failed: r.Failed(), Stopped: r.Stopped}
	for _, f := range r.Checks {
		doc.Checks = append(doc.Checks, finding{f.Check, f.Outcome, f.Got, f.Why, f.Took.Milliseconds()})
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// words say in short what came back.
func words(a callback.Answer) string {
	if a.Status == 0 {
		return a.Detail
	}
	return strings.TrimSpace(strconv.Itoa(a.Status) + " " + http.StatusText(a.Status))
}
