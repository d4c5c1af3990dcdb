package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

// verifyd runs a command line in this process. A command that does not end by itself is stopped after a
// while, with exit code 0.
func verifyd(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	var o, e buffer
	code = run(ctx, args, &o, &e)
	if ctx.Err() != nil {
		t.Errorf("%q does not end by itself within %s", args, natstest.TestTimeout)
	}
	noZeroTime(t, strings.Join(args, " "), o.String()+e.String())
	return code, o.String(), e.String()
}

// noZeroTime fails the test if a text shows an instant that is not known as the year 1.
func noZeroTime(t *testing.T, what, text string) {
	t.Helper()
	if strings.Contains(text, "0001-01-01") {
		t.Errorf("%s: it shows the zero instant:\n%s", what, text)
	}
}

func TestDemoPlaysTheWholePath(t *testing.T) {
	t.Parallel()
	code, out, errOut := verifyd(t, "demo", "--auto")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	for _, want := range []string{
		"POST /verify/init", "You are verified", `"verified":true}`, "webhook-signature: v1,",
		"its signature is valid",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
	for binding, want := range map[string]string{
		"code": "/confirm: the code is right", "account": "the user reads: You are verified",
	} {
		code, out, errOut := verifyd(t, "demo", "--auto", "--binding", binding)
		if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, `"verified":true}`) {
			t.Errorf("%s: exit %d: %s\n%s", binding, code, errOut, out)
		}
	}
}

// Keys are made, listed and revoked on a stopped service and on a running one, with the same commands.
func TestKeyCommands(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	made := c.makeKey(t, "Harbor Guild", "--rate-limit", "5/s")
	must[string](t)(c.command(t, "account", "quota", "Harbor Guild", "2"))
	if !strings.HasPrefix(made, "vfy_") || strings.ContainsAny(made, " \n") {
		t.Fatalf("standard output is not the key alone: %q", made)
	}
	c.argv = append(c.argv, "--test-keys")
	c.start(t)
	if status, _, _ := (api{base: c.base(), key: made}).
		call(t, http.MethodGet, "/sessions/"+strings.Repeat("a", 32), ""); status != http.StatusNotFound {
		t.Errorf("a key made while stopped: %d", status)
	}
	running := c.makeKey(t, "Harbor Guild", "--test")
	if !strings.HasPrefix(running, "vfytest_") {
		t.Errorf("test key is %q", running[:8])
	}
	a := api{base: c.base(), key: running}
	a.knownSoon(t)
	list := must[string](t)(c.command(t, "key", "list"))
	lines := strings.Split(list, "\n")
	if len(lines) != 3 || !strings.Contains(list, "Harbor Guild") || strings.Contains(list, made) ||
		strings.Contains(list, running) {
		t.Errorf("list:\n%s", list)
	}
	id := strings.Fields(lines[2])[0]
	if _, err := c.command(t, "key", "revoke", id); err != nil {
		t.Fatal(err)
	}
	a.gone(t)
	if _, err := c.command(t, "key", "revoke", "key_nobody"); err == nil ||
		!strings.Contains(err.Error(), "verifyd key list") {
		t.Errorf("revoking nobody's key: %v", err)
	}
	// The quota of the account binds both keys.
	body := `{"platform":"p","platform_user_id":"u","callback_url":"https://example.com/"}`
	for i, want := range []int{200, 200, 429} {
		if status, _, answer := (api{base: c.base(), key: made}).
			call(t, http.MethodPost, "/verify/init", body); status != want {
			t.Errorf("init %d: %d %s", i+1, status, answer)
		}
	}
	secret := must[string](t)(c.command(t, "account", "secret", "Harbor Guild"))
	if !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("secret is %q", secret)
	}
	if _, err := c.command(t, "account", "secret", "Nobody"); err == nil ||
		!strings.Contains(err.Error(), "Nobody") {
		t.Errorf("secret of nobody: %v", err)
	}
}

