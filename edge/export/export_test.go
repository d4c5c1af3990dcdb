package export_test

import (
	"testing"

	"verifyd/edge/export"
)

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
