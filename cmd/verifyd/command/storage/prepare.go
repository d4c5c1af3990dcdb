package storage

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/version"
	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/serverconf"
	"verifyd/natsconf/topology"
)

// trialRenew is the remaining validity below which a trial's certificate is replaced.
const trialRenew = 7 * 24 * time.Hour

// accountsFile is the servers' configuration of the account, from which a repeat reads the limit.
const accountsFile = "accounts.conf"

// Prepare creates what a service on several machines shares: secrets, credentials, the NATS servers'
// configuration.
type Prepare struct {
	Dir         string   `arg:"" help:"Where to put it: a folder for each role (edge, dispatcher, operator, monitor) with nats.nk and secret.key, and nats with the servers' configuration."`
	NATSServers []string `name:"nats-servers" sep:"," placeholder:"HOST" help:"The names by which the NATS servers reach each other, for the routes between them; default: a single server."`
	StoreLimit  string   `placeholder:"SIZE" help:"How much verifyd may store on all NATS servers together, all copies counted, for example 60GiB for three servers with 20 each. A repeat without it keeps the last value. Without any limit, verifyd cannot tell how full the store is."`
	Rotate      bool     `help:"Give each role a new nats.nk. The servers let in the old users, too, until --retire."`
	Retire      bool     `help:"End the users of before --rotate. With --rotate, they end at once."`
	Trial       []string `sep:"," placeholder:"HOST" help:"Also create a certificate for a proxy with these names (proxy/cert.pem and key.pem), by an authority that nobody can use again (trust/ca.pem). Only for trials."`
}

// Run creates what is missing. A repeat keeps the secrets, and the limit unless another is given; the NATS
// configuration follows this version's table of permissions.
func (p Prepare) Run(c command.Console) error {
	limit, err := p.storeLimit()
	if err != nil {
		return err
	}
	users, err := p.users()
	if err != nil {
		return err
	}
	if err := p.masterKey(); err != nil {
		return err
	}
	accounts, err := serverconf.Accounts(users, limit)
	if err != nil {
		return err
	}
	if err := put(p.Dir, "nats", accountsFile, accounts); err != nil {
		return err
	}
	if err := serverconf.Place(p.Dir); err != nil { // their users are in the configuration now
		return err
	}
	if len(p.NATSServers) > 0 {
		password, err := kept(p.Dir, "nats", "routes.secret", rand.Text)
		if err != nil {
			return err
		}
		if err := put(p.Dir, "nats", "routes.conf",
			serverconf.Routes(p.NATSServers, password)); err != nil {
			return err
		}
	}
	if len(p.Trial) > 0 {
		if err := p.trial(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.Err,
		"%s is prepared. Keep a copy of the master key (%s) away from these machines: without it "+
			"nothing sealed can be opened.\n%s",
		p.Dir, filepath.Join(p.Dir, string(permission.RoleOperator), config.SecretFile), p.next(users))
	return err
}

// next says what to do while users of before a rotation are let in.
func (p Prepare) next(users map[permission.Role]serverconf.Users) string {
	for _, u := range users {
		if len(u.Old) > 0 {
			return "Old users are let in, too: let the servers reload, give every process its new nats.nk, " +
				"then run it with --retire and let the servers reload again.\n"
		}
	}
	return ""
}

// users returns the users of each role, after what the flags change of them.
func (p Prepare) users() (map[permission.Role]serverconf.Users, error) {
	if p.Rotate {
		if err := serverconf.Rotate(p.Dir); err != nil {
			return nil, err
		}
	}
	if p.Retire {
		if err := serverconf.Retire(p.Dir); err != nil {
			return nil, err
		}
	}
	return serverconf.EnsureUsers(p.Dir)
}

// storeLimit returns the limit of the flag, or else that of the existing configuration; 0: none.
func (p Prepare) storeLimit() (int64, error) {
	if p.StoreLimit != "" {
		limit, err := config.ParseBytes(p.StoreLimit)
		if err != nil {
			return 0, config.Usage(fmt.Errorf("--store-limit: %w; for example 60GiB", err))
		}
		return limit, nil
	}
	before, err := os.ReadFile(filepath.Join(p.Dir, "nats", accountsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("look for the store's limit: %w", err)
	}
	return serverconf.StoreLimit(before), nil
}

// masterKey writes the same master key for every role: the existing one, or a new one.
func (p Prepare) masterKey() error {
	key, err := kept(p.Dir, string(permission.RoleOperator), config.SecretFile, func() string {
		return secretbox.NewKey().Encode()
	})
	if err != nil {
		return err
	}
	if _, err := secretbox.ParseKey(key); err != nil {
		return fmt.Errorf("the master key in %s: %w",
			filepath.Join(p.Dir, string(permission.RoleOperator), config.SecretFile), err)
	}
	for _, role := range []permission.Role{permission.RoleEdge, permission.RoleDispatcher} {
		if err := put(p.Dir, string(role), config.SecretFile, []byte(key+"\n")); err != nil {
			return err
		}
	}
	return nil
}

// trial creates a certificate for a month. Its authority's key is never stored, so that trusting the
// authority means trusting only this certificate.
func (p Prepare) trial() error {
	if cert, err := tls.LoadX509KeyPair(filepath.Join(p.Dir, "proxy", "cert.pem"),
		filepath.Join(p.Dir, "proxy", "key.pem")); err == nil && holds(cert, p.Trial) {
		return nil
	}
	ca, err := localca.New()
	if err != nil {
		return err
	}
	cert, err := ca.Issue(localca.Certificate{Hosts: p.Trial})
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return fmt.Errorf("encode the trial's key: %w", err)
	}
	return errors.Join(
		put(p.Dir, "proxy", "cert.pem", pem.EncodeToMemory(&pem.Block{
			Type: "CERTIFICATE", Bytes: cert.Certificate[0],
		})),
		put(p.Dir, "proxy", "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
		put(p.Dir, "trust", "ca.pem", ca.PEM()),
	)
}

// holds reports whether a certificate is valid for all names, for a while.
func holds(cert tls.Certificate, hosts []string) bool {
	for _, h := range hosts {
		if cert.Leaf == nil || cert.Leaf.VerifyHostname(h) != nil ||
			time.Until(cert.Leaf.NotAfter) < trialRenew {
			return false
		}
	}
	return true
}

// kept returns the content of a file, and creates the file if it is missing.
func kept(dir, folder, name string, fresh func() string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, folder, name)) //nolint:gosec // the operator's own folder
	if errors.Is(err, fs.ErrNotExist) {
		made := fresh()
		return made, put(dir, folder, name, []byte(made+"\n"))
	}
	return strings.TrimSpace(string(b)), err
}

