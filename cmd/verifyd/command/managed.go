package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/client/manage"
)

// Managed is shared by the commands that also work from another machine.
type Managed struct {
	config.ServerSettings `embed:"" group:"server"`
	Store                 `embed:""`
}

// serverTimeout is longer than a service waits for its store.
const serverTimeout = 45 * time.Second

// Manage calls do with the service that is named, or else with the store.
func (m Managed) Manage(ctx context.Context, c Console, do func(Manager) error) error {
	if m.Server == "" {
		return m.Use(ctx, c, onStore(do))
	}
	var f config.Faults
	cfg := m.Service(&f)
	if err := f.OwnErr(); err != nil {
		return config.Usage(err)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
	}
	defer transport.CloseIdleConnections()
	client, err := manage.New(cfg.URL, cfg.Token, &http.Client{Transport: transport, Timeout: serverTimeout})
	if err != nil {
		return config.Usage(fmt.Errorf("--server or --token: %w", err))
	}
	return do(Manager{Client: client})
}

// Begin is Manage for a command that creates the store if there is none, because its flag --new-store is set.
func (m Managed) Begin(ctx context.Context, c Console, do func(Manager) error) error {
	return m.reach(ctx, c, store.ToBegin, onStore(do))
}

// OnStoreOnly refuses a flag that does not work with a service on another machine, if one is named. why is
// the reason.
func (m Managed) OnStoreOnly(flag, why string) error { return storeOnly(m.Server, flag, why) }

// storeOnly refuses what a service on another machine does not accept.
func storeOnly(server, what, why string) error {
	if server == "" {
		return nil
	}
	return config.Usage(fmt.Errorf("%s works only on the store: %s. On a machine of the service, run it "+
		"without --server (VERIFYD_SERVER)", what, why))
}

// Local is shared by the commands that work only on the store, although others also work from another
// machine. If a service there is named they refuse, since the local store is another one.
type Local struct {
	Store `embed:""`

	Server string `env:"VERIFYD_SERVER" hidden:"" help:"Refused: this works only on the store."`
}

// WhyRecords is why a command that reads or writes the records themselves works only on the store.
const WhyRecords = "it reads or writes the records themselves"

// Config is that of StoreSettings, for commands that open the store in their own way.
func (l Local) Config(f *config.Faults) config.Store {
	if l.Server != "" {
		f.Add("server", "set, but this command works only on the store",
			"run it without, on a machine of the service")
	}
	return l.StoreSettings.Config(f)
}

// Use is Store.Use; why is the reason why no service accepts the command.
func (l Local) Use(ctx context.Context, c Console, why string, do func(*store.Store) error) error {
	if err := storeOnly(l.Server, "this command", why); err != nil {
		return err
	}
	return l.Store.Use(ctx, c, do)
}

// UseAccounts is Store.UseAccounts; why is the reason why no service accepts the command.
func (l Local) UseAccounts(ctx context.Context, c Console, why string,
	do func(*accountstore.Store) error) error {
	return l.Use(ctx, c, why, func(st *store.Store) error { return do(st.Accounts) })
}
