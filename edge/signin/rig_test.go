package signin_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/edge/browsertest"
	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/edge/places"
	"verifyd/edge/signin"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// requesters replaces the account mirror.
type requesters map[string]signin.Requester

func (as requesters) Requester(id string) (signin.Requester, bool) {
	a, ok := as[id]
	return a, ok
}

// disabling is requesters whose accounts are disabled while closed is set.
type disabling struct {
	requesters

	closed *atomic.Pointer[func() bool]
}

func (d disabling) Requester(id string) (signin.Requester, bool) {
	a, ok := d.requesters.Requester(id)
	if closed := d.closed.Load(); closed != nil {
		a.Closed = (*closed)()
	}
	return a, ok
}

// clock is the real time plus an offset that tests set, or an instant at which it is stopped.
type clock struct {
	offset atomic.Int64
	stands atomic.Pointer[time.Time]
}

func (c *clock) Now() time.Time {
	if at := c.stands.Load(); at != nil {
		return at.Add(time.Duration(c.offset.Load()))
	}
	return time.Now().Add(time.Duration(c.offset.Load()))
}

func (c *clock) advance(by time.Duration) { c.offset.Add(int64(by)) }

// stop stops the clock, so that all that follows happens at one instant.
func (c *clock) stop() { c.stands.Store(new(time.Now())) }

// logBuffer collects log lines of many goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// setup is what tests choose.
type setup struct {
	prefix       string // of the base URL
	host         string // address to listen on; 127.0.0.1 when empty
	tls          bool
	subjectMatch bool
	rules        netsettings.Rules
	steam        *steam // an additional network
	evil         *evil  // another one
	noTest       bool   // there is no network for test sessions
	testForLive  bool   // the network of test sessions is one of live sessions too
	networks     int    // 1 when zero; all of them lead to the same provider
	// adds the network of the platform "discord": true if it proves only accounts there
	platform *bool
	counted  bool            // steps are counted; rig.counts reads them
	on       *natsconf.Conn  // the store; an embedded one of its own when nil
	waiting  *places.Waiting // how requests wait for it
	deaf     bool            // the completions' writer does not run
}

// briefly is how requests wait in tests that stop the store and do not test the wait: three seconds, enough
// for a busy machine while the store is there.
func briefly() *places.Waiting { return places.NewWaiting(3*time.Second, places.DefaultWaiting) }

// rig is the real thing: embedded JetStream, the dev network, and an HTTP server with the routes.
type rig struct {
	t      testing.TB
	setup  setup
	conn   *natsconf.Conn
	key    secretbox.Key
	away   func() // stops JetStream
	listen func() // runs the completions' writer, if the setup is deaf
	store  *store.Store
	counts func() map[stats.Count]int64 // of the day's live sessions, once
	dev    *devnetwork.Provider
	// stopProvider stops the identity network.
	stopProvider func()
	nets         []*network.Network
	testNet      *network.Network
	handler      *signin.Handler
	mux          *atomic.Pointer[http.ServeMux]
	server       *httptest.Server
	base         string
	clock        *clock
	log          *logBuffer
	closed       *atomic.Pointer[func() bool] // whether the accounts are disabled; nil: they are not
}