// Bad settings are refused at start, all at once, each with its name, its value's fault and what would be
// valid.
func TestBadSettingsAreRefusedByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	notPEM := filepath.Join(dir, "not.pem")
	slip := filepath.Join(dir, "slip.yaml")
	nested := filepath.Join(dir, "nested.yaml")
	networks := filepath.Join(dir, "networks.yaml")
	for path, text := range map[string]string{
		notPEM: "hello", slip: "callback_timeuot: 3s\n", nested: "base_url: {a: b}\n",
		networks: "- id: x\n  kind: oidc\n  isuer: https://a.example\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		want []string // in the error
	}{
		{[]string{"--listen", "8080"}, []string{"VERIFYD_LISTEN", `"8080"`, "127.0.0.1:8080"}},
		{[]string{"--listen", taken.Addr().String()}, []string{"VERIFYD_LISTEN", "in use"}},
		{[]string{"--admin-listen", "localhost:99999"}, []string{"VERIFYD_ADMIN_LISTEN", "99999"}},
		{[]string{"--admin-listen", taken.Addr().String()}, []string{"VERIFYD_ADMIN_LISTEN", "in use"}},
		{[]string{"--base-url", "ftp://x"}, []string{"VERIFYD_BASE_URL", "ftp://x", "https://"}},
		{[]string{"--base-url", "https://u:p@x"}, []string{"VERIFYD_BASE_URL"}},
		{[]string{"--base-url", "https://x/?a"}, []string{"VERIFYD_BASE_URL"}},
		{[]string{"--trusted-proxies", "10.0.0.0/8,nonsense"},
			[]string{"VERIFYD_TRUSTED_PROXIES", "nonsense"}},
		{[]string{"--callback-allow-cidrs", "127.0.0.1"},
			[]string{"VERIFYD_CALLBACK_ALLOW_CIDRS", "127.0.0.1", "CIDR"}},
		{[]string{"--callback-refuse", "bot.example.com,10.0.0.0/33"},
			[]string{"VERIFYD_CALLBACK_REFUSE", `"10.0.0.0/33"`, "*.example.net"}},
		{[]string{"--callback-allow-ports", "443,0"}, []string{"VERIFYD_CALLBACK_ALLOW_PORTS", `"0"`}},
		{[]string{"--callback-ca-file", notPEM}, []string{"VERIFYD_CALLBACK_CA_FILE", "no certificate"}},
		{[]string{"--callback-ca-file", "/nowhere.pem"},
			[]string{"VERIFYD_CALLBACK_CA_FILE", "no such file"}},
		{[]string{"--network-ca-file", notPEM}, []string{"VERIFYD_NETWORK_CA_FILE", "no certificate"}},
		{[]string{"--callback-connections", "0"},
			[]string{"VERIFYD_CALLBACK_CONNECTIONS", "0 is out of range", "use 1 to 1024"}},
		{[]string{"--callback-connections", "1025"},
			[]string{"VERIFYD_CALLBACK_CONNECTIONS", "1025", "use 1 to 1024"}},
		{[]string{"--callback-connections", "many"}, []string{"--callback-connections", "many"}},
		{[]string{"--callback-attempts", "0"},
			[]string{"VERIFYD_CALLBACK_ATTEMPTS", "0 is out of range", "use 1 to 100000"}},
		{[]string{"--callback-attempts", "100001"}, []string{"VERIFYD_CALLBACK_ATTEMPTS", "100001"}},
		{[]string{"--callback-share", "2049"}, []string{"VERIFYD_CALLBACK_SHARE", "2049", "use 1 to 2048"}},
		{[]string{"--callback-share=-1"}, []string{"VERIFYD_CALLBACK_SHARE", "-1"}},
		{[]string{"--admin-names", "*.internal"}, []string{"VERIFYD_ADMIN_NAMES", "*.internal", "edge-1"}},
		{[]string{"--callback-timeout", "5m"}, []string{"VERIFYD_CALLBACK_TIMEOUT", "5m0s"}},
		{[]string{"--callback-timeout", "soon"}, []string{"--callback-timeout", "soon"}},
		{[]string{"--callback-retry-for=-1s"}, []string{"VERIFYD_CALLBACK_RETRY_FOR"}},
		{[]string{"--callback-proxy", "socks5://user:hunter2@proxy:1080"},
			[]string{"VERIFYD_CALLBACK_PROXY", "http://proxy.internal:3128"}},
		{[]string{"--callback-proxy", "http://user:hunter2@proxy"},
			[]string{"VERIFYD_CALLBACK_PROXY", "no port", "https://user:password@"}},
		{[]string{"--callback-proxy", "http://user:hunter2/@proxy:3128"},
			[]string{"VERIFYD_CALLBACK_PROXY", "percent-encoded"}},
		{[]string{"--callback-policy", "twice"},
			[]string{"VERIFYD_CALLBACK_POLICY", "twice", "at-least-once"}},
		{[]string{"--rate-limit", "fast"}, []string{"VERIFYD_RATE_LIMIT", "fast", "20/s"}},
		{[]string{"--rate-burst", "0"}, []string{"VERIFYD_RATE_BURST"}},
		{[]string{"--failed-key-limit", "often"}, []string{"VERIFYD_FAILED_KEY_LIMIT", "often", "10/m"}},
		{[]string{"--failed-key-limit", "900000/s"}, []string{"VERIFYD_FAILED_KEY_LIMIT", "900000/s"}},
		{[]string{"--sign-in-limit", "never"}, []string{"VERIFYD_SIGN_IN_LIMIT", "never", "600/m"}},
		{[]string{"--monthly-quota", "0"}, []string{"VERIFYD_MONTHLY_QUOTA"}},
		{[]string{"--roles", "edge,clown"}, []string{"VERIFYD_ROLES", "clown"}},
		{[]string{"--sync", "never"}, []string{"VERIFYD_SYNC", "never"}},
		{[]string{"--store-limit", "8"}, []string{"VERIFYD_STORE_LIMIT", "8GiB"}},
		{[]string{"--store-limit", "255MiB"}, []string{"VERIFYD_STORE_LIMIT", "256MiB"}},
		{[]string{"--replicas", "3"}, []string{"VERIFYD_REPLICAS"}},
		{[]string{"--replicas", "2", "--nats-url", "nats://127.0.0.1:1"}, []string{"VERIFYD_REPLICAS", "2"}},
		{[]string{"--nats-url", "http://x"}, []string{"VERIFYD_NATS_URL", "nats://"}},
		{[]string{"--nats-url", "nats://127.0.0.1:1"},
			[]string{"VERIFYD_SECRET_KEY", "openssl rand -base64 32"}},
		{[]string{"--nats-creds", "/nowhere.creds"}, []string{"VERIFYD_NATS_CREDS", "VERIFYD_NATS_URL"}},
		{[]string{"--secret-key", "short"}, []string{"VERIFYD_SECRET_KEY", "32 bytes"}},
		{[]string{"--secret-key", secretbox.NewKey().Encode(), "--secret-key-file", "/x"},
			[]string{"VERIFYD_SECRET_KEY_FILE"}},
		{[]string{"--keep-results", "1s"}, []string{"VERIFYD_KEEP_RESULTS", "72h"}},
		{[]string{"--keep-results", "2h", "--callback-retry-for", "90m"},
			[]string{"VERIFYD_KEEP_RESULTS", "VERIFYD_CALLBACK_RETRY_FOR"}},
		{[]string{"--nats-url", "nats://user:hunter2@127.0.0.1:1x"}, []string{"VERIFYD_NATS_URL", "nats://"}},
		{[]string{"--nats-ca-file", notPEM}, []string{"VERIFYD_NATS_CA_FILE", "tls://"}},
		{[]string{"--network-client-id", "x"}, []string{"VERIFYD_NETWORK_ISSUER"}},
		{[]string{"--network-dashboard"}, []string{"VERIFYD_NETWORK_ISSUER"}},
		{[]string{"--dashboard-allow", "everybody"},
			[]string{"VERIFYD_DASHBOARD_ALLOW", "everybody", "@example.org"}},
		{[]string{"--store-limit", "9000000TiB"}, []string{"VERIFYD_STORE_LIMIT"}},
		{[]string{"--networks-file", networks}, []string{"VERIFYD_NETWORKS_FILE", "isuer"}},
		{[]string{"--network-issuer", "http://idp.example.com"}, []string{"VERIFYD_NETWORK_ISSUER", "https"}},
		{[]string{"--network-kind", "discrod", "--network-client-id", "c", "--network-client-secret", "s"},
			[]string{"VERIFYD_NETWORK_ISSUER", "kind: oidc", "discord"}},
		{[]string{"--network-kind", "discord", "--network-issuer", "https://i.example"},
			[]string{"VERIFYD_NETWORK_ISSUER", "issuer: leave it out", "client_id", "client_secret"}},
		{[]string{"--dev-network-listen", "0.0.0.0:0"}, []string{"loopback"}},
		{[]string{"--log-level", "loud"}, []string{"VERIFYD_LOG_LEVEL", "loud"}},
		{[]string{"--trace-endpoint", "https://user:hunter2@collector:4318"},
			[]string{"VERIFYD_TRACE_ENDPOINT", "http://collector.internal:4318"}},
		{[]string{"--trace-endpoint", "collector:4317"},
			[]string{"VERIFYD_TRACE_ENDPOINT", "http://collector.internal:4318"}},
		{[]string{"--trace-endpoint", "http://collector:4318", "--trace-share", "0"},
			[]string{"VERIFYD_TRACE_SHARE", "0.1"}},
		{[]string{"--trace-endpoint", "http://collector:4318", "--trace-headers", "hunter2"},
			[]string{"VERIFYD_TRACE_HEADERS", "authorization=Bearer%20TOKEN"}},
		{[]string{"--trace-endpoint", "http://collector:4318", "--trace-headers", "a=b%0Ahunter2"},
			[]string{"VERIFYD_TRACE_HEADERS"}},
		{[]string{"--trace-callbacks"}, []string{"VERIFYD_TRACE_CALLBACKS", "VERIFYD_TRACE_ENDPOINT"}},
		{[]string{"--alarm-url", "http://ops.example.com/", "--alarm-secret", alarmSecret},
			[]string{"VERIFYD_ALARM_URL", "https"}},
		{[]string{"--alarm-url", "https://10.0.0.1/", "--alarm-secret", alarmSecret},
			[]string{"VERIFYD_ALARM_URL"}},
		{[]string{"--alarm-url", "https://ops.example.com/"},
			[]string{"VERIFYD_ALARM_SECRET", "openssl rand -base64 32"}},
		{[]string{"--alarm-url", "https://ops.example.com/", "--alarm-secret", "hunter2"},
			[]string{"VERIFYD_ALARM_SECRET"}},
		{[]string{"--alarm-url", "https://ops.example.com/", "--alarm-secret", "whsec_aHVudGVyMg=="},
			[]string{"VERIFYD_ALARM_SECRET", "at least 24 bytes"}},
		{[]string{"--alarm-failures", "0"}, []string{"VERIFYD_ALARM_FAILURES", "5"}},
		{[]string{"--log-format", "xml"}, []string{"VERIFYD_LOG_FORMAT", "xml"}},
		{[]string{"--config", slip}, []string{"callback_timeuot", "callback_timeout"}},
		{[]string{"--config", nested}, []string{"base_url"}},
		{[]string{"--listen", "x", "--sync", "never", "--monthly-quota=-1"},
			[]string{"VERIFYD_LISTEN", "VERIFYD_SYNC", "VERIFYD_MONTHLY_QUOTA"}},
	} {
		store := t.TempDir()
		args := append([]string{"serve", "--dev-network", "--data-dir", store, "--admin-listen",
			"127.0.0.1:0"}, c.args...)
		if !strings.Contains(strings.Join(c.args, " "), "--listen") {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		code, _, errOut := verifyd(t, args...)
		if code != exitUsage {
			t.Errorf("%v: exit %d, want %d: %s", c.args, code, exitUsage, errOut)
		}
		if strings.Contains(errOut, "hunter2") {
			t.Errorf("%v: the error shows a password", c.args)
		}
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%v: the error does not say %q: %s", c.args, want, errOut)
			}
		}
	}
}

