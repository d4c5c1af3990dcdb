package page

import (
	"strings"
	"testing"
	"testing/fstest"
)

// A style sheet loses what browsers do not read, and nothing else.
func TestStyleSheetsAreSlim(t *testing.T) {
	const written = "/* a\n   comment */\n:root {\n  color-scheme: light dark;\n  font: 1rem/1.5 " +
		"\"Segoe UI\",\n    sans-serif;\n}\n\n@media (max-width: 30rem) {\n" +
		"  a,\n  b + b {\n    color: red;\n  }\n}\ndl\ndiv {\n  gap: min(-0.5rem, 10.25px); /* why */\n}\n"
	const want = ":root{color-scheme:light dark;font:1rem/1.5 \"Segoe UI\",sans-serif}@media " +
		"(max-width:30rem){a,b + b{color:red}}dl\ndiv{gap:min(-.5rem,10.25px)}"
	files := fstest.MapFS{"x.css": {Data: []byte(written)}, "none.css": {}}
	none, err := LoadSmallStyle(files, "none.css")
	if err != nil ||
		!strings.HasPrefix(string(none.data()), ":root{color-scheme:light dark;--ground:#f6f7f9;") {
		t.Fatalf("the shared sheet: %q, %v", none.data(), err)
	}
	a, err := LoadSmallStyle(files, "x.css")
	if err != nil || string(a.data()) != string(none.data())+want || a.Name == none.Name {
		t.Errorf("%q, %v; want %q after the shared sheet", a.data(), err, want)
	}
	full, err := LoadStyle(files, "x.css")
	if shared, own := strings.CutSuffix(string(full.data()), want); err != nil || !own ||
		!strings.HasPrefix(shared, string(none.data())) || !strings.Contains(shared, "table{") {
		t.Errorf("%q, %v; want the parts between the shared sheet and %q", full.data(), err, want)
	}
}
