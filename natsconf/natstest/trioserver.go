package natstest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// nodeVariable makes a test binary be one server of a Trio. It is the file of the server's configuration.
const nodeVariable = "VERIFYD_TEST_CLUSTER_NODE"

func init() { //nolint:gochecknoinits // a test binary becomes the server before any test of it runs
	if conf := os.Getenv(nodeVariable); conf != "" {
		beInstead(func() error { return serveNode(conf, os.Stdin, os.Stdout) })
	}
}

// configure writes the server's configuration, and returns its file.
func (n *node) configure() (file string, err error) {
	urls := make([]string, len(n.routes))
	for i, u := range routesTo(n.routes) {
		urls[i] = strconv.Quote(u.String())
	}
	text := fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\n"+
		"jetstream {\n  store_dir: %q\n  sync_interval: always\n  max_file_store: %d\n"+
		"  max_memory_store: %d\n}\n"+
		"cluster {\n  name: trio\n  listen: \"127.0.0.1:%d\"\n  advertise: %q\n  routes: [%s]\n}\n",
		n.name, n.port, n.dir, 4<<30, 256<<20, n.listen, n.advertise, strings.Join(urls, ", "))
	file = n.dir + ".conf"
	if n.include != "" {
		relative, err := filepath.Rel(filepath.Dir(file), n.include)
		if err != nil {
			return "", fmt.Errorf("include %s: %w", n.include, err)
		}
		text += fmt.Sprintf("include %q\n", relative)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("configure server %s: %w", n.name, err)
	}
	return file, nil
}

// serveNode runs the server, says when clients may come, and ends when in does. By SIGHUP the server reads
// its configuration again.
func serveNode(conf string, in io.Reader, out io.Writer) error {
	o, err := server.ProcessConfigFile(conf)
	if err != nil {
		return fmt.Errorf("configure a server: %w", err)
	}
	o.NoLog = true
	s, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("configure server %s: %w", o.ServerName, err)
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
