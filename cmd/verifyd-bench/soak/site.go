package soak

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"verifyd/cmd/verifyd-bench/bench/proc"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/devnetwork"
	"verifyd/natsconf/secretbox"
)

const (
	servers = 3
	// readyWithin bounds the start of a process, and the election of leaders after it.
	readyWithin = 2 * time.Minute
	// ServerCommand is the command under which the bench's own binary is a NATS server; its argument is a
	// configuration file.
	ServerCommand = "nats-server"
)

// site is everything that is running.
type site struct {
	out     io.Writer
	mu      sync.Mutex
	dir     string
	self    string
	verifyd string
	env     []string // of every verifyd
	urls    string   // of the NATS servers
	base    string   // the address for users and integrators: the front
	key     string   // API key

	ca        *localca.Authority
	network   *devnetwork.Provider
	receivers *receivers
	front     *front
	nodes     []*node    // NATS servers
	edges     []*service // the first is spared
	senders   []*service // dispatchers; the first is spared
	disk      *smallDisk // of the last server; nil if none can be made
	done      actions    // what was done to it
	background
}

// background is what runs in this process until it is closed.
type background struct {
	wg   sync.WaitGroup
	stop context.CancelFunc
}

// node is a NATS server.
type node struct {
	name, dir, config string
	url               string
	process           *proc.Process
}

// service is a verifyd of one role.
type service struct {
	name, admin, listen string
	roles               string
	process             *proc.Process
}

func newSite(ctx context.Context, o Options, verifyd string) (s *site, err error) {
	s = &site{out: o.Out, dir: o.Dir, self: o.Self, verifyd: verifyd}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	ports, err := freeAddresses(2*servers + 8)
	if err != nil {
		return nil, err
	}
	next := func() (address string) { address, ports = ports[0], ports[1:]; return address }
	if s.ca, err = localca.New(); err != nil {
		return nil, err
	}
	if s.front, err = newFront(); err != nil {
		return nil, err
	}
	s.base = "http://" + s.front.listener.Addr().String()
	if err := s.outside(ctx); err != nil {
		return nil, err
	}
	if s.disk, err = newSmallDisk(filepath.Join(o.Dir, "n3")); err != nil {
		s.say("no disk will be full: %v", err)
	}
	if err := s.servers(next); err != nil {
		return nil, err
	}
	for i := range 2 {
		s.edges = append(s.edges, &service{
			name: fmt.Sprint("edge", i), roles: "edge", admin: next(), listen: next()})
		s.senders = append(s.senders, &service{
			name: fmt.Sprint("dispatcher", i), roles: "dispatcher", admin: next(), listen: next()})
		s.front.to = append(s.front.to, s.edges[i].listen)
	}
	return s, s.settings()
}

// outside starts the parties outside of the service: the identity network and the receivers.
func (s *site) outside(ctx context.Context) error {
	certificate, err := s.ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if s.network, err = devnetwork.New(devnetwork.Config{}); err != nil {
		return err
	}
	if err := s.network.Listen(); err != nil {
		return err
	}
	s.network.AllowRedirect(s.base + "/signin/default/callback")
	s.wg.Go(func() { _ = s.network.Serve(ctx) })
	s.wg.Go(func() { s.front.serve(ctx) })
	s.receivers, err = newReceivers(config)
	return err
}

// servers writes the configurations of the NATS servers.
func (s *site) servers(next func() string) error {
	var routes, urls []string
	for i := range servers {
		n := &node{name: fmt.Sprint("n", i+1)}
		n.dir, n.config = filepath.Join(s.dir, n.name), filepath.Join(s.dir, n.name+".conf")
		n.url = next()
		s.nodes = append(s.nodes, n)
		routes, urls = append(routes, next()), append(urls, "nats://"+n.url)
	}
	for i, n := range s.nodes {
		text := fmt.Sprintf("server_name: %s\nlisten: %q\n"+
			"jetstream { store_dir: %q, max_file_store: 4GB, sync_interval: always }\n"+
			"cluster { name: soak, listen: %q, routes: [%s] }\n",
			n.name, n.url, n.dir, routes[i], `"nats://`+strings.Join(routes, `", "nats://`)+`"`)
		if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
			return err
		}
	}
	s.urls = strings.Join(urls, ",")
	return nil
}

