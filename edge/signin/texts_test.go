package signin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every page and notice is drawn, which fails on a missing text, and every text is asked for by somebody.
func TestTextsAreWholeAndUsed(t *testing.T) {
	p, err := newPainter()
	if err != nil {
		t.Fatal(err)
	}
	used := sources(t)
	kinds := []kind{
		pageAsk, pageVerified, pageDeclined, pageRefused, pageCanceled, pageExpired, pageUntestable, pageUnknown, pageLost, pageForeign,
		pageMalformed, pageUnavailable,
	}
	for _, k := range refusedPages {
		kinds = append(kinds, k)
	}
	for _, k := range kinds {
		v := view{
			Kind: k.name, Tone: k.tone, Test: true, Again: "/", Left: "ask.left.minutes",
			Facts: []fact{{"ask.account", "x"}, {"ask.where", "x"}, {"ask.group", "x"}}, Buttons: []button{{"a", "A", false}, {"b", "B", true}},
			values: map[string]string{"asker": "x", "Asker": "X", "network": "N", "minutes": "1"},
		}
		if _, err := p.paint(v); err != nil {
			t.Error(err)
		}
		used += ` "` + k.name + `.heading" "` + k.name + `.lead" "` + k.name + `.next"`
		if k.name != pageAsk.name {
			continue
		}
		for n := range notices {
			v.Note = "note." + string(n)
			if _, err := p.paint(v); err != nil {
				t.Error(err)
			}
			used += ` "` + v.Note + `"`
		}
	}
	for key := range p.texts {
		if !strings.Contains(used, `"`+key+`"`) {
			t.Errorf("text %q is used by nothing", key)
		}
	}
}

// sources gives the package's code and templates.
func sources(t *testing.T) string {
	t.Helper()
	code, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("web/*.html")
	if err != nil || len(pages) == 0 {
		t.Fatal("no templates", err)
	}
	var b strings.Builder
	for _, file := range slices.Concat(code, pages) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
	}
	return b.String()
}

func TestMessages(t *testing.T) {
	values := map[string]string{"a": "<x>", "b": "y"}
	for in, want := range map[string]string{
		"plain & simple":  "plain &amp; simple",
		"{a} and {b}":     "<bdi>&lt;x&gt;</bdi> and <bdi>y</bdi>",
		"not *yours*, no": "not <strong>yours</strong>, no",
		"*{b}*":           "<strong><bdi>y</bdi></strong>",
	} {
		m, err := parseMessage(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.html(values); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "{", "}", "{}", "a {b", "b} c", "*alone", "a * b * c *"} {
		if m, err := parseMessage(bad); err == nil {
			t.Errorf("%q is read as %v", bad, m)
		}
	}
	if m, err := parseMessage("{c}"); err != nil {
		t.Error(err)
	} else if got, err := m.html(values); err == nil {
		t.Errorf("a missing value is drawn as %q", got)
	}
}
