package page

import (
	"testing"
	"testing/fstest"
)

// A style sheet loses what browsers do not read, and nothing else.
func TestStyleSheetsAreSlim(t *testing.T) {
	const written = "/* a\n   comment */\n:root {\n  color-scheme: light dark;\n  font: 1rem/1.5 \"Segoe UI\",\n    sans-serif;\n}\n\n@media (max-width: 30rem) {\n" +
		"  a,\n  b + b {\n    color: red;\n  }\n}\ndl\ndiv {\n  gap: 0 1px; /* why */\n}\n"
	const want = ":root{color-scheme:light dark;font:1rem/1.5 \"Segoe UI\",sans-serif;}@media (max-width:30rem){a,b + b{color:red;}}dl\ndiv{gap:0 1px;}"
	a, err := LoadAsset(fstest.MapFS{"x.css": {Data: []byte(written)}, "x.svg": {Data: []byte(" {")}}, "x.css", "text/css")
	if err != nil || string(a.data) != want {
		t.Errorf("%q, %v; want %q", a.data, err, want)
	}
}
