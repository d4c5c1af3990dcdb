package natstest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func init() { //nolint:gochecknoinits // a test binary becomes the servers before any test of it runs
	if os.Getenv(serversVariable) != "" {
		beInstead(func() error { return serveCluster(os.Stdin, os.Stdout) })
	}
}

// beInstead has the process do something else than test.
func beInstead(serve func() error) {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveCluster runs the servers, tells where they listen, and ends when in does.
func serveCluster(in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "verifyd-test-cluster-")
	if err != nil {
		return fmt.Errorf("make the servers' folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	servers, err := clusterServers(dir)
	defer func() {
		for _, s := range servers {
			s.Shutdown()
		}
		for _, s := range servers {
			s.WaitForShutdown()
		}
	}()
	if err != nil {
		return err
	}
	if err := awaitLeader(servers); err != nil {
		return err
	}
	hosts := make([]string, 0, len(servers))
	for _, s := range servers {
		hosts = append(hosts, s.Addr().String())
	}
	if _, err := fmt.Fprintln(out, strings.Join(hosts, " ")); err != nil {
		return fmt.Errorf("tell the servers' addresses: %w", err)
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}

func clusterServers(dir string) (servers []*server.Server, err error) {
	ports, err := takePorts(nodes)
	if err != nil {
		return nil, err
	}
	routes := routesTo(ports)
	accounts := &accounts{known: map[string]map[*server.Server]*server.Account{}}
	for i := range nodes {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("node-%d", i+1), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: filepath.Join(dir, fmt.Sprint(i)), JetStreamMaxStore: 32 << 30,
			JetStreamMaxMemory:         1 << 30,
			Cluster:                    server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]},
			Routes:                     routes,
			CustomClientAuthentication: &door{accounts: accounts, node: i},
		})
		if err != nil {
			return servers, fmt.Errorf("configure server %d: %w", i+1, err)
		}
		servers = append(servers, s)
	}
	accounts.servers = servers
	for _, s := range servers {
		s.Start()
	}
	return servers, nil
}

func awaitLeader(servers []*server.Server) error {
	deadline := time.Now().Add(TestTimeout)
	for time.Now().Before(deadline) {
		for _, s := range servers {
			if s.JetStreamIsLeader() && s.NumRoutes() > 0 && len(s.JetStreamClusterPeers()) == nodes {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond) // in the servers' own process, before any test
	}
	return errors.New("the servers elected no leader")
}

// accounts are made when somebody first names them, on all servers at once: a server that leads a group
// looks its account up.
type accounts struct {
	mu      sync.Mutex
	servers []*server.Server
	known   map[string]map[*server.Server]*server.Account
}

func (a *accounts) on(s *server.Server, name string) (*server.Account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[name] == nil {
		made := map[*server.Server]*server.Account{}
		for _, s := range a.servers {
			account, _ := s.LookupOrRegisterAccount(name)
			if err := account.EnableJetStream(nil, nil); err != nil {
				return nil, fmt.Errorf("enable JetStream for %s: %w", name, err)
			}
			made[s] = account
		}
		a.known[name] = made
	}
	return a.known[name][s], nil
}

// door lets clients of a server into the account that their user name names.
type door struct {
	accounts *accounts
	node     int
}

// Check is called for each new connection of a client.
func (d *door) Check(c server.ClientAuthentication) bool {
	name := c.GetOpts().Username
	if name == "" {
		return false
	}
	account, err := d.accounts.on(d.accounts.servers[d.node], name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	c.RegisterUser(&server.User{Username: name, Account: account})
	return true
}
