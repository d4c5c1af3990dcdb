package apidoc

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler) (string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	return w.Body.String(), w.Header()
}

func mustNew(t *testing.T, base, prefix string) *Document {
	t.Helper()
	d, err := New(base, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentNamesItsOwnService(t *testing.T) {
	d := mustNew(t, "https://id.harbor.example/v", "/v")
	text, _ := get(t, d.YAML())
	page, _ := get(t, d.Page())
	for name, s := range map[string]string{"document": text, "page": page} {
		if strings.Contains(s, sourceServer) || !strings.Contains(s, "https://id.harbor.example/v") {
			t.Errorf("the %s does not name its own service", name)
		}
	}
	for _, link := range []string{`href="/v/openapi.yaml"`, `href="/v` + d.StylePath() + `"`} {
		if !strings.Contains(page, link) {
			t.Errorf("the page has no %s", link)
		}
	}
}

// programs are the samples, in which a backtick is one.
var programs = regexp.MustCompile(`(?s)<pre.*?</pre>`)

func TestPageMatchesTheDocument(t *testing.T) {
	page, header := get(t, mustNew(t, "https://verify.example.com", "").Page())
	for _, want := range []string{
		"Start a session", "List sessions", "Idempotency-Key", "<code>delivery.attempts[].verdict</code>",
		"<code>days[].failed.declined</code>",
		`id="problem-idempotency_key_reused"`, "&#34;platform_user_id&#34;: &#34;sailor_42&#34;",
		"webhook-signature", "boolean | null",
		"list of &#34;pending&#34; | &#34;verified&#34;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Count(page, "<script") != 1 || !strings.Contains(page, "<script src=\"/assets/") ||
		strings.Contains(page, " style=") ||
		strings.Contains(programs.ReplaceAllString(page, ""), "`") {
		t.Error("the page has a script, a style or an unmarked backtick in it")
	}
	if !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("headers = %v", header)
	}
}

// Every link within the page leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	page, _ := get(t, mustNew(t, "https://verify.example.com", "").Page())
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		ids[m[1]]++
		if ids[m[1]] > 1 {
			t.Errorf("the id %s is there twice", m[1])
		}
	}
	links := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
	for _, m := range links {
		if ids[m[1]] == 0 {
			t.Errorf("a link leads to #%s, which is not there", m[1])
		}
	}
	if len(links) < 30 {
		t.Errorf("only %d links", len(links))
	}
}

func TestTextIsEscaped(t *testing.T) {
	if got := say("a <b> `<i>` &"); got != "a &lt;b&gt; <code>&lt;i&gt;</code> &amp;" {
		t.Errorf("said %s", got)
	}
}
