package natstest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// nodeVariable makes a test binary be one server of a Trio. It holds the server's name, its folder, its port
// for clients, its port for routes, and all ports for routes.
const nodeVariable = "VERIFYD_TEST_CLUSTER_NODE"

// advertiseVariable is the address for routes by which a server of a Trio is known to the others; empty: its
// own.
const advertiseVariable = "VERIFYD_TEST_CLUSTER_ADVERTISE"

func init() { //nolint:gochecknoinits // a test binary becomes the server before any test of it runs
	if args := os.Getenv(nodeVariable); args != "" {
		beInstead(func() error { return serveNode(strings.Fields(args), os.Stdin, os.Stdout) })
	}
}

// serveNode runs the server, says when clients may come, and ends when in does.
func serveNode(args []string, in io.Reader, out io.Writer) error {
	name, dir := args[0], args[1]
	ports := make([]int, len(args)-2)
	for i, text := range args[2:] {
		port, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%s: %w", nodeVariable, err)
		}
		ports[i] = port
	}
	s, err := server.NewServer(&server.Options{
		ServerName: name, Host: "127.0.0.1", Port: ports[0], NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, JetStreamMaxStore: 4 << 30,
		JetStreamMaxMemory: 256 << 20,
		Cluster: server.ClusterOpts{
			Name: "trio", Host: "127.0.0.1", Port: ports[1], Advertise: os.Getenv(advertiseVariable),
		},
		Routes: routesTo(ports[2:]),
	})
	if err != nil {
		return fmt.Errorf("configure server %s: %w", name, err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(TestTimeout) {
		return errors.New("the server does not start")
	}
	if _, err := fmt.Fprintln(out, s.ClientURL()); err != nil {
		return fmt.Errorf("say that the server is up: %w", err)
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}
