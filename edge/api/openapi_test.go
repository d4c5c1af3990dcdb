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
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"verifyd/edge/account/notice"
	"verifyd/edge/apidoc"
	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/export"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
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

// within returns the object at a path of names.
func within(t *testing.T, doc any, names ...string) map[string]any {
	t.Helper()
	at, ok := doc.(map[string]any)
	for _, name := range names {
		if ok {
			at, ok = at[name].(map[string]any)
		}
	}
	if !ok {
		t.Fatalf("the document has no %s", strings.Join(names, " "))
	}
	return at
}

// isSent compares an example of the document with what the service sends.
func isSent(t *testing.T, sent []byte, example map[string]any) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(sent, &got); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(example)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(got); err != nil || string(again) != string(want) {
		t.Errorf("it is sent as\n%s\nand the example is\n%s", again, want)
	}
}

// The document's examples are what the service sends. That they have the members of their schemas, and no
// others, is part of the document's validity.
func TestExamplesAreWhatIsSent(t *testing.T) {
	t.Parallel()
	typed, err := described()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	const media = "application/json"

	refused := within(t, doc, "paths", pathInit, "post", "responses", "400", "content",
		"application/problem+json", "examples", "http", "value")
	a := newService(t, nil).do(t, http.MethodPost, pathInit,
		`{"platform":"p","platform_user_id":"u","callback_url":"http://h.example/"}`, "Authorization",
		"Bearer "+acmeKey, "Content-Type", media)
	refused["request_id"] = a.header.Get(web.HeaderRequestID)
	isSent(t, []byte(a.body), refused)

	session, err := json.Marshal(export.Document(exampleSession(t)))
	if err != nil {
		t.Fatal(err)
	}
	isSent(t, session, within(t, doc, "paths", "/sessions/{session}", "get", "responses", "200", "content",
		media, "examples", "verified", "value"))

	n, _ := notice.OfQuota("acc_mfzwizltoq2dsnbqgqyd", 4000, 5000,
		time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), exampleTime(t, "12:03:58"))
	body, err := n.Body()
	if err != nil {
		t.Fatal(err)
	}
	told := within(t, doc, "webhooks", "notice", "post", "requestBody", "content", media, "examples",
		"quota", "value")
	told["id"] = n.ID
	isSent(t, body, told)
}

func exampleTime(t *testing.T, clock string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, "2026-11-21T"+clock+"Z")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func exampleSession(t *testing.T) facts.View {
	t.Helper()
	result := facts.Result{
		Number: 1, Verdict: facts.VerdictDelivered, Status: 204, At: exampleTime(t, "13:12:41.936"),
	}
	return facts.View{
		Session: sessions.Session{
			ID: "k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral", CreatedAt: exampleTime(t, "13:12:09.105"),
			ExpiresAt: exampleTime(t, "13:22:09.105"), Request: sessions.Request{
				Platform: "discord", PlatformUserID: "sailor_42", GuildID: "118203948571029384",
				Reference: "order 4711", Locale: "pt-BR", DisplayName: "Captain Ahab", GroupName: "Pequod",
			},
		},
		Outcome:     sessions.Outcome{State: sessions.Verified, Reached: proof.Link},
		CompletedAt: exampleTime(t, "13:12:41.870"),
		Delivery: facts.Delivery{State: facts.DeliveryDelivered, Attempts: []facts.Attempt{
			{Claim: facts.Claim{Number: 1, At: exampleTime(t, "13:12:41.898")}, Result: &result},
		}},
	}
}
