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

// addEdge adds the public server, and returns the checks of it.
func (p *Program) addEdge(ctx context.Context, public net.Listener) ([]web.Check, error) {
	handler, err := p.handler(ctx)
	if err != nil {
		return nil, err
	}
	server, err := web.NewServer(web.ServerConfig{
		Name: "public", Listen: p.Config.Listen, Listener: public, Handler: handler, Log: p.Config.Log,
	})
	if err != nil {
		return nil, err
	}
	p.add(publicServer, server).Up = server.Ready()
	return append([]web.Check{{
		Name: publicServer, Check: func() (string, error) { return server.Addr(), server.Check() },
	}}, p.nets.checks()...), nil
}

// startAdmin starts the operators' server, which shows the checks.
func startAdmin(ctx context.Context, p *Program, checks []web.Check) error {
	if p.Config.AdminListen == "" {
		return nil
	}
	admin, err := web.NewServer(web.ServerConfig{
		Name: "admin", Listen: p.Config.AdminListen,
		Handler: web.NewAdmin(append(slices.Clone(checks), assetChecks(p)...), p.Registry, levelsOf(p),
			p.Config.AdminNames...), Log: p.Config.Log, WriteTimeout: web.AdminWriteTimeout,
	})
	if err != nil {
		return err
	}
	p.add(adminServer, admin).Up = admin.Ready()
	if err := p.startAdded(ctx); err != nil {
		return config.Usage(
			fmt.Errorf("VERIFYD_ADMIN_LISTEN (--admin-listen): %w; choose an address that is free, for "+
				"example 127.0.0.1:9091", err))
	}
	p.Admin = admin.Addr()
	return nil
}

func (p *Program) handler(ctx context.Context) (http.Handler, error) {
	var err error
	p.nets, err = openNetworks(ctx, p)
	if err = cmp.Or(err, p.nets.lack()); err != nil {
		return nil, err
	}
	p.add("networks keeper", p.nets.keeper(p.Config.Log))
	attempts, err := limit.NewAttempts(p.Config.SignIns, p.Registry)
	if err != nil {
		return nil, err
	}
	store, err := newWaiting(p)
	if err != nil {
		return nil, err
	}
	pages, err := signin.New(signin.Config{
		BaseURL: p.Base, Sessions: p.sessions, Networks: p.nets.live, Test: p.nets.test,
		Accounts: requesters{p.Mirror}, Attempts: attempts, Store: store, Key: p.Store.Ring,
		Log:     p.Config.Log,
		Metrics: p.Registry, Now: p.Config.Now,
	})
	if err != nil {
		return nil, err
	}
	board, err := p.dashboard(pages, attempts, store)
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
	managed, err := newManage(p, store, failures)
	if err != nil {
		return nil, err
	}
	p.add("rate sharing", limit.NewSharing(rates, p.Store.Conn, p.Config.Now))
	p.quota = limit.NewQuota(p.usage, p.Config.Quota)
	p.add("quota", p.quota)
	return api.New(api.Config{
		BaseURL: p.Base, Keys: p.Mirror, Signing: signing.New(p.Store.Ring), Uses: p.uses,
		Sessions: p.sessions, Reservations: p.sessions, Lister: p.sessions, Usages: p.sessions,
		Changes: p.watch,
		Rates:   rates, FailedKeys: failures, Quota: p.quota, Callbacks: p.Config.CallbackPolicy,
		Listeners: devtunnel.New(p.Store.Conn),
		Store:     store,
		StoreHigh: p.gauge.High, StoreLeft: p.stateMonitor.Check, TrustedProxies: p.Config.TrustedProxies,
		Levels: p.Config.Levels, Proves: pages.Proves, Networks: p.nets.ids(),
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
func newManage(p *Program, store *places.Waiting, failures *limit.Failures) (*manage.Handler, error) {
	return manage.New(manage.Config{
		BaseURL: strings.TrimSuffix(p.Base, "/"), Accounts: p.Store.Accounts, Conn: p.Store.Conn,
		Key: p.Store.Ring, Directory: p.Mirror,
		Store: store, Networks: p.nets.managed, FailedKeys: failures, Now: p.Config.Now,
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

// newWaiting is how requests wait for the store.
func newWaiting(p *Program) (*places.Waiting, error) {
	w := places.NewWaiting(p.storeWait(), places.DefaultWaiting)
	return w, w.Measure(p.Registry)
}

// storeWait is how long a request waits for the store.
func (p *Program) storeWait() time.Duration {
	return cmp.Or(p.Config.StoreWait, places.DefaultStoreWait)
}
