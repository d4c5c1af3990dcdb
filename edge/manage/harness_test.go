package manage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

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
	answers  *openapitest.Transport // checks every answer against the document
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
func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, conn: natstest.Start(t), log: &logbook{}, now: time.Now}
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
		Store: places.NewWaiting(places.DefaultStoreWait, places.DefaultWaiting),
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
	r.Server = httptest.NewTLSServer(handler)
	t.Cleanup(r.Close)
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	r.answers = openapitest.Watch(t, doc, r.Client().Transport)
	r.Client().Transport = r.answers
	return r
}

// token creates an operator token with scopes.
func (r *rig) token(scopes ...grant.Scope) string {
	r.t.Helper()
	token, _, err := r.accounts.CreateToken(r.t.Context(), console, "deploy", scopes, r.now().Add(time.Hour))
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// reply is the answer to a request.
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

// ask sends a request.
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
	a := reply{status: resp.StatusCode, header: resp.Header, body: data, doc: map[string]any{}}
	_ = json.Unmarshal(data, &a.doc)
	return a
}

// described is the document.
var described = sync.OnceValues(func() (*openapi3.T, error) { return openapitest.Read(document) })
