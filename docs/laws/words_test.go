package laws

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// retiredParts are parts of identifiers: "wasVain" has the parts "was" and "vain". Two texts in the code have
// such a word and keep it, since older builds read and write them: the subjects "seat." (the lease of a
// sign-in) and "verifyd.roster" (the fleet).
var retiredParts = map[string]string{
	"vain":     "unconfirmed",
	"seat":     "lease, or slot",
	"fate":     "disposition, or result",
	"watchman": "monitor",
	"hall":     "shared dependencies",
	"knock":    "authenticate",
	"tongue":   "locale",
	"asker":    "requester",
	"roster":   "fleet",
	"house":    "what it is: a rig, a service",
	"mend":     "fix",
	"orphan":   "stale",
	"bury":     "what it does: strip, remove",
	"deed":     "action, or audit entry",
	"untold":   "pending",
	"teller":   "notifier",
}

// retiredPhrases are found in comments, in documents, and in texts for people (textOf). Line breaks count as
// spaces.
var retiredPhrases = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(says|tells|gives) whether\b`), "reports whether"},
	{regexp.MustCompile(`\bfloor plan\b`), "topology"},
	{regexp.MustCompile(`\bswitchboard\b`), "entry point"},
	{regexp.MustCompile(`\b[Tt]he house\b`), "layout"},
	{regexp.MustCompile(`\bneeds? to be mended\b`), "invalid; to be fixed"},
	{regexp.MustCompile(`\bfor ever\b`), "forever, or permanently"},
	{regexp.MustCompile(`\bin vain\b`), "without success"},
	{regexp.MustCompile(`\b(taken|takes|took) away\b`), "removed"},
	{regexp.MustCompile(`\bhands? on (each|what|the|those|all)\b`), "passes on, or calls … with"},
	{regexp.MustCompile(`\bholds? (it|them|each|that) against\b`), "compares with"},
	{regexp.MustCompile(`\b(is|are) told apart\b`), "distinguished"},
	{regexp.MustCompile(`\bbeside each other\b`), "in parallel, or next to each other"},
	{regexp.MustCompile(`\b(lies|lie) (in|where|there|here|beside|between)\b`), "is stored, is"},
	{regexp.MustCompile(`\bwithout a word\b`), "silently"},
	{regexp.MustCompile(`\bbe it (that|a|an|the|with)\b`), "even if, whether"},
}

// retiredVerb is the verb of a doc comment: "Name gives the name".
var retiredVerb = regexp.MustCompile(`^\w+ gives\b`)

// own is where the words themselves are.
const own = "docs/laws/"

func TestRetiredWords(t *testing.T) {
	t.Parallel()
	found := 0
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.name, own) {
			found += judgeGo(t, s.code)
		}
	}
	if found < fewestTexts {
		t.Errorf("only %d texts are found in the code", found)
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			judgeProse(t, path, string(text))
		}
	}
}

// judgeGo checks the declarations, comments and texts of a file, and returns the number of texts.
func judgeGo(t *testing.T, f *ast.File) (found int) {
	t.Helper()
	ast.Inspect(f, func(n ast.Node) bool {
		for _, id := range declared(n) {
			for _, part := range parts(id.Name) {
				if instead, retired := retiredParts[part]; retired {
					t.Errorf("%s: the name %s has the retired word %q; use %s", positions.Position(id.Pos()),
						id.Name, part, instead)
				}
			}
		}
		if text := textOf(n); text != "" {
			found++
			judgeProse(t, positions.Position(n.Pos()).String(), text)
		}
		return true
	})
	for _, c := range f.Comments {
		where := positions.Position(c.Pos()).String()
		if retiredVerb.MatchString(c.Text()) {
			t.Errorf("%s: %q: a function returns", where, firstLine(c.Text()))
		}
		judgeProse(t, where, c.Text())
	}
	return found
}

// fewestTexts is the number of texts in the code below which they are no longer found.
const fewestTexts = 1500

// textOf returns what a node has for people to read: the help of a flag or a metric, the message of a log
// line or an error.
func textOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.Field:
		if n.Tag != nil {
			return reflect.StructTag(literal(n.Tag)).Get("help")
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Help" {
			return literal(n.Value)
		}
	case *ast.CallExpr:
		of, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) == 0 {
			return ""
		}
		in, _ := of.X.(*ast.Ident)
		called := of.Sel.Name
		if called == "Msg" || called == "Msgf" || called == "New" && in != nil && in.Name == "errors" ||
			called == "Errorf" && in != nil && in.Name == "fmt" {
			return literal(n.Args[0])
		}
	}
	return ""
}

// literal returns the text that an expression spells out, with "…" for the rest of it.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return "…"
}

// declared returns the names that a node declares.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return nil
		}
		var names []*ast.Ident
		for _, e := range n.Lhs {
			if id, ok := e.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
		return names
	}
	return nil
}

// parts splits a name at its capital letters and underscores.
func parts(name string) (words []string) {
	var word []rune
	for _, r := range name {
		if unicode.IsUpper(r) || r == '_' {
			words, word = append(words, string(word)), nil
		}
		if r != '_' {
			word = append(word, unicode.ToLower(r))
		}
	}
	return append(words, string(word))
}

func judgeProse(t *testing.T, where, text string) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ")
	for _, w := range retiredPhrases {
		if found := w.phrase.FindString(text); found != "" {
			t.Errorf("%s: the retired phrase %q; write %s", where, found, w.instead)
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func TestPartsOfNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"wasVain": {"was", "vain"}, "Seat": {"", "seat"}, "max_seat": {"max", "seat"},
	} {
		if got := parts(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