// A store belongs to the master key that it was created with: a command or a service with another one, or
// without, changes nothing.
func TestAnotherMasterKeyIsRefused(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the master key in its data directory")
	c := newChild(t)
	made := c.makeKey(t, "Harbor Guild")
	store := filepath.Join(c.dir, "store")
	key := filepath.Join(store, config.SecretFile)
	refused := func(what string, args ...string) {
		t.Helper()
		if _, err := c.command(t, args...); err == nil ||
			!strings.Contains(err.Error(), "VERIFYD_SECRET_KEY") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another key", "key", "create", "--account", "x", "--secret-key", secretbox.NewKey().Encode())
	refused("a service with another key", "serve", "--admin-listen", "", "--secret-key", secretbox.NewKey().
		Encode())
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	refused("a lost key", "key", "create", "--account", "x")
	refused("a service with a lost key", "serve", "--admin-listen", "")
	if _, err := os.Stat(key); err == nil {
		t.Error("a second master key was made")
	}
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	(api{base: c.base(), key: made}).knownSoon(t)
	refused("another key on a running service", "key", "create", "--account", "x", "--secret-key",
		secretbox.NewKey().Encode())
}

// A command runs with its own settings; it must not remove what a service keeps with others.
func TestCommandsLeaveTheTopologyAlone(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "commands on a data directory")
	c := newChild(t)
	c.args = []string{"--keep-results", "720h"}
	c.start(t)
	c.kill()
	if _, err := c.command(t, "key", "list"); err != nil {
		t.Fatal(err)
	}
	c.log = &buffer{}
	c.start(t)
	if log := c.log.String(); strings.Contains(log, "a setting of the store was changed") {
		t.Errorf("the command had changed it, the service changed it back: %s", log)
	}
	if _, err := c.command(t, "key", "list", "--data-dir", filepath.Join(c.dir, "nowhere")); err == nil ||
		!strings.Contains(err.Error(), "VERIFYD_DATA_DIR") {
		t.Errorf("list where there is no store: %v", err)
	}
}

