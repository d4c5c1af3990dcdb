package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/spans"
	"verifyd/dispatcher"
	"verifyd/dispatcher/callback"
	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/signin"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/roster"
)

// Program is the whole service. main and the end-to-end tests both boot it; it is served once.
type Program struct {
	c        config
	registry *prometheus.Registry

	// ready is closed when everything is up; what follows may be read from then on.
	ready  chan struct{}
	base   string // {base_url}
	admin  string // address of the operators' server; empty: none
	store  *store
	mirror *account.Mirror
	nets   networks
	sender *dispatcher.Dispatcher // nil: this process delivers nothing
	paused *pauses.Mirror         // the same
	spans  *spans.Spans           // nil: nothing is traced
	alarms *alarm.Keeper
	quota  *limit.Quota // nil where this process runs no edge

	receivers   *receivers // what the dispatcher learns about them
	unreadables *unreadables

	actors map[string]*actor
	layers []*layer // in the order of their start
}

func newProgram(c config) *Program {
	p := &Program{c: c, registry: prometheus.NewRegistry(), ready: make(chan struct{}), actors: map[string]*actor{}}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p
}

// Serve starts everything, runs until ctx ends, and stops everything, outside in: first the edge, which answers what it has
// taken; then the dispatcher, which stores the results of what it has sent; then the writers; then the store. An error means
// that the start failed, and nothing is left running.
func (p *Program) Serve(ctx context.Context) error {
	defer p.stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	close(p.ready)
	debug.FreeOSMemory() // what the start alone needed: settings, templates, the texts of all languages
	select {
	case <-ctx.Done():
		p.c.log.Info().Dur("within", p.c.stopWithin()).Msg("stopping")
		return nil
	case <-p.store.conn.Closed():
		return errors.New("the connection to NATS ended for good; it should never")
	}
}

const (
	// stopStore is how long the stop of what stands on the store may take: a result that is stored against a store that hardly answers,
	// counts, and what the writers still hold.
	stopStore = 35 * time.Second
	// stopAttempt is what a dispatcher grants an attempt beyond the callback's time-out.
	stopAttempt = 5 * time.Second
)

// stopWithin is how long the program may take to stop, whatever receivers, browsers and the store do. It takes milliseconds where nobody
// is in the middle of anything. docs/OPERATING.md states it.
func (c config) stopWithin() (most time.Duration) {
	most = stopStore
	if c.edge {
		most += edge.DefaultDrainTimeout
	}
	if c.dispatch {
		most += c.callbackTimeout + stopAttempt
	}
	return most
}

func (p *Program) stop() {
	for _, l := range slices.Backward(p.layers) {
		l.stop()
	}
	if p.store != nil {
		p.store.close()
	}
}

// add starts actors as one layer.
func (p *Program) add(name string, actors ...*actor) {
	for _, a := range actors {
		p.actors[a.name] = a
	}
	p.layers = append(p.layers, startLayer(name, p.c.log, actors...))
}

// kill makes an actor fail, for tests of its restart. It returns once the actor has taken notice.
func (p *Program) kill(name string) { p.actors[name].kill <- struct{}{} }

// hall is what the rooms share.
type hall struct {
	sessions *sessions.Store
	mirror   *account.Mirror
	uses     *account.Uses
	gauge    *natsconf.StoreGauge
	watch    *sessions.Watch
	watchman *natsconf.Watchman
	meter    *sessions.Meter
	usage    *natsconf.Writer
	writers  []*natsconf.Writer
}

func (p *Program) start(ctx context.Context) (err error) {
	if err := refuseHere(p.c); err != nil {
		return err
	}
	public, err := p.listen()
	if err != nil {
		return err
	}
	defer func() {
		if public != nil && p.actors[publicServer] == nil {
			_ = public.Close() // no server has taken it over
		}
	}()
	if err := p.observe(); err != nil {
		return err
	}
	if p.store, err = openStore(ctx, p.c.store, p.c.log, toServe); err != nil {
		return err
	}
	p.store.conn.Measure(p.registry)
	if err := refuseThere(ctx, p.store.conn, p.c); err != nil {
		return err
	}
	if p.store.server != nil {
		p.actors[p.store.server.name] = p.store.server
	}
	h, err := p.startCore(ctx)
	if err != nil {
		return err
	}
	if p.c.dispatch {
		if err := p.startDispatcher(ctx, h); err != nil {
			return err
		}
	}
	checks, err := p.startEdge(ctx, h, public)
	if err != nil {
		return err
	}
	p.startAlarms(h)
	// Last, so that nobody is told of a process that is not up.
	p.add("presence", newActor("presence", roster.NewPresence(p.store.conn, p.presence(h, checks), p.c.log)))
	return nil
}

