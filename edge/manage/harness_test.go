package manage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

func TestMain(m *testing.M) {
	natstest.Parallel(4)
	goleak.VerifyTestMain(natstest.Budget(m, 60*time.Second))
}

var console = access.Operator("ann")

// rig is the management interface on a real server with TLS, over a real store.
type rig struct {
	*httptest.Server

	t        *testing.T
	conn     *natsconf.Conn
	accounts *accountstore.Store
	mirror   *keymirror.Mirror
	handler  *Handler
	log      *logbook
	now      func() time.Time

	mu   sync.Mutex
	seen map[string]bool // operation, status and code, as in "createAccount 400 invalid_request"
}

// logbook collects what the server logs.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newRig starts one; change may alter its configuration.
func newRig(t *testing.T, change func(*Config), changeServer ...func(*http.Server)) *rig {
	t.Helper()
	r := &rig{t: t, conn: natstest.Start(t), log: &logbook{}, seen: map[string]bool{}, now: time.Now}
	key := secretbox.NewKey()
	var err error
	if r.accounts, err = accountstore.New(t.Context(), r.conn, key); err != nil {
		t.Fatal(err)
	}
	r.mirror = keymirror.New(r.conn, key, zerolog.Nop())
	natstest.Serve(t, r.mirror)
	<-r.mirror.Loaded()
	clock := func() time.Time { return r.now() }
	r.accounts.Now = clock
	c := Config{
		Accounts: r.accounts, Conn: r.conn, Key: key, Directory: r.mirror, Now: clock,
		Store: limit.NewWaiting(limit.DefaultStoreWait, limit.DefaultWaiting),
	}
	if change != nil {
		change(&c)
	}
	if r.handler, err = New(c); err != nil {
		t.Fatal(err)
	}
	handler, err := web.New(web.Config{
		Routes: r.handler.Routes(), Metrics: prometheus.NewRegistry(), Log: zerolog.New(r.log),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Server = httptest.NewUnstartedServer(handler)
	for _, change := range changeServer {
		change(r.Config)
	}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// token makes an operator token with scopes.
func (r *rig) token(scopes ...grant.Scope) string {
	r.t.Helper()
	token, _, err := r.accounts.CreateToken(r.t.Context(), console, "deploy", scopes, r.now().Add(time.Hour))
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// reply is what a request got.
type reply struct {
	status int
	header http.Header
	body   []byte
	doc    map[string]any
}

func (r reply) code() string {
	code, _ := r.doc["code"].(string)
	return code
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// ask sends a request and holds the answer against the document.
func (r *rig) ask(token, method, path, body string, header ...string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body == "" {
		req.Body = nil
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.check(req, resp, data); err != nil {
		r.t.Errorf("%s %s answered %d %s\nwhich the document does not describe: %v", method, path,
			resp.StatusCode, data, err)
	}
	a := reply{status: resp.StatusCode, header: resp.Header, body: data, doc: map[string]any{}}
	_ = json.Unmarshal(data, &a.doc)
	return a
}

// described is the document, with every object closed: a member that it does not describe is a fault.
var described = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, err
	}
	shut := false
	for _, s := range doc.Components.Schemas {
		closeSchema(s.Value, &shut)
	}
	return doc, doc.Validate(openapi3.NewLoader().Context)
})

func closeSchema(s *openapi3.Schema, shut *bool) {
	if len(s.Properties) > 0 {
		s.AdditionalProperties = openapi3.BoolSchema{Has: shut}
	}
	for _, p := range s.Properties {
		if p.Ref == "" {
			closeSchema(p.Value, shut)
		}
	}
	if s.Items != nil && s.Items.Ref == "" {
		closeSchema(s.Items.Value, shut)
	}
}

func (r *rig) check(req *http.Request, resp *http.Response, body []byte) error {
	doc, err := described()
	if err != nil {
		return err
	}
	path, params := find(doc, req.URL.Path)
	if path == "" || doc.Paths.Value(path).GetOperation(req.Method) == nil {
		return nil
	}
	op := doc.Paths.Value(path).GetOperation(req.Method)
	var refusal struct{ Code problem.Code }
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		if err := json.Unmarshal(body, &refusal); err != nil {
			return err
		}
		described := op.Responses.Value(fmt.Sprint(resp.StatusCode))
		if described == nil || !slices.Contains(codesOf(described.Value), string(refusal.Code)) {
			return fmt.Errorf("the code %s is not described for this status", refusal.Code)
		}
	}
	r.mu.Lock()
	r.seen[strings.TrimSpace(fmt.Sprintf("%s %d %s", op.OperationID, resp.StatusCode, refusal.Code))] = true
	r.mu.Unlock()
	return openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: req, PathParams: params,
			Route: &routers.Route{
				Spec: doc, Path: path, PathItem: doc.Paths.Value(path), Method: req.Method, Operation: op,
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

// codesOf returns the problem codes that the document names for an answer.
func codesOf(r *openapi3.Response) (codes []string) {
	list, _ := r.Extensions["x-codes"].([]any)
	for _, c := range list {
		codes = append(codes, c.(string))
	}
	return codes
}
