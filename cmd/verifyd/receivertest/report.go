package receivertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	// why not all checks were made, so that the receiver cannot be called ready; empty if they were
	Stopped string
}

// Finding is the result of one check.
type Finding struct {
	Check   string
	Outcome Outcome
	Got     string // what came back
	Why     string // why it matters, and what to do; empty for a pass
	Took    time.Duration

	unreached bool
}

// Failed returns how many checks failed.
func (r Report) Failed() (n int) {
	for _, f := range r.Checks {
		if f.Outcome == Fail {
			n++
		}
	}
	return n
}

// Ready reports whether all checks were made and none failed.
func (r Report) Ready() bool { return r.Stopped == "" && r.Failed() == 0 }

// weigh corrects the results of single checks if another one shows more: a receiver that accepts a callback
// without a signature verifies none, so accepting two signatures shows nothing.
func (r Report) weigh() {
	found := func(name string) *Finding {
		i := slices.IndexFunc(r.Checks, func(f Finding) bool { return f.Check == name })
		if i < 0 {
			return &Finding{}
		}
		return &r.Checks[i]
	}
	if found(checkUnsigned).Outcome != Fail {
		return
	}
	found(checkChanged).Why = "No signature is checked at all, so the body can be anything."
	for _, name := range []string{checkKnownLast, checkKnownFirst} {
		if f := found(name); f.Outcome == Pass {
			f.Outcome, f.Why = Look,
				"It was accepted, as is everything: check signatures first, then see whether one of two "+
					"is enough."
		}
	}
}

// marks are the outcomes in the table.
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
	switch {
	case len(r.Checks) == 0:
		sum = "No check was made."
	case r.Failed() == 0:
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

// words describe the answer in short.
func words(a callback.Answer) string {
	if a.Status == 0 {
		return a.Detail
	}
	return strings.TrimSpace(strconv.Itoa(a.Status) + " " + http.StatusText(a.Status))
}
