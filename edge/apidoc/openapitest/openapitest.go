// Package openapitest compares the answers of a running service with its OpenAPI document, and a package's
// routes with its doc comment; for tests.
//
// A document names the problem codes of each answer in x-codes. Each object is closed for the comparison: a
// member that the document does not describe is a fault.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"verifyd/edge/problem"
)

// Read reads a document and closes its objects.
func Read(text []byte) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	for _, s := range doc.Components.Schemas {
		closeSchema(s.Value)
	}
	return doc, doc.Validate(openapi3.NewLoader().Context)
}

func closeSchema(s *openapi3.Schema) {
	if len(s.Properties) > 0 {
		s.AdditionalProperties = openapi3.BoolSchema{Has: new(false)}
	}
	for _, p := range s.Properties {
		if p.Ref == "" {
			closeSchema(p.Value)
		}
	}
	if s.Items != nil && s.Items.Ref == "" {
		closeSchema(s.Items.Value)
	}
}

// Codes returns the problem codes that a document names for an answer.
func Codes(r *openapi3.Response) (codes []string) {
	list, _ := r.Extensions["x-codes"].([]any)
	for _, c := range list {
		code, _ := c.(string)
		codes = append(codes, code)
	}
	return codes
}

// Transport fails the test if an answer is not as the document describes it, and remembers what was answered.
type Transport struct {
	// BelowPrefix: the service may be mounted below a prefix, so that a path of the document is not found
	// there.
	BelowPrefix bool

	t    testing.TB
	doc  *openapi3.T
	next http.RoundTripper

	mu   sync.Mutex
	seen map[string]bool // operation, status and code, as in "startSession 400 invalid_request"
}

// Watch returns a transport that sends by another one.
func Watch(tb testing.TB, doc *openapi3.T, next http.RoundTripper) *Transport {
	tb.Helper()
	return &Transport{t: tb, doc: doc, next: next, seen: map[string]bool{}}
}

// CloseIdleConnections closes those of the transport below.
func (w *Transport) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends a request and checks its answer against the document.
func (w *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
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
	if err := w.check(r, resp, body); err != nil {
		w.t.Errorf("%s %s answered %d %.300s\nwhich the document does not describe: %v", r.Method, r.URL.Path,
			resp.StatusCode, body, err)
	}
	return resp, nil
}

// check ignores routes that the document does not have, and methods that are not allowed.
func (w *Transport) check(r *http.Request, resp *http.Response, body []byte) error {
	path, params := find(w.doc, r.URL.Path)
	if path == "" || w.doc.Paths.Value(path).GetOperation(r.Method) == nil {
		return nil
	}
	op := w.doc.Paths.Value(path).GetOperation(r.Method)
	var refusal struct {
		Code problem.Code `json:"code"`
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		if err := json.Unmarshal(body, &refusal); err != nil {
			return err
		}
		if w.BelowPrefix && refusal.Code == problem.CodeNotFound {
			return nil
		}
		described := op.Responses.Value(fmt.Sprint(resp.StatusCode))
		if described == nil || !slices.Contains(Codes(described.Value), string(refusal.Code)) {
			return fmt.Errorf("the code %s is not described for this status", refusal.Code)
		}
	}
	w.mu.Lock()
	w.seen[strings.TrimSpace(fmt.Sprintf("%s %d %s", op.OperationID, resp.StatusCode, refusal.Code))] = true
	w.mu.Unlock()
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, PathParams: params,
			Route: &routers.Route{
				Spec: w.doc, Path: path, PathItem: w.doc.Paths.Value(path), Method: r.Method, Operation: op,
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
		params := map[string]string{}
		if slices.EqualFunc(strings.Split(template, "/"), got, func(w, g string) bool {
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

// NothingMissing fails the test if the document describes an answer that was not given, but for those in
// except; and where it describes fewer than least.
func (w *Transport) NothingMissing(minimum int, except ...string) {
	w.t.Helper()
	promised := map[string]bool{}
	for _, item := range w.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				for _, code := range Codes(r.Value) {
					promised[op.OperationID+" "+status+" "+code] = true
				}
				if len(Codes(r.Value)) == 0 {
					promised[op.OperationID+" "+status] = true
				}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, answer := range slices.Sorted(maps.Keys(promised)) {
		if !w.seen[answer] && !slices.Contains(except, answer) {
			w.t.Errorf("%s is described, and nothing here brought it about", answer)
		}
	}
	if len(promised) < minimum {
		w.t.Errorf("only %d answers are described", len(promised))
	}
}