// listen takes the public port before anything else starts: a port in use is the commonest fault of a start, and the base URL
// may depend on the port.
func (p *Program) listen() (net.Listener, error) {
	if !p.c.edge {
		return nil, nil //nolint:nilnil // no edge, no listener
	}
	l, err := net.Listen("tcp", p.c.listen)
	if err != nil {
		return nil, usageError{fmt.Errorf("VERIFYD_LISTEN (--listen): %w; choose an address that is free, for example 127.0.0.1:8081", err)}
	}
	p.base = p.c.baseURL
	if addr, ok := l.Addr().(*net.TCPAddr); ok && p.base == "" {
		p.base = "http://" + net.JoinHostPort("localhost", strconv.Itoa(addr.Port))
	}
	return l, nil
}

// startCore starts what both edge and dispatcher stand on.
func (p *Program) startCore(ctx context.Context) (hall, error) {
	conn := p.store.conn
	newWriter := natsconf.NewWriter
	if p.store.embedded != nil && p.c.store.sync == natsconf.SyncInterval {
		newWriter = natsconf.NewSingleWriter
	}
	pending := newWriter(conn, natsconf.BucketStream(natsconf.BucketSessions))
	completions := newWriter(conn, natsconf.StreamCompletions)
	retries := natsconf.NewSingleWriter(conn, natsconf.StreamRetries)
	identities := natsconf.NewSingleWriter(conn, natsconf.BucketStream(natsconf.BucketIdentities))
	keyed := newWriter(conn, natsconf.BucketStream(natsconf.BucketIdempotency))
	usage := natsconf.NewSingleWriter(conn, natsconf.StreamUsage)
	events := natsconf.NewSingleWriter(conn, natsconf.StreamEvents)
	steps := sessions.NewSteps(conn, events)
	p.unreadables = newUnreadables(p.c.log, p.clock)
	meter := sessions.NewMeter(usage)
	if p.c.now != nil {
		meter.Now = p.c.now
	}
	h := hall{
		sessions: sessions.NewStore(sessions.Config{
			Conn: conn, Pending: pending, Completions: completions, Retries: retries, Keyed: keyed, Identities: identities, Meter: meter, Steps: steps, Metrics: p.registry, Key: p.store.key, Now: p.c.now,
			Unreadable: p.unreadables.met,
		}),
		mirror:   account.NewMirror(conn, p.store.key, p.c.log),
		uses:     account.NewUses(conn, p.c.log),
		gauge:    natsconf.NewStoreGauge(conn, p.store.embedded),
		watch:    sessions.NewWatch(conn),
		watchman: natsconf.NewWatchman(conn, p.c.log),
		meter:    meter,
		usage:    usage,
	}
	h.writers = []*natsconf.Writer{pending, completions, retries, keyed, identities, h.usage}
	if p.store.embedded != nil {
		p.add("watchdog", newActor("store watchdog", natsconf.NewWatchdog(p.store.embedded, h.writers...)))
	}
	p.mirror = h.mirror
	h.mirror.Measure(p.registry)
	h.gauge.Measure(p.registry)
	h.mirror.Now, p.store.accounts.Now = p.c.now, p.c.now
	mirror := newActor("key mirror", h.mirror)
	p.add("core",
		newActor("sessions writer", pending), newActor("completions writer", completions), newActor("retries writer", retries), newActor("idempotency writer", keyed),
		newActor("identities writer", identities), newActor("usage writer", h.usage), newActor("events writer", events),
		mirror, newActor("session watch", h.watch), newActor("store's standing", h.watchman), newActor("store gauge", h.gauge))
	if p.c.edge { // a dispatcher takes no keys, and its credential writes no audit log
		p.add("accounts", newActor("key uses", h.uses), newActor("audit settler", account.NewSettler(p.store.accounts, p.c.log)))
	}
	p.add("meter", newActor("meter", h.meter)) // above the writer that it uses at its stop, below those that count
	p.add("steps", newActor("steps", steps))
	// Nobody's key is refused because it has not been read yet.
	return h, await(ctx, mirror, h.mirror.Loaded())
}

func (p *Program) startDispatcher(ctx context.Context, h hall) error {
	p.paused = pauses.NewMirror(p.store.conn, p.c.log)
	mirror := newActor("pauses", p.paused)
	p.add("pauses", mirror)
	if err := await(ctx, mirror, p.paused.Loaded()); err != nil { // nothing is sent to a paused host because it was not read yet
		return err
	}
	p.receivers = newReceivers(p.c.alarms.failures, p.clock)
	d, err := dispatcher.New(dispatcher.Config{
		Ended: p.receivers.ended,
		Conn:  p.store.conn, Sessions: h.sessions, Secrets: h.mirror, Policy: p.c.callbackPolicy, Log: p.c.log, Metrics: p.registry, Tracer: p.tracer(), TraceReceivers: p.c.traceReceivers,
		Supervise: supervision(p.c.log), Connections: p.c.callbackConnections, Timeout: p.c.callbackTimeout, RetryFor: p.c.callbackRetryFor, DefaultPolicy: p.c.defaultPolicy, Now: p.c.now,
		Client: p.c.callbackClient(), Listeners: p.listeners(), Pauses: p.paused,
	})
	if err != nil {
		return err
	}
	p.sender = d
	p.add("dispatcher", newActor("dispatcher", whileOpen{h.watchman, d}))
	return nil
}

