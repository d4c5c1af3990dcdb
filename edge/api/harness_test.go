package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/edge/account"
	"verifyd/edge/account/secrets"
	"verifyd/edge/account/signing"
	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/export"
	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

func TestMain(m *testing.M) {
	openapi3filter.RegisterBodyDecoder("application/jsonl", openapi3filter.PlainBodyDecoder)
	goleak.VerifyTestMain(natstest.Tests(m))
}

// The API keys of the tests, and their accounts.
const (
	acmeKey    = "vfy_acme-MARKERKEY"
	acmeTest   = "vfytest_acme-MARKERKEY"
	otherKey   = "vfy_other-MARKERKEY"
	slowKey    = "vfy_slow-MARKERKEY"
	revokedKey = "vfy_revoked-MARKERKEY"
	brokenKey  = "vfy_broken-MARKERKEY"
	closedKey  = "vfy_closed-MARKERKEY"
	callback   = "https://bot.example.com/verified?secret=MARKERQUERY"
)

// standardQuota is the monthly quota of accounts that have none of their own.
const standardQuota = 100_000

var acme = account.Account{ID: "acc_acme", Name: "Acme"}

// keyring is a Keys with a fixed set of keys.
type keyring map[string]account.Principal

func (keyring) SeenSince(time.Time) bool { return true }

func (k keyring) Lookup(secret string) (account.Principal, error) {
	switch p, known := k[secret]; {
	case secret == revokedKey:
		return account.Principal{}, account.ErrRevokedKey
	case secret == closedKey:
		return account.Principal{}, account.ErrDisabled
	case secret == brokenKey:
		return account.Principal{}, account.ErrNotReady
	case !strings.HasPrefix(secret, "vfy"):
		return account.Principal{}, secrets.ErrMalformedKey
	case !known:
		return account.Principal{}, account.ErrUnknownKey
	default:
		return p, nil
	}
}

func (k keyring) Keys(id string) (keys []account.Key) {
	for _, p := range k {
		if p.Key.Account == id {
			keys = append(keys, p.Key)
		}
	}
	return keys
}

// sessionDoc is a session in an answer.
type sessionDoc = export.Session

func newKeyring() keyring {
	return keyring{
		acmeKey:  {Key: account.Key{ID: "key_acme", Name: "Bot", Account: acme.ID}, Account: acme},
		acmeTest: {Key: account.Key{ID: "key_test", Account: acme.ID, Test: true}, Account: acme},
		slowKey: {Key: account.Key{
			ID: "key_slow", Name: "Slow one", Account: acme.ID,
			RateLimit: account.Rate{Count: 1, Per: time.Minute, Burst: 2},
		},
			Account: acme},
		otherKey: {
			Key: account.Key{ID: "key_other", Account: "acc_other"}, Account: account.Account{
				ID: "acc_other",
			},
		},
	}
}

// clock is the clock of a test service.
type clock struct {
	mu      sync.Mutex
	at      time.Time
	running bool
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return time.Now()
	}
	return c.at
}

// run makes the clock that of the machine.
func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// logbook collects what the service logs.
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

// requests returns the request lines, oldest first. A line is written after its answer: stop the server
// before reading the last.
func (l *logbook) requests(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for raw := range strings.Lines(l.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(raw), &line); err != nil {
			t.Fatalf("log line %q: %v", raw, err)
		}
		if line["message"] == "request" {
			lines = append(lines, line)
		}
	}
	return lines
}

// service is a whole public service: embedded JetStream, store, limits, and a real server on a free port.
type service struct {
	conn     *natsconf.Conn
	store    *store.Store
	clock    *clock
	log      *logbook
	registry *prometheus.Registry
	server   *web.Server
	stop     func() // stops the server
	counted  func() // stores what the meter has gathered
	client   *http.Client
}

// brief is how long requests wait in tests of what comes after the wait.
const brief = 3 * time.Second

// briefly makes requests wait for a brief time.
func briefly(c *Config) { c.Store = places.NewWaiting(brief, places.DefaultWaiting) }

// newService starts a service; change may alter its configuration.
func newService(t *testing.T, change func(*Config)) *service {
	t.Helper()
	return newServiceOn(t, natstest.Start(t), change)
}

