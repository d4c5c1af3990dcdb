package export_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"verifyd/edge/export"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// A line of JSON shows every character of a foreign text, and its reader gets the text as it was.
func TestLinesHideNothing(t *testing.T) {
	const user = "a\u202e\u200b\u2028\u007f\u0085\ufeff\U000e0041 \n\t\"\\ <b> 名前 👩‍👩‍👧 e\u0301"
	var out strings.Builder
	w, err := export.NewWriter(&out, export.Lines)
	if err != nil {
		t.Fatal(err)
	}
	view := facts.View{Session: sessions.Session{Request: sessions.Request{PlatformUserID: user}}}
	if err := w.Write([]facts.View{view, view}); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(out.String(), "\n")
	if len(lines) != 3 || lines[2] != "" {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines[:2] {
		line = strings.TrimSuffix(line, "\n")
		for _, r := range line {
			if !strconv.IsGraphic(r) {
				t.Errorf("the line holds %U", r)
			}
		}
		var doc export.Session
		if err := json.Unmarshal([]byte(line), &doc); err != nil || doc.PlatformUserID != user {
			t.Errorf("%s is read as %q, %v", line, doc.PlatformUserID, err)
		}
		if !strings.Contains(line, "<b> 名前") || !strings.Contains(line, `a\u202e\u200b`) {
			t.Errorf("it is written as %s", line)
		}
	}
}

// No cell with foreign text is a formula, in any language of the spreadsheet.
func TestCellsAreNoFormulas(t *testing.T) {
	for cell, want := range map[string]string{
		"": "", "sailor_42": "sailor_42", "a=1": "a=1", "名前": "名前", "\xff=1": "\xff=1",
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\t1": "'\t1", "\r1": "'\r1",
		"\n1": "'\n1", "\t=1": "'\t'=1", "\r=1": "'\r'=1", "\n=1": "'\n'=1", "＝1": "'＝1",
		"＋1": "'＋1", "－1": "'－1", "＠SUM": "'＠SUM", "a;=1": "a;'=1", "a;b": "a;b", "a\t+1": "a\t'+1",
		"a\r\n@b": "a\r'\n'@b", `a"-1`: `a"'-1`, "a;＝1;=2": "a;'＝1;'=2", "\xff;=1": "\xff;'=1",
		"a;\xff": "a;\xff", "a -1": "a -1",
	} {
		if got := export.Defuse(cell); got != want {
			t.Errorf("%q is written %q, want %q", cell, got, want)
		}
	}
}

// A spreadsheet shows ids as they are, and reads the file as UTF-8.
func TestSheetKeepsIDs(t *testing.T) {
	view := facts.View{Session: sessions.Session{Request: sessions.Request{
		Platform: "2026", PlatformUserID: "118203948571029384", GuildID: "=118203948571029384",
		Reference: "名前",
	}}}
	for f, want := range map[export.Format]string{
		export.CSV:   `,false,2026,118203948571029384,'=118203948571029384,`,
		export.Sheet: `,false,2026,"=""118203948571029384""",'=118203948571029384,`,
	} {
		var out strings.Builder
		w, err := export.NewWriter(&out, f)
		if err == nil {
			err = w.Write([]facts.View{view})
		}
		if err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), ",名前,") {
			t.Errorf("%s: %v, %s\nwant %s", f, err, out.String(), want)
		}
		if got := strings.HasPrefix(out.String(), "\ufeffid,"); got != (f == export.Sheet) {
			t.Errorf("%s: begins with a byte order mark: %t", f, got)
		}
	}
}

// A row tells one failure, the last: a try that sent nothing has no status, whatever the attempt before it
// got.
func TestCellsTellTheLastFailure(t *testing.T) {
	refused := facts.Result{Number: 1, Class: failure.Status, Status: 503}
	view := facts.View{Delivery: facts.Delivery{
		State: facts.DeliveryDue, Attempts: []facts.Attempt{{Result: &refused}},
	}}
	for class, want := range map[failure.Class]string{
		"": ",due,1,status,503,", failure.Status: ",due,1,status,503,", failure.Connect: ",due,1,connect,,",
	} {
		if class != "" {
			view.Delivery.Waiting = &facts.Waiting{Class: class}
		}
		var out strings.Builder
		w, err := export.NewWriter(&out, export.CSV)
		if err == nil {
			err = w.Write([]facts.View{view})
		}
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %s\nwant %s", class, err, out.String(), want)
		}
		view.Delivery.Waiting = nil
	}
}
