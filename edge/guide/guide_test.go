package guide

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"verifyd/docs"
	"verifyd/edge/apidoc"
	"verifyd/edge/apidoc/openapitest"
	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

func mustNew(t *testing.T, base, prefix string) *Guide {
	t.Helper()
	g, err := New(base, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// get requests a path from the handler.
func (g *Guide) get(t *testing.T, path string) (string, http.Header) {
	t.Helper()
	for _, r := range g.Routes() {
		if r.Path == path {
			w := httptest.NewRecorder()
			r.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d", path, w.Code)
			}
			return w.Body.String(), w.Header()
		}
	}
	t.Fatalf("nothing is at %s", path)
	return "", nil
}

func TestDocCommentListsTheRoutes(t *testing.T) {
	openapitest.Routes(t, "doc.go", mustNew(t, "https://id.harbor.example", "").Routes())
}

// Every document of the folder is served, and named on the start page.
func TestEveryDocumentIsServed(t *testing.T) {
	g := mustNew(t, "https://id.harbor.example/v", "/v")
	start, _ := g.get(t, PathStart)
	for _, pattern := range []string{"*.md", "verify/*.md"} {
		files, err := fs.Glob(docs.Files, pattern)
		if err != nil || len(files) < 5 {
			t.Fatalf("%d files: %v", len(files), err)
		}
		for _, file := range files {
			path, ok := addresses[file]
			if !ok {
				t.Errorf("%s is no page", file)
				continue
			}
			g.get(t, path)
			if !strings.Contains(start, `href="/v`+path+`"`) {
				t.Errorf("the start page does not lead to %s", path)
			}
		}
	}
}

var (
	anID     = regexp.MustCompile(` id="([^"]+)"`)
	aLink    = regexp.MustCompile(` (?:href|src|data-index)="([^"]+)"`)
	anInline = regexp.MustCompile(`<script>| style="| on[a-z]+="|javascript:`)
)

// Every link of every page leads to something that the service serves, with its anchor; ids are unique; and a
// page has nothing that its policy forbids.
func TestPagesAreWhole(t *testing.T) {
	g := mustNew(t, "https://id.harbor.example/v", "/v")
	served := map[string]map[string]int{ // by path, the ids
		"/v/favicon.ico": nil, "/v/openapi.yaml": nil, "/v/sdk/": nil, "/v/docs/api": {}, "/v/dashboard": nil,
	}
	operations, problems, err := apidoc.Contents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Concat(operations, problems) {
		served["/v"+PathAPI][e.ID]++
	}
	texts := map[string]string{}
	files := map[string]string{} // by their paths
	for file, path := range addresses {
		files[path] = file
	}
	for _, r := range g.Routes() {
		text, header := g.get(t, r.Path)
		served["/v"+r.Path] = map[string]int{}
		if !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
			continue
		}
		texts["/v"+r.Path] = text
		if source, err := fs.ReadFile(docs.Files, files[r.Path]); err == nil &&
			strings.Count(text, "<img ") != strings.Count(string(source), "![") {
			t.Errorf("%s lacks pictures of its document", r.Path)
		}
		for _, m := range anID.FindAllStringSubmatch(text, -1) {
			served["/v"+r.Path][m[1]]++
		}
		if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
			!strings.Contains(policy, "script-src 'self'") || header.Get("ETag") == "" {
			t.Errorf("%s: headers %v", r.Path, header)
		}
	}
	links := 0
	for path, text := range texts {
		if found := anInline.FindString(text); found != "" {
			t.Errorf("%s has %s in it", path, found)
		}
		for id, n := range served[path] {
			if n > 1 {
				t.Errorf("%s has the id %s %d times", path, id, n)
			}
		}
		for _, m := range aLink.FindAllStringSubmatch(text, -1) {
			links++
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			if to == "" {
				to = path
			}
			if ids, ok := served[to]; !ok || anchor != "" && ids[anchor] == 0 {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
	if links < 500 {
		t.Errorf("only %d links", links)
	}
}

// A bookmark of the description, which was at /docs, still works.
func TestOldAnchorsOfTheDescription(t *testing.T) {
	start, _ := mustNew(t, "https://verify.example.com", "").get(t, PathStart)
	for _, id := range []string{"startSession", "problem-invalid_request", "problems"} {
		if !strings.Contains(start, ` id="`+id+`"`) {
			t.Errorf("the start page lacks the anchor %s", id)
		}
	}
	if !strings.Contains(start, `<li id="startSession"><a href="/docs/api#startSession">`) {
		t.Error("the anchor startSession does not lead to the description")
	}
}

func TestSearchIndex(t *testing.T) {
	g := mustNew(t, "https://id.harbor.example/v", "/v")
	text, _ := g.get(t, pathSearch)
	var index []found
	if err := json.Unmarshal([]byte(text), &index); err != nil {
		t.Fatal(err)
	}
	for _, f := range index {
		to, ok := strings.CutPrefix(f.Address, "/v")
		if leads, err := g.Leads(to); !ok || err != nil || !leads || f.Page == "" {
			t.Errorf("the index leads to %q of %q: %v", f.Address, f.Page, err)
		}
	}
	for _, want := range []found{
		{Page: "Integrating", Heading: "Test keys", Address: "/v/docs/integrating#test-keys"},
		{Page: "The interface", Heading: "POST /verify/init", Address: "/v/docs/api#startSession"},
	} {
		if !slices.ContainsFunc(index, func(f found) bool {
			return f.Text != "" && f.Page == want.Page && f.Heading == want.Heading &&
				f.Address == want.Address
		}) {
			t.Errorf("the index lacks %+v", want)
		}
	}
}

// Text for integrators has the address of the service that shows it; text for operators has an example.
func TestSamplesNameTheirOwnService(t *testing.T) {
	g := mustNew(t, "https://id.harbor.example/v", "/v")
	integrating, _ := g.get(t, PathStart+"/integrating")
	for _, want := range []string{
		"curl https://id.harbor.example/v/verify/init", "id.harbor.example/v/sdk/go@",
	} {
		if !strings.Contains(integrating, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(integrating, example) {
		t.Errorf("the page still has %s", example)
	}
	if operating, _ := g.get(t, PathStart+"/operating"); !strings.Contains(operating, example) {
		t.Errorf("the page lacks %s", example)
	}
}

func TestMarkdown(t *testing.T) {
	served := func(file string) string { return map[string]string{"A.md": "/docs/a"}[file] }
	for source, want := range map[string]string{
		"## One `two` – three!":        `<h2 id="one-two--three">One <code>two</code> – three! <a class="anchor" href="#one-two--three" aria-label="Link to this section">#</a></h2>`,
		"<script>alert(1)</script>":    "",
		"a <b onclick=x>b</b> c":       "<p>a b c</p>",
		"[a](../A.md#x)":               `<p><a href="/docs/a#x">a</a></p>`,
		"[s](javascript:alert(1))":     "<p>s (<code>docs/verify/javascript:alert(1)</code>)</p>",
		"[kubernetes/](../kubernetes)": "<p><code>docs/kubernetes</code></p>",
		"[rules](../../go.mod)":        "<p>rules (<code>go.mod</code>)</p>",
		"```go x<y\na < b\n```": `<p class="file"><code>x&lt;y</code></p>` +
			"\n<pre tabindex=\"0\"><code>a &lt; b\n</code></pre>",
		"![alt \"q\"](../A.md)":          `<p><img src="/docs/a" alt="alt &#34;q&#34;" loading="lazy"></p>`,
		"![alt](nowhere.png)":            "<p>alt</p>",
		"<!-- made from the program -->": "",
	} {
		d, err := markdown("verify/b.md", source, served)
		if got := strings.TrimSpace(string(d.Body)); err != nil || got != want {
			t.Errorf("%s:\n%s, want\n%s (%v)", source, got, want, err)
		}
	}
}