// settings are those of every verifyd: defaults except for the retention, limits, and the ban on receivers on
// this machine.
func (s *site) settings() error {
	ca := filepath.Join(s.dir, "ca.pem")
	if err := os.WriteFile(ca, s.ca.PEM(), 0o600); err != nil {
		return err
	}
	n := s.network.Settings()
	s.env = []string{
		"VERIFYD_NATS_URL=" + s.urls, "VERIFYD_SECRET_KEY=" + secretbox.NewKey().Encode(),
		"VERIFYD_KEEP_RESULTS=" + keep.String(), "VERIFYD_CALLBACK_RETRY_FOR=" + retryFor.String(),
		"VERIFYD_BASE_URL=" + s.base, "VERIFYD_LOG_LEVEL=warn", "VERIFYD_LOG_FORMAT=json",
		"VERIFYD_NETWORK_ISSUER=" + n.Issuer, "VERIFYD_NETWORK_NAME=Soak Network",
		"VERIFYD_NETWORK_CLIENT_ID=" + n.ClientID, "VERIFYD_NETWORK_CLIENT_SECRET=" + n.ClientSecret,
		"VERIFYD_RATE_LIMIT=100000/s", "VERIFYD_RATE_BURST=100000", "VERIFYD_SIGN_IN_LIMIT=100000/s",
		"VERIFYD_MONTHLY_QUOTA=1000000000",
		"VERIFYD_CALLBACK_CA_FILE=" + ca, "VERIFYD_CALLBACK_ALLOW_CIDRS=127.0.0.0/8", "SSL_CERT_FILE=" + ca,
	}
	return nil
}

// start starts everything and creates an account and its key.
func (s *site) start(ctx context.Context) error {
	for _, n := range s.nodes {
		if err := s.startNode(n); err != nil {
			return err
		}
	}
	for _, v := range s.services() {
		if err := s.startService(ctx, v); err != nil {
			return err
		}
	}
	if _, err := s.command(ctx, "account", "create", "Soak"); err != nil {
		return err
	}
	key, err := s.command(ctx, "key", "create", "--account", "Soak")
	s.key = strings.TrimSpace(key)
	return err
}

func (s *site) services() []*service { return append(append([]*service{}, s.edges...), s.senders...) }

func (s *site) startNode(n *node) (err error) {
	n.process, err = proc.Start(s.self, []string{ServerCommand, n.config}, nil, nil, nil)
	return err
}

// startService starts a verifyd and waits until it is ready.
func (s *site) startService(ctx context.Context, v *service) (err error) {
	v.process, err = proc.Start(s.verifyd, []string{"serve"}, append([]string{
		"VERIFYD_ROLES=" + v.roles, "VERIFYD_LISTEN=" + v.listen, "VERIFYD_ADMIN_LISTEN=" + v.admin,
		"VERIFYD_DATA_DIR=" + filepath.Join(s.dir, v.name),
	}, s.env...), nil, nil)
	if err != nil {
		return err
	}
	return within(ctx, readyWithin, v.name+" is not ready", func() error {
		select {
		case <-v.process.Exited:
			return fatalError{v.process.Failure()}
		default:
		}
		response, err := http.Get("http://" + v.admin + "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %d", response.StatusCode)
		}
		return nil
	})
}

// command runs one of verifyd's commands and returns what it prints.
func (s *site) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.verifyd, args...) //nolint:gosec // built for this
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("verifyd %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return string(out), err
}

// close ends everything and removes the stores.
func (s *site) close() error {
	for _, v := range s.services() {
		if v.process != nil {
			v.process.Kill()
		}
	}
	for _, n := range s.nodes {
		if n.process != nil {
			n.process.Kill()
		}
	}
	s.receivers.close()
	s.stop()
	_ = s.front.listener.Close()
	s.wg.Wait()
	err := s.disk.close()
	for _, name := range []string{"n1", "n2", "n3", "edge0", "edge1", "dispatcher0", "dispatcher1"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	return err
}

// fatalError is an error that waiting does not fix.
type fatalError struct{ error }

// within retries until there is no error, for at most that long.
func within(ctx context.Context, d time.Duration, what string, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[fatalError](err); ok {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		}
	}
}
