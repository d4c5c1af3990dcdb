package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"verifyd/edge/apidoc"
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
	doc, err := openapi3.NewLoader().LoadFromData(answer.Bytes())
	if err != nil {
		return nil, err
	}
	shut := false
	for _, s := range doc.Components.Schemas {
		closeSchema(s.Value, &shut)
	}
	return doc, doc.Validate(openapi3.NewLoader().Context)
})

func init() {
	for _, plain := range []string{"text/html", "application/x-ndjson"} {
		openapi3filter.RegisterBodyDecoder(plain, openapi3filter.PlainBodyDecoder)
	}
}

func closeSchema(s *openapi3.Schema, shut *bool) {
	if len(s.Properties) > 0 {
		s.AdditionalProperties = openapi3.BoolSchema{Has: shut}
	}
	for _, p := range s.Properties {
		if p.Ref == "" {
			closeSchema(p.Value, shut)
		}
	}
}

// bodyWriter keeps an answer's body.
type bodyWriter struct{ io.Writer }

func (bodyWriter) Header() http.Header { return http.Header{} }
func (bodyWriter) WriteHeader(int)     {}

// conform holds every answer of a service against the document, and remembers what was answered.
type conform struct {
	t    testing.TB
	next http.RoundTripper

	mu   sync.Mutex
	seen map[string]bool // operation, status and code, as in "startSession 400 invalid_request"
}

func (c *conform) CloseIdleConnections() { c.next.(*http.Transport).CloseIdleConnections() }

func (c *conform) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil { // half an answer stays half an answer
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(err)))
		return resp, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := c.check(r, resp, body); err != nil {
		c.t.Errorf("%s %s answered %d %.300s\nwhich the document does not describe: %v", r.Method, r.URL.Path,
			resp.StatusCode, body, err)
	}
	return resp, nil
}

func (c *conform) check(r *http.Request, resp *http.Response, body []byte) error {
	doc, err := described()
	if err != nil {
		return err
	}
	path, params := find(doc, r.URL.Path)
	if path == "" {
		return nil // another route, or one below a prefix
	}
	op := doc.Paths.Value(path).GetOperation(r.Method)
	if op == nil {
		return nil // HEAD, OPTIONS, and methods that are not allowed
	}
	var refusal struct {
		Code problem.Code
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		if err := json.Unmarshal(body, &refusal); err != nil {
			return err
		}
		if refusal.Code == problem.CodeNotFound {
			return nil // the service is mounted below a prefix
		}
		described := op.Responses.Value(fmt.Sprint(resp.StatusCode))
		if described == nil || !slices.Contains(codesOf(described.Value), string(refusal.Code)) {
			return fmt.Errorf("the code %s is not described for this status", refusal.Code)
		}
	}
	c.mu.Lock()
	c.seen[strings.TrimSpace(fmt.Sprintf("%s %d %s", op.OperationID, resp.StatusCode, refusal.Code))] = true
	c.mu.Unlock()
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, PathParams: params,
			Route: &routers.Route{
				Spec: doc, Path: path, PathItem: doc.Paths.Value(path), Method: r.Method, Operation: op,
			},
		},
		Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// find returns the path of the document that matches a request's.
func find(doc *openapi3.T, path string) (template string, params map[string]string) {
	got := strings.Split(path, "/")
	for _, template := range doc.Paths.InMatchingOrder() {
		want := strings.Split(template, "/")
		params := map[string]string{}
		if slices.EqualFunc(want, got, func(w, g string) bool {
			if strings.HasPrefix(w, "{") && g != "" {
				params[strings.Trim(w, "{}")] = g
				return true
			}
			return w == g
		}) {
			return template, params
		}
	}
	return "", nil
}

// codesOf returns the problem codes that the document names for an answer.
func codesOf(r *openapi3.Response) (codes []string) {
	list, _ := r.Extensions["x-codes"].([]any)
	for _, c := range list {
		codes = append(codes, c.(string))
	}
	return codes
}

// promised lists what the document says can be answered, in the form of conform.seen.
func promised(doc *openapi3.T) map[string]bool {
	all := map[string]bool{}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				for _, code := range codesOf(r.Value) {
					all[op.OperationID+" "+status+" "+code] = true
				}
				if len(codesOf(r.Value)) == 0 {
					all[op.OperationID+" "+status] = true
				}
			}
		}
	}
	return all
}

func TestDocumentIsValid(t *testing.T) {
	if _, err := described(); err != nil {
		t.Fatal(err)
	}
}

// The routes of this package and the document's paths are the same, but for assets.
func TestDocumentHasEveryRoute(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := apidoc.New("https://verify.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	routed := map[string]bool{}
	for _, r := range (&api{docs: docs}).routes() {
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

// The schema of the init request refuses what the server refuses for its form, and takes what it takes.
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
