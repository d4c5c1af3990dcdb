package apidoc

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"go.yaml.in/yaml/v3"

	"verifyd/edge/chromiumtest"
	"verifyd/natsconf/natstest/prove"
)

// asked is a request as the server received it.
type asked struct {
	Method, Path, Authorization, Type string
	Body                              any
}

// runners define how the sample of each language is run: its file, and the program that runs it.
var runners = map[string]struct{ file, program, means string }{
	"curl":       {"sample.sh", "sh", "a shell"},
	"go":         {"main.go", "go", "the Go toolchain"},
	"javascript": {"sample.mjs", "node", "Node.js"},
	"python":     {"sample.py", "python3", "Python"},
	"php":        {"sample.php", "php", "PHP"},
	"ruby":       {"sample.rb", "ruby", "Ruby"},
}

// Every sample on the page runs unchanged, sends the described request, and prints the answer.
func TestSamplesRun(t *testing.T) {
	prove.Only(t, "languages", "it runs six languages")
	t.Parallel()
	var got []asked
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := asked{Method: r.Method, Path: r.URL.EscapedPath(), Authorization: r.Header.Get("Authorization"),
			Type: r.Header.Get("Content-Type")}
		data, err := io.ReadAll(r.Body)
		if err != nil || len(data) > 0 && json.Unmarshal(data, &q.Body) != nil {
			t.Errorf("the body %q, %v", data, err)
		}
		got = append(got, q)
		_, _ = io.WriteString(w, "{\"answer\":\"taken\"}\n")
	}))
	defer server.Close()
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		t.Fatal(err)
	}
	prove.Program(t, "curl", "curl")
	dir, calls := t.TempDir(), 0
	for _, g := range newView(node{root.Content[0], root.Content[0]}, server.URL).Groups {
		for _, o := range g.Operations {
			calls++
			want := asked{Method: o.Method}
			if g.Name != "Documentation" {
				want.Authorization = "Bearer vfy_of_the_test"
			}
			if o.BodyExample != "" {
				want.Type = "application/json"
				if err := json.Unmarshal([]byte(o.BodyExample), &want.Body); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range o.Samples {
				got = nil
				out := runSample(t, filepath.Join(dir, o.ID, s.ID), s.ID, s.Text)
				if !strings.Contains(out, "taken") || s.ID != "curl" && !strings.Contains(out, "200") {
					t.Errorf("%s in %s prints %q", o.ID, s.Language, out)
				}
				if len(got) != 1 {
					t.Errorf("%s in %s sends %d requests", o.ID, s.Language, len(got))
					continue
				}
				path := got[0].Path
				if got[0].Body == nil {
					got[0].Type = "" // some name one for nothing
				}
				if got[0].Path = ""; !reflect.DeepEqual(got[0], want) {
					t.Errorf("%s in %s sends %+v, not %+v", o.ID, s.Language, got[0], want)
				}
				if strings.ContainsAny(path, "{%") || !matches(o.Path, path) {
					t.Errorf("%s in %s calls %s, not %s", o.ID, s.Language, path, o.Path)
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls have samples", calls)
	}
}

// matches reports whether a path is one of a pattern.
func matches(pattern, path string) bool {
	wants, has := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i := range wants {
		if len(has) != len(wants) || has[i] == "" && i > 0 ||
			has[i] != wants[i] && !strings.HasPrefix(wants[i], "{") {
			return false
		}
	}
	return true
}

// runSample writes a sample into a folder of its own, runs it, and returns what it prints.
func runSample(t *testing.T, dir, language, text string) string {
	t.Helper()
	r := runners[language]
	program := prove.Program(t, r.means, r.program)
	file := filepath.Join(dir, r.file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if language == "go" {
		args = []string{"run", file}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "VERIFYD_API_KEY=vfy_of_the_test", "GOPROXY=off")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var said string
		if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as exec returns it
			said = string(e.Stderr)
		}
		t.Errorf("%s of %s: %v\n%s\n%s", language, filepath.Base(filepath.Dir(dir)), err, said, text)
	}
	return string(out)
}

// A language that is chosen at one operation, with the keyboard, is shown at all of them, and the next time.
// Without a script each call has its own choice.
func TestSamplesInChromium(t *testing.T) {
	t.Parallel()
	tab, axe := chromiumtest.Start(t), chromiumtest.Axe(t)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	d := mustNew(t, server.URL, "")
	mux.Handle("/docs/api", d.Page())
	mux.Handle(d.StylePath(), d.Style())
	mux.Handle(d.ScriptPath(), d.Script())
	shown := func() map[string]int {
		return chromiumtest.Run(tab, t, chromedp.Evaluate[map[string]int](`
(() => { const n = {}; for (const pre of document.querySelectorAll(".samples pre"))
  if (pre.checkVisibility()) n[pre.className] = (n[pre.className] ?? 0) + 1; return n; })()`))
	}
	open := chromedp.Navigate(server.URL + "/docs/api")
	chromiumtest.Do(tab, t, open)
	all := shown()
	if len(all) != 1 || all["in-curl"] < 10 {
		t.Errorf("at first %v are shown", all)
	}
	chromiumtest.Do(tab, t, chromedp.Focus(".samples input"), chromedp.KeyEvent(kb.ArrowDown))
	if now := shown(); now["in-go"] != all["in-curl"] {
		t.Errorf("after the arrow key %v are shown", now)
	}
	chromiumtest.Do(tab, t, open)
	if now := shown(); now["in-go"] != all["in-curl"] {
		t.Errorf("the next time %v are shown", now)
	}
	// axe takes seconds for a page as long as this, and finds the same at every width
	screens := append(chromiumtest.Widths("light"), chromiumtest.Widths("dark")...)
	screens[0].Axe = true
	chromiumtest.Look(tab, t, "docs-api", axe, open, screens...)
}