// callbackClient makes what dials receivers.
func (c config) callbackClient() *callback.Client {
	return callback.New(callback.Config{
		RootCAs: c.callbackRoots, Policy: c.callbackPolicy, Timeout: c.callbackTimeout, UserAgent: "verifyd/" + versionText(), Proxy: c.callbackProxy,
	})
}

// publicServer is the name of the actor that serves users and integrators.
const publicServer = "public server"

// startEdge starts the public server, where this process has the role, and the operators' one, and gives what it is asked whether it is ready.
func (p *Program) startEdge(ctx context.Context, h hall, public net.Listener) (checks []edge.Check, err error) {
	checks = p.readiness(h)
	if public != nil {
		handler, err := p.handler(ctx, h)
		if err != nil {
			return nil, err
		}
		server, err := edge.NewServer(edge.ServerConfig{Name: "public", Listen: p.c.listen, Listener: public, Handler: handler, Log: p.c.log})
		if err != nil {
			return nil, err
		}
		checks = append(checks, edge.Check{Name: publicServer, Check: func(ctx context.Context) (string, error) { return server.Addr(), server.Check(ctx) }})
		checks = append(checks, p.nets.checks()...)
		if err := p.serve(ctx, publicServer, server); err != nil {
			return nil, err
		}
	}
	if p.c.adminListen == "" {
		return checks, nil
	}
	admin, err := edge.NewServer(edge.ServerConfig{
		Name: "admin", Listen: p.c.adminListen, Handler: edge.NewAdmin(append(slices.Clone(checks), p.assetChecks()...), p.registry, p.levels()), Log: p.c.log, WriteTimeout: edge.AdminWriteTimeout,
	})
	if err != nil {
		return nil, err
	}
	if err := p.serve(ctx, "admin server", admin); err != nil {
		return nil, usageError{fmt.Errorf("VERIFYD_ADMIN_LISTEN (--admin-listen): %w; choose an address that is free, for example 127.0.0.1:9091", err)}
	}
	p.admin = admin.Addr()
	return checks, nil
}

// serve starts a server and waits until it takes requests.
func (p *Program) serve(ctx context.Context, name string, s *edge.Server) error {
	a := newActor(name, s)
	up := s.Ready()
	p.add(name, a)
	return await(ctx, a, up)
}

func (p *Program) handler(ctx context.Context, h hall) (http.Handler, error) {
	networks, err := p.networks()
	if err != nil {
		return nil, err
	}
	p.nets = networks
	p.add("networks", networks.keeper())
	pages, err := signin.New(signin.Config{
		BaseURL: p.base, Sessions: h.sessions, Networks: networks.live, Test: networks.test, Accounts: askers{h.mirror}, Key: p.store.key, Log: p.c.log, Metrics: p.registry, Now: p.c.now,
	})
	if err != nil {
		return nil, err
	}
	board, err := p.dashboard(ctx, h, networks.logIn, pages)
	if err != nil {
		return nil, err
	}
	rates, err := limit.NewRates(p.c.rate)
	if err != nil {
		return nil, err
	}
	failures, err := limit.NewFailures(p.c.failedKeys)
	if err != nil {
		return nil, err
	}
	p.add("rate sharing", newActor("rate sharing", limit.NewSharing(rates, p.store.conn, p.c.now)))
	quota := limit.NewQuota(h.usage, p.c.quota)
	p.quota = quota
	p.add("quota", newActor("quota", quota)) // before the server, so that it stops after it
	return edge.New(edge.Config{
		BaseURL: p.base, Keys: h.mirror, Uses: h.uses, Sessions: h.sessions, Turns: h.sessions, Lister: h.sessions, Usages: h.sessions, Changes: h.watch,
		Rates: rates, FailedKeys: failures, Quota: quota, Callbacks: p.c.callbackPolicy, Listeners: p.listeners(),
		StoreHigh: h.gauge.High, StoreLeft: h.watchman.Check, TrustedProxies: p.c.trustedProxies, TestKeys: p.c.testKeys, Routes: append(pages.Routes(), board.Routes()...),
		Metrics: p.registry, Tracer: p.tracer(), Log: p.c.log, Now: p.c.now,
	})
}

// knows waits until this process's mirror has seen a new API key, which takes the time of one message.
func (p *Program) knows(ctx context.Context, secret string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.mirror.Lookup(secret); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the API key: %w", ctx.Err())
		}
	}
}

// free says whether an address can be listened on.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