func newRig(tb testing.TB, s setup) *rig {
	tb.Helper()
	r := &rig{t: tb, setup: s, clock: &clock{}, log: &logBuffer{}, closed: &atomic.Pointer[func() bool]{}}
	if r.conn = s.on; r.conn == nil {
		r.conn, r.away = natstest.StartIn(tb, tb.TempDir())
	}
	r.key = secretbox.NewKey()
	completions := natsconf.NewWriter(r.conn, topology.StreamCompletions)
	r.listen = func() { natstest.Serve(tb, completions) }
	if !s.deaf {
		r.listen()
	}
	var meter *stats.Meter
	var steps *store.Steps
	if s.counted {
		meter, steps = r.count()
	}
	r.store = store.New(store.Config{
		Conn: r.conn, Key: r.key, Now: r.clock.Now, Meter: meter, Steps: steps,
		Pending:     natstest.Writer(tb, r.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: completions,
		Identities:  natstest.Writer(tb, r.conn, topology.BucketStream(topology.BucketIdentities)),
	})
	r.serve()
	return r
}

// count runs what counts.
func (r *rig) count() (*stats.Meter, *store.Steps) {
	r.t.Helper()
	events := natsconf.NewSingleWriter(r.conn, topology.StreamEvents)
	natstest.Serve(r.t, events)
	steps, meter := store.NewSteps(r.conn, events),
		stats.NewMeter(natstest.Writer(r.t, r.conn, topology.StreamUsage))
	stopSteps, stopMeter := natstest.Serve(r.t, steps), natstest.Serve(r.t, meter)
	r.counts = func() map[stats.Count]int64 {
		r.t.Helper()
		stopSteps()
		stopMeter()
		u, err := r.store.Usage(r.t.Context(), "acc_harbor", r.clock.Now())
		if err != nil {
			r.t.Fatal(err)
		}
		return u.Total(false)
	}
	return meter, steps
}

// serve starts an edge.
func (r *rig) serve() {
	tb, s := r.t, r.setup
	tb.Helper()
	r.mux = &atomic.Pointer[http.ServeMux]{}
	mux := r.mux
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mux.Load().ServeHTTP(w, q)
	}))
	if s.host != "" {
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", s.host+":0")
		if err != nil {
			tb.Fatal(err)
		}
		_ = r.server.Listener.Close()
		r.server.Listener = l
	}
	if s.tls {
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	tb.Cleanup(r.server.Close)
	r.base = r.server.URL + s.prefix
	r.startNetworks()
	r.mount()
}