func newServiceOn(t *testing.T, conn *natsconf.Conn, change func(*Config),
	changeServer ...func(*web.ServerConfig)) *service {
	t.Helper()
	s := &service{
		conn: conn, clock: &clock{at: time.Now()}, log: &logbook{}, registry: prometheus.NewRegistry(),
		client: newClient(t),
	}
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	answers := openapitest.Watch(t, doc, s.client.Transport)
	answers.BelowPrefix = true
	s.client.Transport = answers
	meter := stats.NewMeter(natstest.Writer(t, conn, topology.StreamUsage))
	s.store = store.New(store.Config{
		Conn:        conn,
		Pending:     natstest.Writer(t, conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, conn, topology.StreamCompletions),
		Idempotency: natstest.Writer(t, conn, topology.BucketStream(topology.BucketIdempotency)),
		Key:         secretbox.NewKey(),
		Meter:       meter,
		Now:         s.clock.now,
	})
	rates, err := limit.NewRates(account.Rate{Count: 100_000, Per: time.Second, Burst: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	watch := store.NewWatch(conn)
	natstest.Serve(t, watch)
	c := Config{
		BaseURL: "https://verify.example.com", Keys: newKeyring(), Sessions: s.store, TestKeys: true,
		Signing: signing.New(secretbox.NewKey()),
		Usages:  s.store, Reservations: s.store, Lister: s.store, Changes: watch, Rates: rates,
		Networks:  []string{"default", "other"},
		Quota:     limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), standardQuota),
		Callbacks: urlpolicy.NewPolicy(nil, nil), Listeners: devtunnel.New(conn), Metrics: s.registry,
		Log: zerolog.New(s.log), Now: s.clock.now,
	}
	c.Store = places.NewWaiting(places.DefaultStoreWait, places.DefaultWaiting)
	if change != nil {
		change(&c)
	}
	if err := c.Store.Measure(s.registry); err != nil {
		t.Fatal(err)
	}
	s.counted = natstest.Serve(t, meter)
	handler, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	sc := web.ServerConfig{Name: "public", Listen: "127.0.0.1:0", Handler: handler, Log: zerolog.New(s.log)}
	for _, change := range changeServer {
		change(&sc)
	}
	server, stop := startServer(t, sc)
	s.server = server
	// The client's spare connections are closed first: a drain waits 5 s for those that never sent a request.
	s.stop = func() { s.client.CloseIdleConnections(); stop() }
	t.Cleanup(s.stop)
	return s
}

func startServer(t *testing.T, c web.ServerConfig) (*web.Server, func()) {
	t.Helper()
	s, err := web.NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	stop := natstest.Serve(t, s)
	awaitReady(t, s)
	return s, stop
}

func awaitReady(t *testing.T, s *web.Server) {
	t.Helper()
	select {
	case <-s.Ready():
	case <-time.After(natstest.TestTimeout):
		t.Fatal("the server does not listen")
	}
}

func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{Proxy: nil, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: natstest.TestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request. header holds pairs of names and values, in order; a repeated name is sent repeatedly.
func (s *service) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.server.Addr()+path, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return send(t, s.client, req)
}

func send(t *testing.T, client *http.Client, req *http.Request) answer {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
}

// init posts a body to /verify/init with Acme's key.
func (s *service) init(t *testing.T, body string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, pathInit, body, "Authorization", "Bearer "+acmeKey, "Content-Type",
		"application/json")
}

// started is the answer of a successful init.
type started struct {
	VerifyURL string `json:"verify_url"`
	Session   string `json:"session"`
	ExpiresAt string `json:"expires_at"`
}

// start begins a session with Acme's key.
func (s *service) start(t *testing.T) started {
	t.Helper()
	return parse[started](t, s.init(t, goodBody), http.StatusOK)
}

const goodBody = `{"platform":"chat","platform_user_id":"u-1","guild_id":"g-1","callback_url":"` + callback +
	`"}`

func (s *service) get(t *testing.T, session, key string) answer {
	t.Helper()
	return s.do(t, http.MethodGet, "/sessions/"+session, "", "Authorization", "Bearer "+key)
}

func (s *service) cancel(t *testing.T, session, key string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, "/sessions/"+session+"/cancel", "", "Authorization", "Bearer "+key)
}

// parse checks the status and reads a JSON answer.
func parse[T any](t *testing.T, a answer, status int) (v T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status = %d, want %d; body %s", a.status, status, a.body)
	}
	dec := json.NewDecoder(strings.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("body %s: %v", a.body, err)
	}
	return v
}

// wantProblem checks that an answer is a problem document of the code, whole and with its headers.
func wantProblem(t *testing.T, a answer, code problem.Code) web.Document {
	t.Helper()
	p := parse[web.Document](t, a, code.Status())
	if p.Code != code || p.Status != code.Status() || p.Title != code.Title() ||
		p.Type != "urn:verifyd:problem:"+string(code) || p.Detail == "" {
		t.Fatalf("problem = %+v, want code %s", p, code)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type = %q", got)
	}
	if p.RequestID == "" || p.RequestID != a.header.Get(web.HeaderRequestID) {
		t.Errorf("request_id = %q, X-Request-Id = %q", p.RequestID, a.header.Get(web.HeaderRequestID))
	}
	if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers = %v", a.header)
	}
	return p
}

func mustPrefixes(s ...string) (prefixes []netip.Prefix) {
	for _, p := range s {
		prefixes = append(prefixes, netip.MustParsePrefix(p))
	}
	return prefixes
}

// read returns a session that may be completed.
func (s *service) read(t *testing.T, token string) sessions.Session {
	t.Helper()
	id, err := sessions.ParseID(token)
	if err != nil {
		t.Fatal(err)
	}
	open, err := s.store.ReadOpen(context.WithoutCancel(t.Context()), id)
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// complete ends a session as the sign-in would.
func (s *service) complete(t *testing.T, token string, o sessions.Outcome) sessions.Completion {
	t.Helper()
	c, err := s.store.Complete(context.WithoutCancel(t.Context()), s.read(t, token), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
