package api

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"verifyd/edge/apidoc"
	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/problem"
)

// described is the OpenAPI document, with every object closed: a member that it does not describe is a fault.
var described = sync.OnceValues(func() (*openapi3.T, error) {
	d, err := apidoc.New("https://verify.example.com", "")
	if err != nil {
		return nil, err
	}
	answer := &bytes.Buffer{}
	d.YAML().ServeHTTP(&bodyWriter{answer}, httptest.NewRequest(http.MethodGet, pathOpenAPI, nil))
	return openapitest.Read(answer.Bytes())
})

func init() {
	for _, plain := range []string{"text/html", "application/x-ndjson"} {
		openapi3filter.RegisterBodyDecoder(plain, openapi3filter.PlainBodyDecoder)
	}
}

// bodyWriter keeps an answer's body.
type bodyWriter struct{ io.Writer }

func (bodyWriter) Header() http.Header { return http.Header{} }
func (bodyWriter) WriteHeader(int)     {}

func TestDocumentIsValid(t *testing.T) {
	if _, err := described(); err != nil {
		t.Fatal(err)
	}
}

// The routes of this package are those of its doc comment, and the document's paths, except for assets.
func TestDocumentHasEveryRoute(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := apidoc.New("https://verify.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	routes := (&api{docs: docs}).routes()
	openapitest.Routes(t, "doc.go", routes)
	routed := map[string]bool{}
	for _, r := range routes {
		if !strings.HasPrefix(r.Path, "/assets/") && r.Path != pathIcon {
			routed[r.Method+" "+r.Path] = true
		}
	}
	written := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			written[method+" "+path] = true
		}
	}
	if !maps.Equal(routed, written) {
		t.Errorf("routes    %v\ndocument %v", slices.Sorted(maps.Keys(routed)),
			slices.Sorted(maps.Keys(written)))
	}
}

func TestDocumentHasEveryProblemCode(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	written := map[problem.Code]int{}
	rows, _ := doc.Extensions["x-problem-codes"].([]any)
	for _, row := range rows {
		m := row.(map[string]any)
		status, _ := m["status"].(float64)
		written[problem.Code(m["code"].(string))] = int(status)
		if m["action"] == "" {
			t.Errorf("%v says nothing to do", m["code"])
		}
	}
	want := map[problem.Code]int{}
	for code := range problem.Codes() {
		want[code] = code.Status()
	}
	if !maps.Equal(written, want) {
		t.Errorf("document %v\ncodes    %v", written, want)
	}
}

// The schema of the init request refuses what the server refuses for its form, and accepts what it accepts.
func TestDocumentDescribesTheInitBody(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	schema := doc.Components.Schemas["Verification"].Value
	for body, want := range map[string]bool{
		goodBody: true,
		`{"platform":"p","platform_user_id":"u","callback_url":"https://h.example/"}`:                 true,
		`{"platform":"","platform_user_id":"u","callback_url":"https://h.example/"}`:                  false,
		`{"platform":"p","callback_url":"https://h.example/"}`:                                        false,
		`{"platform":"p","platform_user_id":7,"callback_url":"https://h.example/"}`:                   false,
		`{"platform":"p","platform_user_id":"u","guild_id":null,"callback_url":"https://h.example/"}`: false,
	} {
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		described := schema.VisitJSON(v, openapi3.EnableJSONSchema2020()) == nil
		_, faults := decodeVerification([]byte(body), callbacksOf(t))
		if described != want || (len(faults) == 0) != want {
			t.Errorf("%s: described %v, taken %v, want %v", body, described, len(faults) == 0, want)
		}
	}
}