// mount creates the handler and serves its routes.
func (r *rig) mount() {
	r.t.Helper()
	var err error
	r.handler, err = signin.New(signin.Config{
		BaseURL: r.base, Sessions: r.store, Networks: r.nets, Test: r.testNet, Key: r.key, Now: r.clock.Now,
		Store: r.setup.waiting, Accounts: disabling{requesters{
			"acc_harbor": {Name: "Harbor Guild"}, "acc_few": {Name: "Harbor Guild", MaxUsers: 2},
			"acc_verified": {Name: "Harbor Guild", Colour: "#1f5fd0", Verified: true},
			"acc_back": {
				Name: "Harbor Guild", ReturnURL: "https://harbor.example/done?from=verify", Colour: "#1f5fd0",
			},
			"acc_branded": {ID: "acc_branded", Name: "Harbor Guild", Colour: "#1f5fd0", Branding: branded()},
			"acc_long": {
				Name: strings.Repeat("Ww", 64), ReturnURL: "https://harbor.example/done", Colour: "#1f5fd0",
			},
		}, r.closed},
		Log: zerolog.New(r.log),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, route := range r.handler.Routes() {
		path := r.setup.prefix + route.Path
		if route.Path == "/" {
			path += "{$}" // to this mux a final slash would be everything below
		}
		mux.Handle(route.Method+" "+path, route.Handler)
	}
	r.mux.Store(mux)
}

// liveOnly removes the network of test sessions from the live ones, as an operator does with a restart.
func (r *rig) liveOnly() {
	r.t.Helper()
	r.nets = r.nets[:max(r.setup.networks, 1)]
	r.mount()
}

func (r *rig) startNetworks() {
	r.t.Helper()
	if r.dev == nil {
		r.startProvider()
	}
	r.nets = nil
	for i := range max(r.setup.networks, 1) {
		r.nets = append(r.nets, r.network([]string{"example", "second", "third"}[i],
			[]string{"Example Network", "Second Network", "Third Network"}[i]))
	}
	if !r.setup.noTest {
		r.testNet = r.network("dev", "Dev network")
	}
	if r.setup.testForLive {
		r.nets = append(r.nets, r.testNet)
	}
	if only := r.setup.platform; only != nil {
		s := r.settings("platform", "Platform")
		s.Platforms, s.PlatformOnly = []string{"discord"}, *only
		r.nets = append(r.nets, r.networkOf(s))
	}
	if r.setup.steam != nil {
		r.nets = append(r.nets, r.setup.steam.network(r.t, r.base))
	}
	if r.setup.evil != nil {
		r.nets = append(r.nets, r.setup.evil.network(r.t, r.base))
	}
}

func (r *rig) network(id, name string) *network.Network {
	r.t.Helper()
	return r.networkOf(r.settings(id, name))
}

// settings are those of a network that proves no platform's accounts, except for test sessions.
func (r *rig) settings(id, name string) netsettings.Settings {
	s := r.dev.Settings()
	if id != "dev" {
		s.Platforms = []string{}
	}
	s.ID, s.Name, s.Rules = id, name, r.setup.rules
	s.RequireSubjectMatch = s.RequireSubjectMatch || r.setup.subjectMatch
	return s
}

func (r *rig) networkOf(s netsettings.Settings) *network.Network {
	r.t.Helper()
	n, err := network.New(s, network.Options{BaseURL: r.base})
	if err != nil {
		r.t.Fatal(err)
	}
	r.dev.AllowRedirect(n.RedirectURI())
	return n
}

func (r *rig) startProvider() {
	r.t.Helper()
	var err error
	if r.dev, err = devnetwork.New(devnetwork.Config{}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.dev.Listen(); err != nil {
		r.t.Fatal(err)
	}
	r.stopProvider = natstest.Serve(r.t, r.dev)
}

// session starts a session as an integrator does.
func (r *rig) session(change ...func(*sessions.Request)) (sessions.Session, sessions.Token) {
	r.t.Helper()
	req := sessions.Request{
		Account: "acc_harbor", Key: "key_1", Platform: "discord", PlatformUserID: "sailor_42",
		GuildID:     "118203948571029384",
		CallbackURL: "https://hooks.example.com/verified",
	}
	for _, c := range change {
		c(&req)
	}
	s, token, err := r.store.Create(r.t.Context(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, token
}

// want fails unless the session has this state.
func (r *rig) want(id sessions.ID, state sessions.State, reason sessions.Reason) {
	r.t.Helper()
	v, err := r.store.Read(r.t.Context(), id)
	if err != nil || v.State != state || v.Reason != reason {
		r.t.Errorf("session: state %q, reason %q, err %v; want %q, %q", v.State, v.Reason, err, state, reason)
	}
}

// outcomes counts the log lines with an outcome.
func (r *rig) outcomes(outcome string) (n int) {
	r.t.Helper()
	for line := range strings.Lines(r.log.String()) {
		var fields struct{ Outcome string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			r.t.Fatalf("log line %q: %v", line, err)
		}
		if fields.Outcome == outcome {
			n++
		}
	}
	return n
}

// sequences returns the last sequence of every stream: any write anywhere changes it.
func (r *rig) sequences() map[string]uint64 {
	r.t.Helper()
	seqs := map[string]uint64{}
	streams := r.conn.JS.ListStreams(r.t.Context())
	for info := range streams.Info() {
		seqs[info.Config.Name] = info.State.LastSeq
	}
	if err := streams.Err(); err != nil || len(seqs) < 5 {
		r.t.Fatalf("streams: %v, %v", seqs, err)
	}
	return seqs
}

// answer is the answer to a request.
type answer = browsertest.Answer

// browser is a user's.
type browser struct {
	*browsertest.Browser

	t testing.TB
	r *rig
}

func (r *rig) browser() *browser {
	r.t.Helper()
	var roots *x509.CertPool
	if r.setup.tls {
		roots = r.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	return &browser{browsertest.New(r.t, r.base, roots), r.t, r}
}

func (b *browser) page(token sessions.Token) string { return b.r.base + "/?session=" + token.Reveal() }

// press opens the session's page and presses Continue there, and returns where that leads: the provider.
func (b *browser) press(token sessions.Token) string {
	b.t.Helper()
	b.Get(b.page(token))
	return b.To(b.continues(token))
}

// continues presses Continue on a page that was opened before.
func (b *browser) continues(token sessions.Token) answer {
	b.t.Helper()
	return b.act(token, "continue")
}

// act presses one of the buttons of the session's page.
func (b *browser) act(token sessions.Token, action string) answer {
	b.t.Helper()
	return b.Post(b.r.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {action}, "network": {"example"},
	})
}

// signIn goes through the provider with one of its buttons, and returns its return: an address with code and
// state.
func (b *browser) signIn(authorize, subject, action string) string {
	b.t.Helper()
	u, err := url.Parse(authorize)
	if err != nil {
		b.t.Fatal(err)
	}
	if a := b.Get(authorize); a.Status != http.StatusOK {
		b.t.Fatalf("the provider answered %d\n%s", a.Status, a.Body)
	}
	form := u.Query()
	form.Set("subject", subject)
	form.Set("action", action)
	return b.To(b.Post(b.r.dev.Issuer()+"/authorize", form))
}

// back goes the whole path to the provider's return.
func (b *browser) back(token sessions.Token, subject, action string) string {
	b.t.Helper()
	return b.signIn(b.press(token), subject, action)
}
