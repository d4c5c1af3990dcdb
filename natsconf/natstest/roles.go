package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/serverconf"
)

// External is a NATS server as an operator runs it: configured by the file that verifyd prepare prints, so
// that each role has a credential of its own and may do no more than its own.
type External struct {
	URL         string
	Credentials string // the folder of the roles' seeds

	server *server.Server
}

// externalName is the name of the server of StartExternal.
const externalName = "nats-1"

// StartExternal runs such a server until the test ends. It holds nothing yet.
func StartExternal(tb testing.TB) External {
	tb.Helper()
	dir := tb.TempDir()
	e := External{Credentials: filepath.Join(dir, "credentials")}
	e.configure(tb)
	file := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:-1\"\njetstream {\n  store_dir: %q\n  "+
		"sync_interval: always\n}\ninclude ./accounts.conf\n",
		externalName, filepath.Join(dir, "store"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	e.server = serve(tb, o)
	e.URL = e.server.ClientURL()
	return e
}

// serve runs a server until the test ends.
func serve(tb testing.TB, o *server.Options) *server.Server {
	tb.Helper()
	o.NoSigs = true
	ns, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	ns.Start()
	tb.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(TestTimeout) {
		tb.Fatal("the external server does not start")
	}
	return ns
}

// configure writes the account's configuration.
func (e External) configure(tb testing.TB) {
	tb.Helper()
	users, err := serverconf.EnsureUsers(e.Credentials)
	if err != nil {
		tb.Fatal(err)
	}
	accounts, err := serverconf.Accounts(users, 1<<30) // more than any test stores
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(e.Credentials), "accounts.conf")
	if err := os.WriteFile(file, accounts, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// Reload has the server read the configuration for the users as they are now.
func (e External) Reload(tb testing.TB) {
	tb.Helper()
	e.configure(tb)
	if err := e.server.Reload(); err != nil {
		tb.Fatal(err)
	}
}

// WithoutJetStream runs a server that has no JetStream, until the test ends, and returns its URL.
func WithoutJetStream(tb testing.TB) (address string) {
	tb.Helper()
	return serve(tb, &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true}).ClientURL()
}

// Credential returns the file of a role's credential.
func (e External) Credential(role permission.Role) string {
	return serverconf.SeedFile(e.Credentials, role)
}

// Connect connects as a role until the test ends.
func (e External) Connect(tb testing.TB, role permission.Role) *natsconf.Conn {
	tb.Helper()
	conn, err := natsconf.Connect(tb.Context(), natsconf.ConnectOptions{
		URL: e.URL, CredsFile: e.Credential(role), Name: tb.Name(), Log: zerolog.Nop(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return conn
}
