package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/dispatcher"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/account/keyuse"
	"verifyd/edge/account/notice"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
	"verifyd/sessions/pauses"
	"verifyd/sessions/stats"
	sessionstore "verifyd/sessions/store"
)

// New returns the program of a configuration. Nothing is started yet.
func New(c config.Config) *Program {
	p := &Program{
		Config: c, Registry: prometheus.NewRegistry(), Ready: make(chan struct{}),
		actors: map[string]*supervise.Actor{}, added: map[string]*supervise.Actor{},
	}
	p.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p
}

// Serve starts everything, runs until ctx ends, and stops everything, outside in: first the edge, which
// answers the requests it has accepted; then the dispatcher, which stores the results of the callbacks it has
// sent; then the writers; then the store. An error means that the start failed, and nothing is left running.
func (p *Program) Serve(ctx context.Context) error {
	defer p.stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	close(p.Ready)
	debug.FreeOSMemory() // memory that only the start needed: settings, templates, the texts of all languages
	select {
	case <-ctx.Done():
		p.Config.Log.Info().Dur("within", StopWithin(p.Config)).Msg("stopping")
		return nil
	case <-p.Store.Conn.Closed():
		return errors.New("the connection to NATS ended for good; it should never")
	}
}

const (
	// stopStore is how long the stop of everything that uses the store may take: a result that is stored
	// while the store hardly answers, counts, and the messages that the writers still hold.
	stopStore = 35 * time.Second
	// stopAttempt is the time that a dispatcher grants an attempt in addition to the callback's time-out.
	stopAttempt = 5 * time.Second
)

// StopWithin is how long the program may take to stop, whatever receivers, browsers and the store do. It
// takes milliseconds if nothing is under way. docs/OPERATING.md states it.
func StopWithin(c config.Config) (total time.Duration) {
	total = stopStore
	if c.Edge {
		total += web.DefaultDrainTimeout
	}
	if c.Dispatcher {
		total += c.CallbackTimeout + stopAttempt
	}
	if c.CopyTo != "" {
		total += transfer.CopyStop
	}
	return total
}

func (p *Program) stop() {
	for _, l := range slices.Backward(p.layers) {
		l.Stop()
	}
	for _, o := range p.opened {
		_ = o.Close()
	}
	if p.Store != nil {
		p.Store.Close()
	}
}

func (p *Program) start(ctx context.Context) (err error) {
	if err := check.RefuseHere(p.Config); err != nil {
		return err
	}
	public, err := p.listen()
	if err != nil {
		return err
	}
	if err := p.observe(); err != nil {
		return err
	}
	if err := p.startAdded(ctx); err != nil {
		return err
	}
	if p.Store, err = store.Open(ctx, p.Config.Store, p.Config.Log, store.ToServe); err != nil {
		return err
	}
	p.Store.Conn.Measure(p.Registry)
	certificate.Measure(p.Registry, func() []certificate.Certificate { return certificates(p) })
	if servers := p.Store.Conn.Servers; servers != nil {
		p.add("NATS servers", servers)
	}
	if err := p.startAdded(ctx); err != nil {
		return err
	}
	if p.own = p.Config.Now; p.own == nil {
		p.own, p.Config.Now = time.Now, p.Store.Conn.Clock.Now
	}
	if err := check.RefuseThere(ctx, p.Store.Conn, p.Config); err != nil {
		return err
	}
	if p.Store.Server != nil {
		p.actors[p.Store.Server.Name] = p.Store.Server
	}
	if err := p.addCopier(ctx); err != nil {
		return err
	}
	return startRoles(ctx, p, public)
}

// startRoles starts what this process does, on a store that is open.
func startRoles(ctx context.Context, p *Program, public net.Listener) error {
	p.addCore()
	addAccounts(p)
	addObserver(p)
	if p.Config.Dispatcher {
		if err := p.addDispatcher(); err != nil {
			return err
		}
	}
	checks := p.readiness()
	if err := p.startAdded(ctx); err != nil { // before the edge, whose networks may wait for the store
		return err
	}
	if public != nil {
		ofEdge, err := p.addEdge(ctx, public)
		if err != nil {
			return err
		}
		checks = append(checks, ofEdge...)
	}
	if err := p.startAdded(ctx); err != nil {
		return err
	}
	if err := startAdmin(ctx, p, checks); err != nil {
		return err
	}
	measureReady(p, checks)
	p.addAlarms()
	addNotices(p)
	p.add("presence", fleet.NewPresence(p.Store.Conn, presenceOf(p, checks), p.Config.Log))
	return p.startAdded(ctx)
}

// listen takes the public port before anything else starts: a port in use is the most common fault of a
// start, and the base URL may depend on the port.
func (p *Program) listen() (net.Listener, error) {
	if !p.Config.Edge {
		return nil, nil //nolint:nilnil // no edge, no listener
	}
	l, err := net.Listen("tcp", p.Config.Listen)
	if err != nil {
		return nil, config.Usage(
			fmt.Errorf("VERIFYD_LISTEN (--listen): %w; choose an address that is free, for example "+
				"127.0.0.1:8081", err))
	}
	p.opened = append(p.opened, l)
	p.Base = p.Config.BaseURL
	if addr, ok := l.Addr().(*net.TCPAddr); ok && p.Base == "" {
		p.Base = "http://" + net.JoinHostPort("localhost", strconv.Itoa(addr.Port))
	}
	return l, nil
}

