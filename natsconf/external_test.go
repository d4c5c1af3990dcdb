package natsconf_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// external runs a NATS server that is not ours: TLS, and accounts proved by signed credentials.
func external(t *testing.T) (url, creds string, roots *x509.CertPool) {
	t.Helper()
	https := httptest.NewTLSServer(nil) // for its certificate
	https.Close()
	roots = x509.NewCertPool()
	roots.AddCert(https.Certificate())

	operator, account, user := pair(t, nkeys.CreateOperator), pair(t, nkeys.CreateAccount),
		pair(t, nkeys.CreateUser)
	claims := jwt.NewAccountClaims(public(t, account))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		DiskStorage: 1 << 30, MemoryStorage: 1 << 20, Streams: -1, Consumer: -1,
	}
	accountJWT, err := claims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	userJWT, err := jwt.NewUserClaims(public(t, user)).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		t.Fatal(err)
	}
	creds = filepath.Join(t.TempDir(), "verifyd.creds")
	if err := os.WriteFile(creds, file, 0o600); err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(public(t, account), accountJWT); err != nil {
		t.Fatal(err)
	}
	system := pair(t, nkeys.CreateAccount)
	systemJWT, err := jwt.NewAccountClaims(public(t, system)).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	if err := resolver.Store(public(t, system), systemJWT); err != nil {
		t.Fatal(err)
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		TLSConfig:   &tls.Config{Certificates: https.TLS.Certificates, MinVersion: tls.VersionTLS12},
		TLSTimeout:  2,
		TrustedKeys: []string{public(t, operator)}, AccountResolver: resolver,
		SystemAccount: public(t, system),
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(natstest.TestTimeout) {
		t.Fatal("the external server does not start")
	}
	return "tls://" + ns.Addr().String(), creds, roots
}

func pair(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	k, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(t *testing.T, k nkeys.KeyPair) string {
	t.Helper()
	p, err := k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExternalServerWithTLSAndCredentials(t *testing.T) {
	t.Parallel()
	url, creds, roots := external(t)
	o := natsconf.ConnectOptions{URL: url, CredsFile: creds, RootCAs: roots, Log: zerolog.Nop()}
	conn, err := natsconf.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
	w := natstest.Writer(t, conn, topology.StreamCompletions)
	if _, err := w.Publish(t.Context(), &nats.Msg{Subject: "completion.a"}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	stranger := o
	stranger.RootCAs = nil
	if conn, err := natsconf.Connect(ctx, stranger); err == nil {
		conn.Close()
		t.Error("connected to a server whose certificate nobody vouches for")
	}
}

// A wrong credential, or a missing file, is reported at once; waiting does not help.
func TestLastingFaultsOfTheConnectionEndTheBoot(t *testing.T) {
	t.Parallel()
	url, creds, roots := external(t)
	for name, o := range map[string]natsconf.ConnectOptions{
		"no credential":       {URL: url, RootCAs: roots, Log: zerolog.Nop()},
		"no credentials file": {URL: url, RootCAs: roots, CredsFile: creds + ".missing", Log: zerolog.Nop()},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		conn, err := natsconf.Connect(ctx, o)
		if err == nil {
			conn.Close()
			t.Errorf("%s: connected", name)
		} else if ctx.Err() != nil {
			t.Errorf("%s: waited for the end of the boot: %v", name, err)
		}
		cancel()
	}
}

// Nobody listens yet: tries continue until the start's time is over, and the error does not show the
// password.
func TestBootTriesAreBounded(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	_, err = natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: "nats://user:hunter2@" + address, Log: zerolog.Nop(),
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the boot's deadline", err)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the password: %v", err)
	}
}

// A token in the URL is in the place of a user's name, and is a secret: inboxes are named after users, and
// are visible to anyone who may subscribe.
func TestTokenIsInNoSubject(t *testing.T) {
	t.Parallel()
	const token = "s3cr3t"
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, Authorization: token, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: strings.Replace(ns.ClientURL(), "nats://", "nats://"+token+"@", 1), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if inbox := conn.NC.NewInbox(); strings.Contains(inbox, token) {
		t.Errorf("answers come at %s", inbox)
	}
}

// A file that holds no credential is named without its content, and is not tried again.
func TestFileThatIsNoCredential(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "edge.nk")
	if err := os.WriteFile(file, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := natsconf.CredentialUser(file); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("err = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: "nats://127.0.0.1:1", CredsFile: file, Log: zerolog.Nop(),
	})
	if err == nil {
		conn.Close()
	}
	if err == nil || ctx.Err() != nil {
		t.Errorf("a credential that is none is not refused at once: %v", err)
	}
}
