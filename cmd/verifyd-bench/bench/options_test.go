package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"verifyd/cmd/verifyd-bench/bench/report"
)

// Two rows of the defaults are not measured unless they are named; a ceiling that ran alongside a named row
// is shown.
func TestWhatIsMeasuredAndShown(t *testing.T) {
	all := Options{}
	if all.wants(rowMillion) || all.wants(rowGenerator) || !all.wants(rowInit) || !all.wants(rowBareClient) {
		t.Error("the default rows are others")
	}
	one := Options{Rows: []string{rowDispatch}}
	if one.wants(rowBareClient) || !slices.Contains(one.shown(), rowBareClient) ||
		slices.Contains(one.shown(), rowInit) {
		t.Error("what is shown beside dispatch is something else")
	}
}

// The head of the table says what the row scaling bounded, if it was measured.
func TestTableReportsWhatBoundedScaling(t *testing.T) {
	one := report.Result{
		Row: rowScaling, Variant: "1 dispatcher", Sync: syncExternal, Rate: 159, More: map[string]float64{
			connectionsNote: 16, "of_linear_share": 1,
		},
	}
	for want, results := range map[bool][]report.Result{true: {one}, false: {{Row: rowIdle}}} {
		var out bytes.Buffer
		d := report.Document{Results: results}
		if err := d.PrintTable(&out, scalingRemarks(results)...); err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(out.String(), "at most 16 callbacks under way at once (--connections), "+
			"to one receiver that takes 100ms for each: 160/s"); says != want {
			t.Errorf("it says so: %t, want %t:\n%s", says, want, &out)
		}
	}
}