// addCore adds what both edge and dispatcher depend on.
func (p *Program) addCore() {
	conn := p.Store.Conn
	newWriter, newSingle := natsconf.NewWriter, natsconf.NewSingleWriter
	if p.Store.Embedded != nil && !syncsEach(p) {
		newWriter = newSingle
	}
	add := func(name string, w *natsconf.Writer) *natsconf.Writer {
		p.add(name, w)
		return w
	}
	pending := add("sessions writer", newWriter(conn, topology.BucketStream(topology.BucketSessions)))
	completions := add("completions writer", newWriter(conn, topology.StreamCompletions))
	retries := add("retries writer", newSingle(conn, topology.StreamRetries))
	identities := add("identities writer",
		newSingle(conn, topology.BucketStream(topology.BucketIdentities)))
	keyed := add("idempotency writer", newWriter(conn, topology.BucketStream(topology.BucketIdempotency)))
	p.usage = add("usage writer", newSingle(conn, topology.StreamUsage))
	events := add("events writer", newSingle(conn, topology.StreamEvents))
	steps := sessionstore.NewSteps(conn, events)
	p.Unreadables = newUnreadables(p.Config.Log, p.Clock)
	meter := stats.NewMeter(p.usage)
	meter.Now = p.Config.Now
	p.sessions = sessionstore.New(sessionstore.Config{
		Conn: conn, Pending: pending, Completions: completions, Retries: retries, Idempotency: keyed,
		Identities: identities, Meter: meter, Steps: steps, Metrics: p.Registry, Key: p.Store.Ring,
		Now: p.Config.Now, Plain: p.Config.PlainSessions, OnUnreadable: p.Unreadables.onUnreadable,
	})
	p.gauge = storestate.NewGauge(conn, p.Store.Embedded)
	p.watch = sessionstore.NewWatch(conn)
	p.stateMonitor = storestate.NewMonitor(conn, p.Config.Log)
	p.writers = []*natsconf.Writer{pending, completions, retries, keyed, identities, p.usage}
	if p.Store.Embedded != nil {
		p.add("store watchdog",
			storestate.NewHealthMonitor(p.Store.Embedded.Fail, append(p.writers, events)...))
		addScrubber(p)
	}
	p.gauge.Measure(p.Registry)
	p.add("clock", storetime.NewKeeper(conn.Clock, p.Config.Log))
	p.add("session watch", p.watch)
	p.add("store's standing", p.stateMonitor)
	p.add("store gauge", p.gauge)
	p.add("meter", meter)
	p.add("steps", steps)
}

// addAccounts adds what follows accounts, and what keeps their notices until they are stored.
func addAccounts(p *Program) {
	conn := p.Store.Conn
	p.Store.Accounts.Now = p.Config.Now
	p.Mirror = keymirror.New(conn, p.Store.Ring, p.Config.Log)
	p.Mirror.Measure(p.Registry)
	p.Mirror.Now = p.Config.Now
	p.add("key mirror", p.Mirror).Up = p.Mirror.Loaded() // no key is refused because it was not read yet
	// a dispatcher accepts no keys, and its credential writes no audit log
	if p.Config.Edge {
		p.uses = keyuse.New(conn, p.Config.Log)
		p.add("key uses", p.uses)
		p.add("account repairer", accountstore.NewRepairer(p.Store.Accounts, p.Config.Log))
	}
	p.notices = notice.NewQueue(notice.NewStore(conn), p.Config.Log)
	p.add("notice queue", p.notices)
}

// syncsEach reports whether the store is embedded, and syncs each message before it is acknowledged. Of
// external servers that is not known: by themselves they do not.
func syncsEach(p *Program) bool {
	return p.Store.Embedded != nil && p.Config.Store.Sync != embedded.SyncInterval
}

func (p *Program) addDispatcher() error {
	p.Paused = pauses.NewMirror(p.Store.Conn, p.Config.Log)
	p.add("pauses", p.Paused).Up = p.Paused.Loaded() // nothing is sent to a paused host that was not read yet
	p.Receivers = newReceivers(p.Config.Alarms.Failures, p.Clock)
	p.Receivers.offer = p.notices.Offer
	d, err := dispatcher.New(dispatcher.Config{
		OnAttempt: p.Receivers.Ended,
		Conn:      p.Store.Conn, Sessions: p.sessions, Secrets: p.Mirror, Policy: p.Config.CallbackPolicy,
		Log: p.Config.Log, Metrics: p.Registry, Tracer: tracerOf(p), TraceReceivers: p.Config.TraceReceivers,
		Supervise: supervise.Spec(p.Config.Log), Connections: p.Config.CallbackConnections,
		Attempts: p.Config.CallbackAttempts, AccountAttempts: p.Config.CallbackShare,
		Timeout: p.Config.CallbackTimeout, RetryFor: p.Config.CallbackRetryFor,
		EndBefore:     config.RetentionSpare / 2,
		DefaultPolicy: p.Config.DefaultPolicy, Now: p.Config.Now,
		Client: p.Config.CallbackClient(p.Config.CallbackTimeout), Listeners: devtunnel.New(p.Store.Conn),
		Pauses: p.Paused, LosesFacts: !syncsEach(p),
	})
	if err != nil {
		return err
	}
	p.sender = d
	p.add("dispatcher", whileOpen{p.stateMonitor, d})
	return nil
}