// put is serverconf.Put for a file in one of the folders.
func put(dir, folder, name string, content []byte) error {
	return serverconf.Put(filepath.Join(dir, folder, name), content) //nolint:wrapcheck // it names the file
}

// Apply creates and updates what verifyd keeps on external NATS servers, with the operator's credential.
type Apply struct {
	Finish               bool `help:"Also remove what only builds before 0.10.0 need: roll-ups, and earlier revisions. Those builds no longer start then. It refuses while a process of another build runs."`
	config.StoreSettings `embed:"" group:"store"`
}

// Run creates the topology, as each start of the service does if its credential may. A repeat changes
// nothing.
func (a Apply) Run(ctx context.Context, c command.Console) error {
	var f config.Faults
	cfg := a.Config(&f)
	if cfg.NATSURL == "" {
		f.Add("nats-url", "not set; the service creates an embedded store itself",
			"set it to the external servers")
	}
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	st, err := store.Open(ctx, cfg, zerolog.New(c.Err).Level(zerolog.WarnLevel), store.ToServe)
	if err != nil {
		return err
	}
	defer st.Close()
	if a.Finish {
		if err := finish(ctx, st.Conn, cfg.Topology); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(c.Err, "The servers hold what verifyd needs.")
	return err
}

// finish removes what only older builds need, if none runs.
func finish(ctx context.Context, conn *natsconf.Conn, o topology.Options) error {
	all, err := fleet.Everyone(ctx, conn)
	if err != nil {
		return err
	}
	for _, p := range all {
		if number, _, _ := strings.Cut(p.Version, "-"); number != version.Number() {
			return fmt.Errorf("a process of verifyd %s runs, and this is %s: upgrade or stop it first "+
				"(verifyd status names it)", p.Version, version.Text())
		}
	}
	return provision.Ensurer{Conn: conn, Topology: topology.New(o), Update: true, Finish: true}.Ensure(ctx)
}
