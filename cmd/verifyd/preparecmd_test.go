package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folder reads all files below a folder, by name.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"*", "*/*"} {
		for _, path := range must[[]string](t)(filepath.Glob(filepath.Join(dir, pattern))) {
			info := must[os.FileInfo](t)(os.Stat(path))
			if info.IsDir() {
				continue
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s is %s", path, info.Mode())
			}
			files[must[string](t)(filepath.Rel(dir, path))] = string(must[[]byte](t)(os.ReadFile(path)))
		}
	}
	return files
}

func prepare(t *testing.T, args ...string) {
	t.Helper()
	if code, out, errOut := verifyd(t, append([]string{"prepare"}, args...)...); code != 0 || out != "" {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
}

// Secrets are created once, and only in the folder of the role that needs them; the rest depends on the
// version.
func TestPrepare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hosts := []string{"verifyd.localhost", "integrator.test"}
	args := []string{
		dir, "--nats-servers", "n1,n2", "--store-limit", "60GiB", "--trial", strings.Join(hosts, ","),
	}
	prepare(t, args...)
	first := folder(t, dir)
	want := []string{
		"dispatcher/nats.nk", "dispatcher/secret.key", "edge/nats.nk", "edge/secret.key", "monitor/nats.nk",
		"nats/accounts.conf", "nats/routes.conf",
		"nats/routes.secret", "nats/users.json", "operator/nats.nk", "operator/secret.key", "proxy/cert.pem",
		"proxy/key.pem", "trust/ca.pem",
	}
	for _, name := range want {
		if first[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if !strings.Contains(first["nats/accounts.conf"], "jetstream: {max_store: 64424509440}") {
		t.Errorf("the account's limit is missing:\n%s", first["nats/accounts.conf"])
	}
	if code, _, errOut := verifyd(t, "prepare", dir, "--store-limit", "60"); code != exitUsage ||
		!strings.Contains(errOut, "60GiB") {
		t.Errorf("a limit without a unit: %d %s", code, errOut)
	}
	if len(first) != len(want) {
		t.Errorf("%d files: %q", len(first), first)
	}
	if first["edge/secret.key"] != first["operator/secret.key"] ||
		first["dispatcher/secret.key"] != first["operator/secret.key"] {
		t.Error("the master key is not the same for all")
	}
	if first["edge/nats.nk"] == first["dispatcher/nats.nk"] {
		t.Error("two roles have one credential")
	}
	for name, content := range first {
		if strings.HasSuffix(name, ".nk") &&
			strings.Contains(first["nats/accounts.conf"], strings.TrimSpace(content)) {
			t.Errorf("the servers' configuration holds the secret of %s", name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "nats", "accounts.conf"), []byte("of an older version"),
		0o600); err != nil {
		t.Fatal(err)
	}
	prepare(t, args...)
	for name, content := range folder(t, dir) {
		if first[name] != content {
			t.Errorf("%s has changed at a repeat", name)
		}
	}
	limited := func(want string) {
		t.Helper()
		if accounts := folder(t, dir)["nats/accounts.conf"]; !strings.Contains(accounts,
			"jetstream: {max_store: "+want+"}") {
			t.Errorf("the account's limit is not %s:\n%s", want, accounts)
		}
	}
	prepare(t, dir)
	limited("64424509440") // a repeat without the flag
	prepare(t, dir, "--store-limit", "30GiB")
	limited("32212254720")
	prepare(t, dir)
	limited("32212254720")
	// A certificate that lacks a name is replaced, with its authority.
	prepare(t, dir, "--trial", strings.Join(append(hosts, "network.localhost"), ","))
	cert := must[tls.Certificate](t)(tls.LoadX509KeyPair(filepath.Join(dir, "proxy", "cert.pem"),
		filepath.Join(dir, "proxy", "key.pem")))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must[[]byte](t)(os.ReadFile(filepath.Join(dir, "trust", "ca.pem"))))
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, DNSName: "network.localhost",
	}); err != nil {
		t.Error(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "operator", "secret.key"), []byte("hunter2"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := verifyd(t, "prepare", dir); code == 0 || !strings.Contains(errOut, "secret.key") ||
		strings.Contains(errOut, "hunter2") {
		t.Errorf("with a damaged master key: exit %d, %s", code, errOut)
	}
}

// A rotation changes the credentials and nothing else that is secret. The servers let in both users until the
// old ones are retired, at once if both flags are given.
func TestPrepareRotates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admitted := func(args ...string) (users int, edge, key string) {
		t.Helper()
		prepare(t, append([]string{dir}, args...)...)
		files := folder(t, dir)
		return strings.Count(files["nats/accounts.conf"], `"nkey":`), files["edge/nats.nk"],
			files["edge/secret.key"]
	}
	_, first, key := admitted()
	for i, step := range []struct {
		args  []string
		users int
		fresh bool
	}{
		{nil, 4, false},
		{[]string{"--rotate"}, 8, true},
		{nil, 8, false},
		{[]string{"--rotate"}, 12, true},
		{[]string{"--retire"}, 4, false},
		{[]string{"--rotate", "--retire"}, 4, true},
		{nil, 4, false},
	} {
		before := first
		users, edge, k := admitted(step.args...)
		if users != step.users || (edge != before) != step.fresh || k != key {
			t.Errorf("step %d, %q: %d users, another credential %t, another master key %t", i, step.args,
				users, edge != before, k != key)
		}
		first = edge
	}
	if code, _, errOut := verifyd(t, "prepare", dir, "--rotate"); code != 0 ||
		!strings.Contains(errOut, "--retire") {
		t.Errorf("exit %d, and it does not say what comes next: %s", code, errOut)
	}
}

func TestApplyIsForExternalServers(t *testing.T) {
	t.Parallel()
	if code, _, errOut := verifyd(t, "apply"); code != exitUsage ||
		!strings.Contains(errOut, "VERIFYD_NATS_URL") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	ready := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("jetstream: not connected"))
		}
	}))
	address := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	for _, args := range [][]string{
		{"--admin-listen", address}, {"--admin-listen", ":" + port}, {"--url", server.URL + "/readyz"},
	} {
		if code, out, errOut := verifyd(t, append([]string{"healthcheck"}, args...)...); code != 0 {
			t.Errorf("%q: exit %d: %s%s", args, code, out, errOut)
		}
	}
	ready = false
	if code, out, errOut := verifyd(t, "healthcheck", "--admin-listen", address); code != exitFailed ||
		!strings.Contains(out, "not connected") || !strings.Contains(errOut, "503") {
		t.Errorf("not ready: exit %d: %s%s", code, out, errOut)
	}
	server.Close()
	if code, _, _ := verifyd(t, "healthcheck", "--admin-listen", address); code != exitFailed {
		t.Errorf("nobody there: exit %d", code)
	}
	for _, args := range [][]string{{"--admin-listen", "nowhere"}, {"--url", "::"}} {
		if code, _, errOut := verifyd(t,
			slices.Concat([]string{"healthcheck"}, args)...); code != exitUsage ||
			!strings.Contains(errOut, "example") {
			t.Errorf("%q: exit %d: %s", args, code, errOut)
		}
	}
}