func TestNoNetworkIsRefused(t *testing.T) {
	t.Parallel()
	code, _, errOut := verifyd(t, "serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0")
	if code != exitUsage || !strings.Contains(errOut, "VERIFYD_NETWORK_ISSUER") ||
		!strings.Contains(errOut, "--dev-network") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

func TestTwoServicesOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the lock of its data directory")
	c := newChild(t)
	c.start(t)
	_, err := c.command(t, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "")
	if err == nil || !strings.Contains(err.Error(), "in use by another verifyd") {
		t.Errorf("a second service: %v", err)
	}
}

// Flag over variable over file.
func TestSettingsHaveAnOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "verifyd.yaml")
	if err := os.WriteFile(file,
		[]byte("monthly_quota: -1\nrate_burst: -2222\ncallback_allow_cidrs: [10.0.0.0/8, x]\nsync: file\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VERIFYD_RATE_BURST", "-3")
	t.Setenv("VERIFYD_SYNC", "environment")
	_, _, errOut := verifyd(t, "serve", "--dev-network", "--config", file, "--sync", "flag")
	for _, want := range []string{
		"-1 allows no session", `"flag" is not a mode`, `"x" is not a CIDR`, "VERIFYD_RATE_BURST",
	} {
		if !strings.Contains(errOut, want) {
			t.Errorf("no %q in: %s", want, errOut)
		}
	}
	if strings.Contains(errOut, "-2222") {
		t.Errorf("the file won over the variable: %s", errOut)
	}
}
