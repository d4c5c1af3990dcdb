package main

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
)

// An operator exports an account's sessions in a form that programs and spreadsheets read, with the filters
// of the interface.
func TestSessionsExport(t *testing.T) {
	t.Parallel()
	r := boot(t)
	s := r.begin(t)
	export := func(args ...string) string {
		t.Helper()
		code, out, errOut := r.run(t,
			append([]string{"sessions", "export", "--account", "Harbor Guild"}, args...)...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, errOut)
		}
		return out
	}
	rows, err := csv.NewReader(strings.NewReader(export())).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][3] != "sailor_42" {
		t.Fatalf("CSV: %v, %v", rows, err)
	}
	id := rows[1][0]
	var line struct{ ID, State string }
	if err := json.Unmarshal([]byte(export("--format", "jsonl", "--q", "cb_"+id)), &line); err != nil ||
		line.ID != id || line.State != "pending" {
		t.Errorf("JSON lines: %+v, %v", line, err)
	}
	if strings.Contains(export(), s.Session) {
		t.Error("the export has a token")
	}
	for _, nothing := range [][]string{
		{"--state", "verified"}, {"--mode", "test"}, {"--to", "2001-01-01"}, {"--q", "nobody"},
		{"--reason", "declined"}, {"--network", "nowhere"}, {"--binding", "code"}, {"--platform", "nowhere"},
	} {
		if out := export(append(nothing, "--format", "jsonl")...); out != "" {
			t.Errorf("%v: %s", nothing, out)
		}
	}
	for _, bad := range [][]string{
		{"--from", "yesterday"}, {"--from", "2026-11-22", "--to", "2026-11-21"}, {"--key-name", "nobody"},
		{"--format", "xls"}, {"--account", "Nowhere Guild"},
	} {
		code, _, errOut := r.run(t,
			append([]string{"sessions", "export", "--account", "Harbor Guild"}, bad...)...)
		if code != exitUsage || !strings.Contains(errOut, bad[0]) && bad[0] != "--account" {
			t.Errorf("%v: exit %d: %s", bad, code, errOut)
		}
	}
}
