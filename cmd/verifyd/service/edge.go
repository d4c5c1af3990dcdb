package service

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/cmd/verifyd/version"
	"verifyd/edge/account/signing"
	"verifyd/edge/api"
	"verifyd/edge/dashboard"
	"verifyd/edge/guide"
	"verifyd/edge/limit"
	"verifyd/edge/manage"
	"verifyd/edge/places"
	"verifyd/edge/sdk"
	"verifyd/edge/signin"
	"verifyd/edge/web"
	"verifyd/natsconf/devtunnel"
)

// startEdge starts the public server, if this process has the role, and the operators' one, and returns the
// checks that decide whether it is ready.
func (p *Program) startEdge(ctx context.Context, h shared, public net.Listener) (checks []web.Check,
	err error) {
	checks = p.readiness(h)
	if public != nil {
		handler, err := p.handler(ctx, h)
		if err != nil {
			return nil, err
		}
		server, err := web.NewServer(web.ServerConfig{
			Name: "public", Listen: p.Config.Listen, Listener: public, Handler: handler, Log: p.Config.Log,
		})
		if err != nil {
			return nil, err
		}
		checks = append(checks, web.Check{
			Name: publicServer, Check: func() (string, error) {
				return server.Addr(), server.Check()
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
	admin, err := web.NewServer(web.ServerConfig{
		Name: "admin", Listen: p.Config.AdminListen,
		Handler: web.NewAdmin(append(slices.Clone(checks), assetChecks(p)...), p.Registry, levelsOf(p),
			p.Config.AdminNames...), Log: p.Config.Log, WriteTimeout: web.AdminWriteTimeout,
	})
	if err != nil {
		return nil, err
	}
	if err := p.serve(ctx, "admin server", admin); err != nil {
		return nil, config.Usage(
			fmt.Errorf("VERIFYD_ADMIN_LISTEN (--admin-listen): %w; choose an address that is free, for "+
				"example 127.0.0.1:9091", err))
	}
	p.Admin = admin.Addr()
	return checks, nil
}

// serve starts a server and waits until it accepts requests.
func (p *Program) serve(ctx context.Context, name string, s *web.Server) error {
	a := supervise.New(name, s)
	up := s.Ready()
	p.add(name, a)
	return supervise.Await(ctx, a, up)
}

func (p *Program) handler(ctx context.Context, h shared) (http.Handler, error) {
	networks, err := openNetworks(ctx, p)
	if err = cmp.Or(err, networks.lack()); err != nil {
		return nil, err
	}
	p.nets = networks
	p.add("networks", networks.keeper(p.Config.Log))
	attempts, err := limit.NewAttempts(p.Config.SignIns, p.Registry)
	if err != nil {
		return nil, err
	}
	store, err := newWaiting(p)
	if err != nil {
		return nil, err
	}
	pages, err := signin.New(signin.Config{
		BaseURL: p.Base, Sessions: h.sessions, Networks: networks.live, Test: networks.test,
		Accounts: requesters{h.mirror}, Attempts: attempts, Store: store, Key: p.Store.Ring,
		Log:     p.Config.Log,
		Metrics: p.Registry, Now: p.Config.Now,
	})
	if err != nil {
		return nil, err
	}
	board, err := p.dashboard(h, networks, pages, attempts, store)
	if err != nil {
		return nil, err
	}
	static, err := p.static()
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
	managed, err := newManage(p, h, networks, store, failures)
	if err != nil {
		return nil, err
	}
	p.add("rate sharing", supervise.New("rate sharing", limit.NewSharing(rates, p.Store.Conn, p.Config.Now)))
	quota := limit.NewQuota(h.usage, p.Config.Quota)
	p.quota = quota
	p.add("quota", supervise.New("quota", quota)) // before the server, so that it stops after it
	return api.New(api.Config{
		BaseURL: p.Base, Keys: h.mirror, Signing: signing.New(p.Store.Ring), Uses: h.uses,
		Sessions: h.sessions, Reservations: h.sessions, Lister: h.sessions, Usages: h.sessions,
		Changes: h.watch,
		Rates:   rates, FailedKeys: failures, Quota: quota, Callbacks: p.Config.CallbackPolicy,
		Listeners: p.listeners(),
		Store:     store,
		StoreHigh: h.gauge.High, StoreLeft: h.stateMonitor.Check, TrustedProxies: p.Config.TrustedProxies,
		Levels: p.Config.Levels, Proves: pages.Proves, Networks: networks.ids(),
		TestKeys: p.Config.TestKeys,
		Routes:   slices.Concat(pages.Routes(), board.Routes(), managed.Routes(), static),
		Nowhere:  nowhere(p.Base, board, pages),
		Metrics:  p.Registry, Tracer: tracerOf(p), Log: p.Config.Log, Now: p.Config.Now,
	})
}

// nowhere answers people whose address leads to no page: integrators below the dashboard and the documents,
// users elsewhere.
func nowhere(base string, board *dashboard.Handler, pages *signin.Handler) web.Page {
	_, prefix, _ := web.ParseBaseURL(base) // it was parsed before
	return func(w http.ResponseWriter, r *http.Request, status int) {
		switch first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, prefix+"/"), "/"); first {
		case "dashboard", "docs":
			board.Nowhere(w, r, status)
		default:
			pages.Nowhere(w, r, status)
		}
	}
}

// newManage returns the management interface.
func newManage(p *Program, h shared, ns networks, store *places.Waiting,
	failures *limit.Failures) (*manage.Handler, error) {
	return manage.New(manage.Config{
		BaseURL: strings.TrimSuffix(p.Base, "/"), Accounts: p.Store.Accounts, Conn: p.Store.Conn,
		Key: p.Store.Ring, Directory: h.mirror,
		Store: store, Networks: ns.managed, FailedKeys: failures, Now: p.Config.Now,
	})
}

// static are the routes whose answers are the same for everybody: the SDKs that fit this service, and the
// documents.
func (p *Program) static() ([]web.Route, error) {
	base, prefix, err := web.ParseBaseURL(p.Base)
	if err != nil {
		return nil, err
	}
	kits, err := sdk.New(version.Number(), base, prefix)
	if err != nil {
		return nil, err
	}
	documents, err := guide.New(base, prefix)
	if err != nil {
		return nil, err
	}
	return slices.Concat(kits.Routes(), documents.Routes()), nil
}

// listeners connects edge and dispatcher for callbacks that go to developers' own machines.
func (p *Program) listeners() *devtunnel.Relay { return devtunnel.New(p.Store.Conn) }

// newWaiting is how requests wait for the store.
func newWaiting(p *Program) (*places.Waiting, error) {
	w := places.NewWaiting(p.storeWait(), places.DefaultWaiting)
	return w, w.Measure(p.Registry)
}

// storeWait is how long a request waits for the store.
func (p *Program) storeWait() time.Duration {
	return cmp.Or(p.Config.StoreWait, places.DefaultStoreWait)
}
