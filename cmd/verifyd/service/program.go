// Package service is the running program: serve, the demo and the end-to-end tests boot the same Program.
//
// It starts inside out (store, writers, dispatcher, edge) and stops outside in, so that nobody is asked for
// what is gone already. Every actor runs under a supervisor, with its name; what fails is started again, and
// the job goes on.
package service

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
	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/cmd/verifyd/trace"
	"verifyd/dispatcher"
	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/signin"
	"verifyd/natsconf"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/transfer"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
)

// Program is the whole service. main and the end-to-end tests both boot it; it is served once.
type Program struct {
	Config   config.Config
	Registry *prometheus.Registry

	// Ready is closed when everything is up; what follows may be read from then on.
	Ready  chan struct{}
	Base   string // {base_url}
	Admin  string // address of the operators' server; empty: none
	Store  *store.Store
	Mirror *account.Mirror
	nets   networks
	sender *dispatcher.Dispatcher // nil: this process delivers nothing
	Paused *pauses.Mirror         // the same
	traces *trace.Exporter        // nil: nothing is traced
	Alarms *alarm.Keeper
	copier *transfer.Copier // nil: there is no copy of the store
	quota  *limit.Quota     // nil where this process runs no edge

	Receivers   *receivers // what the dispatcher learns about them
	Unreadables *unreadables

	actors map[string]*supervise.Actor
	layers []*supervise.Layer // in the order of their start
}

// New makes the program of a configuration. Nothing is started yet.
func New(c config.Config) *Program {
	p := &Program{
		Config: c, Registry: prometheus.NewRegistry(), Ready: make(chan struct{}),
		actors: map[string]*supervise.Actor{},
	}
	p.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p
}

// Serve starts everything, runs until ctx ends, and stops everything, outside in: first the edge, which
// answers what it has taken; then the dispatcher, which stores the results of what it has sent; then the
// writers; then the store. An error means that the start failed, and nothing is left running.
func (p *Program) Serve(ctx context.Context) error {
	defer p.stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	close(p.Ready)
	debug.FreeOSMemory() // what the start alone needed: settings, templates, the texts of all languages
	select {
	case <-ctx.Done():
		p.Config.Log.Info().Dur("within", StopWithin(p.Config)).Msg("stopping")
		return nil
	case <-p.Store.Conn.Closed():
		return errors.New("the connection to NATS ended for good; it should never")
	}
}

const (
	// stopStore is how long the stop of what stands on the store may take: a result that is stored against a
	// store that hardly answers, counts, and what the writers still hold.
	stopStore = 35 * time.Second
	// stopAttempt is what a dispatcher grants an attempt beyond the callback's time-out.
	stopAttempt = 5 * time.Second
)

// StopWithin is how long the program may take to stop, whatever receivers, browsers and the store do. It
// takes milliseconds where nobody is in the middle of anything. docs/OPERATING.md states it.
func StopWithin(c config.Config) (most time.Duration) {
	most = stopStore
	if c.Edge {
		most += edge.DefaultDrainTimeout
	}
	if c.Dispatcher {
		most += c.CallbackTimeout + stopAttempt
	}
	if c.CopyTo != "" {
		most += transfer.CopyStop
	}
	return most
}

func (p *Program) stop() {
	for _, l := range slices.Backward(p.layers) {
		l.Stop()
	}
	if p.Store != nil {
		p.Store.Close()
	}
}

// add starts actors as one layer.
func (p *Program) add(name string, actors ...*supervise.Actor) {
	for _, a := range actors {
		p.actors[a.Name] = a
	}
	p.layers = append(p.layers, supervise.Start(name, p.Config.Log, actors...))
}

// Kill makes an actor fail, for tests of its restart, and reports whether there is one of this name. It
// returns once the actor has taken notice.
func (p *Program) Kill(name string) bool {
	a := p.actors[name]
	if a != nil {
		a.Kill()
	}
	return a != nil
}

// shared is what edge and dispatcher share.
type shared struct {
	sessions     *sessions.Store
	mirror       *account.Mirror
	uses         *account.Uses
	gauge        *natsconf.StoreGauge
	watch        *sessions.Watch
	stateMonitor *natsconf.StateMonitor
	meter        *sessions.Meter
	usage        *natsconf.Writer
	writers      []*natsconf.Writer
}

