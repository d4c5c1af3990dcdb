package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
)

func TestDataDirectoryHasOneOwner(t *testing.T) {
	natstest.NeedsEmbedded(t, "the lock of its data directory")
	t.Parallel()
	dir := t.TempDir()
	_, stop := natstest.StartIn(t, dir)
	_, err := embedded.Open(embedded.Options{DataDir: dir, Log: zerolog.Nop()})
	if !errors.Is(err, embedded.ErrLocked) {
		t.Fatalf("second owner: %v, want ErrLocked", err)
	}
	stop()
	natstest.StartIn(t, dir)
}

func TestEndpointFileAdmitsOnlyItsReader(t *testing.T) {
	natstest.NeedsEmbedded(t, "the endpoint file in its data directory")
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	info, err := os.Stat(filepath.Join(dir, embedded.EndpointFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode = %v, %v; want 0600", info.Mode(), err)
	}
	end, err := embedded.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(end.URL, "nats://127.0.0.1:") {
		t.Errorf("listens on %s, want loopback", end.URL)
	}
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: end.URL, User: end.User, Password: end.Password, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if conn, err := natsconf.Connect(t.Context(),
		natsconf.ConnectOptions{URL: end.URL, Log: zerolog.Nop()}); err == nil {
		conn.Close()
		t.Error("connected without the credential")
	}
}
