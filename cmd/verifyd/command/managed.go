package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/client/manage"
)

// Manager is what commands do with accounts, whether they reach the store or a service on another machine:
// they do not know which. An account is changed by its id. Who does it is the operator at the command line,
// or the operator token.
type Manager interface {
	KeyManager
	MemberManager

	// Own returns the account that a command is to change, by its name or its id; see OwnAccount.
	Own(ctx context.Context, name string) (account.Account, error)
	List(ctx context.Context) ([]Listed, error)
	Create(ctx context.Context, name string, grantName bool) (account.Account, error)
	Rename(ctx context.Context, id, name string, grantName bool) (account.Account, error)
	SetVerified(ctx context.Context, id, name string, verified bool) error
	SetQuota(ctx context.Context, id string, quota int64) error
	SetBinding(ctx context.Context, id string, to accountstore.Binding) error
	SetReturnURL(ctx context.Context, id, to string) error
	SetColour(ctx context.Context, id, colour string) error
	Disable(ctx context.Context, id, reason string) error
	Enable(ctx context.Context, id string) (account.Account, error)
	AskDeletion(ctx context.Context, id string) (account.Account, error)
	Restore(ctx context.Context, id string) (account.Account, error)
}

// Listed is an account in a list.
type Listed struct {
	account.Account

	People, ActiveKeys int
}

// Managed is what the commands share that work from another machine, too.
type Managed struct {
	config.ServerSettings `embed:"" group:"server"`
	Store                 `embed:""`
}

// serverTimeout is longer than a service waits for its store.
const serverTimeout = 45 * time.Second

// Manage runs do with the service that is named, or else with the store.
func (m Managed) Manage(ctx context.Context, c Console, do func(Manager) error) error {
	if m.Server == "" {
		return m.UseAccounts(ctx, c, func(s *accountstore.Store) error { return do(stored{s}) })
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
	return do(remote{client})
}

// Begin is Manage for a command that was told, by its flag --new-store, to make the store where there is
// none.
func (m Managed) Begin(ctx context.Context, c Console, do func(Manager) error) error {
	return m.BeginAccounts(ctx, c, func(s *accountstore.Store) error { return do(stored{s}) })
}

// OnStoreOnly refuses a flag that a service on another machine cannot take.
func (m Managed) OnStoreOnly(flag string, given bool) error {
	if m.Server == "" || !given {
		return nil
	}
	return config.Usage(errors.New(flag + " works on the store alone; run it on a machine of the service, " +
		"without --server (VERIFYD_SERVER)"))
}