func (p *Program) start(ctx context.Context) (err error) {
	if err := check.RefuseHere(p.Config); err != nil {
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
	if p.Store, err = store.Open(ctx, p.Config.Store, p.Config.Log, store.ToServe); err != nil {
		return err
	}
	p.Store.Conn.Measure(p.Registry)
	if err := check.RefuseThere(ctx, p.Store.Conn, p.Config); err != nil {
		return err
	}
	if p.Store.Server != nil {
		p.actors[p.Store.Server.Name] = p.Store.Server
	}
	if err := p.startCopier(ctx); err != nil {
		return err
	}
	h, err := p.startCore(ctx)
	if err != nil {
		return err
	}
	if p.Config.Dispatcher {
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
	p.add("presence", supervise.New("presence",
		fleet.NewPresence(p.Store.Conn, p.presence(h, checks), p.Config.Log)))
	return nil
}

// listen takes the public port before anything else starts: a port in use is the commonest fault of a start,
// and the base URL may depend on the port.
func (p *Program) listen() (net.Listener, error) {
	if !p.Config.Edge {
		return nil, nil //nolint:nilnil // no edge, no listener
	}
	l, err := net.Listen("tcp", p.Config.Listen)
	if err != nil {
		return nil, config.Usage(
			fmt.Errorf("VERIFYD_LISTEN (--listen): %w; choose an address that is free, for example 127.0.0.1:8081", err))
	}
	p.Base = p.Config.BaseURL
	if addr, ok := l.Addr().(*net.TCPAddr); ok && p.Base == "" {
		p.Base = "http://" + net.JoinHostPort("localhost", strconv.Itoa(addr.Port))
	}
	return l, nil
}

// startCore starts what both edge and dispatcher stand on.
func (p *Program) startCore(ctx context.Context) (shared, error) {
	conn := p.Store.Conn
	newWriter := natsconf.NewWriter
	if p.Store.Embedded != nil && p.Config.Store.Sync == natsconf.SyncInterval {
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
	p.Unreadables = newUnreadables(p.Config.Log, p.Clock)
	meter := sessions.NewMeter(usage)
	if p.Config.Now != nil {
		meter.Now = p.Config.Now
	}
	h := shared{
		sessions: sessions.NewStore(sessions.Config{
			Conn: conn, Pending: pending, Completions: completions, Retries: retries, Idempotency: keyed,
			Identities: identities, Meter: meter, Steps: steps, Metrics: p.Registry, Key: p.Store.Key,
			Now:   p.Config.Now,
			Plain: p.Config.PlainSessions, OnUnreadable: p.Unreadables.onUnreadable,
		}),
		mirror:       account.NewMirror(conn, p.Store.Key, p.Config.Log),
		uses:         account.NewUses(conn, p.Config.Log),
		gauge:        natsconf.NewStoreGauge(conn, p.Store.Embedded),
		watch:        sessions.NewWatch(conn),
		stateMonitor: natsconf.NewStateMonitor(conn, p.Config.Log),
		meter:        meter,
		usage:        usage,
	}
	h.writers = []*natsconf.Writer{pending, completions, retries, keyed, identities, h.usage}
	if p.Store.Embedded != nil {
		p.add("watchdog", supervise.New("store watchdog",
			natsconf.NewHealthMonitor(p.Store.Embedded, append(h.writers, events)...)))
	}
	p.Mirror = h.mirror
	h.mirror.Measure(p.Registry)
	h.gauge.Measure(p.Registry)
	h.mirror.Now, p.Store.Accounts.Now = p.Config.Now, p.Config.Now
	mirror := supervise.New("key mirror", h.mirror)
	p.add("core",
		supervise.New("sessions writer", pending), supervise.New("completions writer", completions),
		supervise.New("retries writer", retries), supervise.New("idempotency writer", keyed),
		supervise.New("identities writer", identities), supervise.New("usage writer", h.usage),
		supervise.New("events writer", events),
		mirror, supervise.New("session watch", h.watch), supervise.New("store's standing", h.stateMonitor),
		supervise.New("store gauge", h.gauge))
	if p.Config.Edge { // a dispatcher takes no keys, and its credential writes no audit log
		p.add("accounts", supervise.New("key uses", h.uses),
			supervise.New("audit settler", account.NewSettler(p.Store.Accounts, p.Config.Log)))
	}
	// above the writer that it uses at its stop, below those that count
	p.add("meter", supervise.New("meter", h.meter))
	p.add("steps", supervise.New("steps", steps))
	// Nobody's key is refused because it has not been read yet.
	return h, supervise.Await(ctx, mirror, h.mirror.Loaded())
}

func (p *Program) startDispatcher(ctx context.Context, h shared) error {
	p.Paused = pauses.NewMirror(p.Store.Conn, p.Config.Log)
	mirror := supervise.New("pauses", p.Paused)
	p.add("pauses", mirror)
	// nothing is sent to a paused host because it was not read yet
	if err := supervise.Await(ctx, mirror, p.Paused.Loaded()); err != nil {
		return err
	}
	p.Receivers = newReceivers(p.Config.Alarms.Failures, p.Clock)
	d, err := dispatcher.New(dispatcher.Config{
		OnAttempt: p.Receivers.Ended,
		Conn:      p.Store.Conn, Sessions: h.sessions, Secrets: h.mirror, Policy: p.Config.CallbackPolicy,
		Log: p.Config.Log, Metrics: p.Registry, Tracer: p.tracer(), TraceReceivers: p.Config.TraceReceivers,
		Supervise: supervise.Spec(p.Config.Log), Connections: p.Config.CallbackConnections,
		Attempts: p.Config.CallbackAttempts, AccountAttempts: p.Config.CallbackShare,
		Timeout: p.Config.CallbackTimeout, RetryFor: p.Config.CallbackRetryFor,
		DefaultPolicy: p.Config.DefaultPolicy, Now: p.Config.Now,
		Client: p.Config.CallbackClient(), Listeners: p.listeners(), Pauses: p.Paused,
	})
	if err != nil {
		return err
	}
	p.sender = d
	p.add("dispatcher", supervise.New("dispatcher", whileOpen{h.stateMonitor, d}))
	return nil
}

// publicServer is the name of the actor that serves users and integrators.
const publicServer = "public server"

// startEdge starts the public server, where this process has the role, and the operators' one, and returns
// what it is asked whether it is ready.
func (p *Program) startEdge(ctx context.Context, h shared, public net.Listener) (checks []edge.Check,
	err error) {
	checks = p.readiness(h)
	if public != nil {
		handler, err := p.handler(ctx, h)
		if err != nil {
			return nil, err
		}
		server, err := edge.NewServer(edge.ServerConfig{
			Name: "public", Listen: p.Config.Listen, Listener: public, Handler: handler, Log: p.Config.Log,
		})
		if err != nil {
			return nil, err
		}
		checks = append(checks, edge.Check{
			Name: publicServer, Check: func(ctx context.Context) (string, error) {
				return server.Addr(), server.Check(ctx)
			},
		})
		checks = append(checks, p.nets.checks()...)
		if err := p.serve(ctx, publicServer, server); err != nil {
			return nil, err
		}
	}
	if p.Config.AdminListen == "" {
		return checks, nil
	}
	admin, err := edge.NewServer(edge.ServerConfig{
		Name: "admin", Listen: p.Config.AdminListen,
		Handler: edge.NewAdmin(append(slices.Clone(checks), p.assetChecks()...), p.Registry, p.levels(),
			p.Config.AdminNames...), Log: p.Config.Log, WriteTimeout: edge.AdminWriteTimeout,
	})
	if err != nil {
		return nil, err
	}
	if err := p.serve(ctx, "admin server", admin); err != nil {
		return nil, config.Usage(
			fmt.Errorf("VERIFYD_ADMIN_LISTEN (--admin-listen): %w; choose an address that is free, for example 127.0.0.1:9091", err))
	}
	p.Admin = admin.Addr()
	return checks, nil
}

// serve starts a server and waits until it takes requests.
func (p *Program) serve(ctx context.Context, name string, s *edge.Server) error {
	a := supervise.New(name, s)
	up := s.Ready()
	p.add(name, a)
	return supervise.Await(ctx, a, up)
}

func (p *Program) handler(ctx context.Context, h shared) (http.Handler, error) {
	networks, err := p.networks(ctx)
	if err != nil {
		return nil, err
	}
	p.nets = networks
	p.add("networks", networks.keeper())
	attempts, err := limit.NewAttempts(p.Config.SignIns, p.Registry)
	if err != nil {
		return nil, err
	}
	pages, err := signin.New(signin.Config{
		BaseURL: p.Base, Sessions: h.sessions, Networks: networks.live, Test: networks.test,
		Accounts: requesters{h.mirror}, Attempts: attempts, Key: p.Store.Key, Log: p.Config.Log,
		Metrics: p.Registry, Now: p.Config.Now,
	})
	if err != nil {
		return nil, err
	}
	board, err := p.dashboard(ctx, h, networks, pages, attempts)
	if err != nil {
		return nil, err
	}
	rates, err := limit.NewRates(p.Config.Rate)
	if err != nil {
		return nil, err
	}
	failures, err := limit.NewFailures(p.Config.FailedKeys)
	if err != nil {
		return nil, err
	}
	p.add("rate sharing", supervise.New("rate sharing", limit.NewSharing(rates, p.Store.Conn, p.Config.Now)))
	quota := limit.NewQuota(h.usage, p.Config.Quota)
	p.quota = quota
	p.add("quota", supervise.New("quota", quota)) // before the server, so that it stops after it
	return edge.New(edge.Config{
		BaseURL: p.Base, Keys: h.mirror, Uses: h.uses, Sessions: h.sessions, Turns: h.sessions,
		Lister: h.sessions, Usages: h.sessions, Changes: h.watch,
		Rates: rates, FailedKeys: failures, Quota: quota, Callbacks: p.Config.CallbackPolicy,
		Listeners: p.listeners(),
		StoreHigh: h.gauge.High, StoreLeft: h.stateMonitor.Check, TrustedProxies: p.Config.TrustedProxies,
		TestKeys: p.Config.TestKeys, Routes: append(pages.Routes(), board.Routes()...),
		Nowhere: pages.Nowhere,
		Metrics: p.Registry, Tracer: p.tracer(), Log: p.Config.Log, Now: p.Config.Now,
	})
}

// listeners is where edge and dispatcher meet for callbacks that go to developers' own machines.
func (p *Program) listeners() *devtunnel.Relay { return devtunnel.New(p.Store.Conn) }
