package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/signing"
	"verifyd/edge/client/manage"
	"verifyd/sessions/urlpolicy"
)

// Manager is what commands do with accounts, on the store or on a service on another machine: they do not
// know which. An account is changed by its id. The actor is the operator at the command line, or the operator
// token.
type Manager interface {
	KeyManager
	SecretManager
	MemberManager

	// Own returns the account that a command is to change, by its name or its id; see OwnAccount.
	Own(ctx context.Context, name string) (account.Account, error)
	// Show returns everything that is shown of an account, by its name or its id.
	Show(ctx context.Context, name string) (Shown, error)
	// Audit returns the newest records of an account, by its name or its id, from a cursor on; next is empty
	// after the last one. The records of a deleted account are read by its id.
	Audit(ctx context.Context, name, cursor string, limit int) (records []Record, next string, err error)
	List(ctx context.Context) ([]Listed, error)
	Create(ctx context.Context, name string, grantName bool) (account.Account, error)
	Rename(ctx context.Context, id, name string, grantName bool) (account.Account, error)
	SetVerified(ctx context.Context, id, name string, verified bool) error
	SetQuota(ctx context.Context, id string, quota int64) error
	SetBinding(ctx context.Context, id string, to accountstore.Binding) error
	SetReturnURL(ctx context.Context, id, to string) error
	SetColour(ctx context.Context, id, colour string) error
	SetNoticeURL(ctx context.Context, id string, to urlpolicy.URL) error
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

// Shown is everything that is shown of an account, without a secret.
type Shown struct {
	account.Account // with neither its secrets nor the path of NoticeURL

	NoticeHost string
	PublicKeys []signing.PublicKey // of its signing secrets, the current one first
	Links      []grant.Grant       // login links
	Keys       []ListedKey
}

// Record is an entry of an account's audit log.
type Record struct {
	At            time.Time
	Who, What, On string
	Detail        map[string]string
}

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
		return m.UseAccounts(ctx, c, func(s *accountstore.Store) error { return do(newStored(s)) })
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
	return do(newRemote(client))
}

// Begin is Manage for a command that creates the store if there is none, because its flag --new-store is set.
func (m Managed) Begin(ctx context.Context, c Console, do func(Manager) error) error {
	return m.BeginAccounts(ctx, c, func(s *accountstore.Store) error { return do(newStored(s)) })
}

// OnStoreOnly refuses a flag that does not work with a service on another machine, if one is named. why is
// the reason.
func (m Managed) OnStoreOnly(flag, why string) error { return storeOnly(m.Server, flag, why) }

// storeOnly refuses what a service on another machine does not accept.
func storeOnly(server, what, why string) error {
	if server == "" {
		return nil
	}
	return config.Usage(fmt.Errorf("%s works on the store alone: %s. Or run it on a machine of the service, "+
		"without --server (VERIFYD_SERVER)", what, why))
}

// Local is shared by the commands that work only on the store, although others on accounts also work from
// another machine. If a service there is named they refuse, since the local store is another one.
type Local struct {
	Store `embed:""`

	Server string `env:"VERIFYD_SERVER" hidden:"" help:"Refused: this works on the store alone."`
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
