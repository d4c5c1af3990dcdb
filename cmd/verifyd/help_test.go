package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// New users ask for help as with other programs.
func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	_, version, _ := verifyd(t, "version")
	if !strings.HasPrefix(version, "verifyd ") {
		t.Errorf("version: %q", version)
	}
	_, overview, _ := verifyd(t, "--help")
	expect(t, overview, "Self-hosted identity verification", "demo", "deliveries", "help")
	_, ofKeys, _ := verifyd(t, "key", "--help")
	expect(t, ofKeys, "API keys.", "key create")
	for want, lines := range map[string][][]string{
		version:  {{"--version"}, {"serve", "--version"}},
		overview: {{}, {"help"}, {"-h"}},
		ofKeys:   {{"key"}, {"help", "key"}},
	} {
		for _, line := range lines {
			code, out, errOut := verifyd(t, line...)
			if code != 0 || out != want || errOut != "" {
				t.Errorf("%v: exit %d: %s%s", line, code, out, errOut)
			}
		}
	}
	for _, line := range [][]string{
		{"dance"}, {"help", "dance"}, {"help", "key", "dance"}, {"key", "dance"},
	} {
		if code, out, errOut := verifyd(t, line...); code != exitUsage || out != "" ||
			!strings.Contains(errOut, "dance") {
			t.Errorf("%v: exit %d: %s%s", line, code, out, errOut)
		}
	}
}

// shellWord is a word of an example, or one in quotes.
var shellWord = regexp.MustCompile(`"[^"]*"|\S+`)

// Every page begins with the purpose of its command, shows a working example, and lists the settings last,
// those of the store at the end.
func TestEveryHelpPage(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	var page func(at *kong.Node)
	page = func(at *kong.Node) {
		for _, child := range at.Children {
			page(child)
		}
		if at.Hidden {
			return
		}
		told[at.Path()] = true
		_, out, errOut := verifyd(t, append([]string{"help"}, strings.Fields(at.Path())...)...)
		if first, _, _ := strings.Cut(out, "\n"); first != at.Help || !strings.HasSuffix(first, ".") ||
			errOut != "" {
			t.Errorf("%s begins with %q%s, not with what it is for: %q", at.Path(), first, errOut, at.Help)
		}
		example := examples[at.Path()]
		expect(t, out, "Usage:\n\n    verifyd", "For example:\n\n    "+example+"\n")
		if store := strings.Index(out, "Settings of the store"); store >= 0 {
			after := out[store+1:]
			if strings.Contains(after, "Settings of") || strings.Contains(after, "Flags") ||
				strings.Contains(after, "--help") {
				t.Errorf("%s: more follows the settings of the store:\n%s", at.Path(), out)
			}
		}
		words := shellWord.FindAllString(example, -1)
		for len(words) > 0 && words[0] != "verifyd" {
			words = words[1:] // a variable
		}
		if len(words) == 0 {
			t.Errorf("%s has no example", at.Path())
			return
		}
		ctx := must[*kong.Context](t)(
			kong.Trace(must[*kong.Kong](t)(newParser(kong.Writers(io.Discard, io.Discard))), words[1:]))
		if ctx.Error != nil || !strings.HasPrefix(ctx.Command(), at.Path()) {
			t.Errorf("%s: the example %q: %v", at.Path(), example, ctx.Error)
		}
	}
	page(must[*kong.Kong](t)(newParser()).Model.Node)
	for command := range examples {
		if !told[command] {
			t.Errorf("the example of %q is of no command", command)
		}
	}
}
