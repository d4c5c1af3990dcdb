package verify_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/docs/verify"
	"verifyd/natsconf/natstest/prove"
	"verifyd/sessions"
	"verifyd/sessions/urlpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodeModulesVariable names a node_modules folder with the official library in it.
const nodeModulesVariable = "VERIFYD_TEST_NODE_MODULES"

// libraries is the module whose folder holds the official libraries of all languages.
const libraries = "github.com/standard-webhooks/standard-webhooks/libraries"

// runtimes define how a guide's receiver is run in a folder with its files. lib is the folder of the official
// library; it is empty if the standard library is used.
var runtimes = map[string]struct {
	program string
	run     func(t *testing.T, dir, lib string, port int) *exec.Cmd
}{
	"go":         {"go", runGo},
	"javascript": {"node", runNode},
	"python":     {"python3", runPython},
	"php":        {"php", runPHP},
	"ruby":       {"ruby", runRuby},
}

func runGo(t *testing.T, dir, _ string, _ int) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(dir, "receiver")
	// From this folder, so that the library is the one of this module.
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, filepath.Join(dir, "receiver.go"),
		filepath.Join(dir, "verify.go"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exec.Command(bin)
}

func runNode(t *testing.T, dir, lib string, _ int) *exec.Cmd {
	t.Helper()
	if lib != "" {
		modules := os.Getenv(nodeModulesVariable)
		if modules == "" {
			t.Skipf("skipped: npm install standardwebhooks somewhere, and name its node_modules in %s",
				nodeModulesVariable)
		}
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	return exec.Command("node", filepath.Join(dir, "receiver.mjs"))
}

func runPython(t *testing.T, dir, lib string, _ int) *exec.Cmd {
	t.Helper()
	c := exec.Command("python3", filepath.Join(dir, "receiver.py"))
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Join(lib, "python"))
	return c
}

func runPHP(t *testing.T, dir, lib string, port int) *exec.Cmd {
	t.Helper()
	if lib != "" {
		// What composer would write.
		const autoload = `<?php spl_autoload_register(fn ($c) => require %q . str_replace('\\', '/', substr($c, strlen('StandardWebhooks'))) . '.php');`
		mustWrite(t, filepath.Join(dir, "vendor", "autoload.php"),
			fmt.Sprintf(autoload, filepath.Join(lib, "php", "src")))
	}
	return exec.Command("php", "-S", fmt.Sprintf("127.0.0.1:%d", port), filepath.Join(dir, "receiver.php"))
}

// rackup is as much of a Rack server as the test needs, so that no gem is required.
const rackup = `
require "socket"
require "stringio"
$stdout.sync = true
def run(app)
  server = TCPServer.new("127.0.0.1", ENV.fetch("PORT").to_i)
  loop do
    client = server.accept
    line = client.gets or (client.close; next)
    env = { "REQUEST_METHOD" => line.split.first }
    while (field = client.gets) && field != "\r\n"
      name, value = field.chomp.split(": ", 2)
      env["HTTP_" + name.upcase.tr("-", "_")] = value
    end
    env["rack.input"] = StringIO.new(client.read(env["HTTP_CONTENT_LENGTH"].to_i))
    status, _, body = app.call(env)
    client.write("HTTP/1.1 #{status} X\r\nConnection: close\r\nContent-Length: #{body.join.bytesize}\r\n\r\n#{body.join}")
    client.close
  end
end
load File.join(__dir__, "config.ru")
`

func runRuby(t *testing.T, dir, lib string, _ int) *exec.Cmd {
	t.Helper()
	mustWrite(t, filepath.Join(dir, "rackup.rb"), rackup)
	if lib == "" {
		return exec.Command("ruby", filepath.Join(dir, "rackup.rb"))
	}
	return exec.Command("ruby", "-I", filepath.Join(lib, "ruby", "lib"), filepath.Join(dir, "rackup.rb"))
}

const (
	secret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	another   = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	short     = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // 23 bytes

	// seeds of key pairs
	seed        = "the old pair's seed, of 32 bytes"
	newSeed     = "the new pair's seed, of 32 bytes"
	anotherSeed = "another pair's seed, of 32 bytes"
	session     = sessions.ID("abcdefghijklmnopqrstuvwxyz234567")
)

// Each guide's code receives real callbacks, from the dispatcher's client, behind a proxy that speaks https,
// as its comment describes.
func TestGuides(t *testing.T) {
	prove.Only(t, "languages", "it runs five languages")
	guides := verify.Guides()
	if len(guides) != len(runtimes) {
		t.Fatalf("%d guides", len(guides))
	}
	for _, g := range guides {
		if g.Install == "" || g.Receiver.Text == "" || g.Standard.Text == "" || g.Library.Text == "" ||
			g.Public.Text == "" ||
			g.Library == g.Standard {
			t.Errorf("the guide %s is not whole: %+v", g.ID, g)
		}
		t.Run(g.ID+", standard library", func(t *testing.T) { t.Parallel(); tryOut(t, g, g.Standard, "") })
		t.Run(g.ID+", official library", func(t *testing.T) {
			t.Parallel()
			tryOut(t, g, g.Library, libraryFolder(t))
		})
		t.Run(g.ID+", public key", func(t *testing.T) { t.Parallel(); tryPublicKey(t, g) })
		t.Run(g.ID+", short secret", func(t *testing.T) { t.Parallel(); tryShortSecret(t, g) })
	}
}

func libraryFolder(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", libraries).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// try is a callback, and whether a receiver must accept it.
type try struct {
	name    string
	secrets []string
	off     time.Duration
	tamper  bool
	good    bool
}

// privateKey and publicKey write the keys of a pair as Standard Webhooks does.
func privateKey(seed string) string { return "whsk_" + base64.StdEncoding.EncodeToString([]byte(seed)) }

func publicKey(seed string) string {
	pair := ed25519.NewKeyFromSeed([]byte(seed))
	return "whpk_" + base64.StdEncoding.EncodeToString(pair.Public().(ed25519.PublicKey))
}

// The guides to the public key verify only its signature. No official library of any language supports v1a,
// so it is checked with each language's own ed25519, none of which is Go's, which signs.
func tryPublicKey(t *testing.T, g verify.Guide) {
	t.Helper()
	if g.ID == "python" {
		if exec.CommandContext(t.Context(), "python3", "-c", "import cryptography").Run() != nil {
			t.Fatal("this proof needs Python's package cryptography; Debian has python3-cryptography")
		}
	}
	r := start(t, g, g.Public, "")
	hour := time.Hour
	r.judge(t, []try{
		{name: "both signatures", secrets: []string{secret, privateKey(seed)}, good: true},
		{name: "the secret's alone", secrets: []string{secret}},
		{name: "another pair's", secrets: []string{secret, privateKey(anotherSeed)}},
		{name: "old timestamp", secrets: []string{secret, privateKey(seed)}, off: -hour},
		{name: "two of each, the old pair's last", good: true,
			secrets: []string{another, secret, privateKey(anotherSeed), privateKey(seed)}},
		{name: "the new pair's, which the receiver knows too", good: true,
			secrets: []string{another, privateKey(newSeed)}},
		{name: "changed body", secrets: []string{secret, privateKey(seed)}, tamper: true},
		{name: "both again", secrets: []string{secret, privateKey(seed)}, good: true},
	})
}

// A short secret is refused at the start, or by the guides that read it later at each callback.
func tryShortSecret(t *testing.T, g verify.Guide) {
	t.Helper()
	r, up := begin(t, g, g.Standard, "", short)
	if up {
		if answer := r.send(t, []string{short}, time.Now(), false); answer.Status != http.StatusUnauthorized {
			t.Errorf("%d %s", answer.Status, answer.Body)
		} else {
			_, _ = r.said.Write([]byte(answer.Body))
		}
	}
	if !strings.Contains(r.said.String(), "at least 24 bytes") {
		t.Errorf("it says %s", r.said.String())
	}
}

func tryOut(t *testing.T, g verify.Guide, code verify.Code, lib string) {
	t.Helper()
	r := start(t, g, code, lib)
	if status := r.sendTest(t); status != http.StatusOK {
		t.Errorf("a test key's callback: %d", status)
	}
	hour := time.Hour
	r.judge(t, []try{
		{name: "valid", secrets: []string{secret, privateKey(seed)}, good: true},
		{name: "by the pair alone", secrets: []string{privateKey(seed)}},
		{name: "wrong signature", secrets: []string{another}},
		{name: "old timestamp", secrets: []string{secret}, off: -hour},
		{name: "timestamp to come", secrets: []string{secret}, off: hour},
		{name: "two signatures, the old secret's last", secrets: []string{another, secret}, good: true},
		{name: "the new secret, which the receiver knows too", secrets: []string{newSecret}, good: true},
		{name: "changed body", secrets: []string{secret}, tamper: true},
		{name: "valid again, behind the pair's", secrets: []string{privateKey(seed), secret}, good: true},
	})
}

// judge sends callbacks, of which the receiver must accept four.
func (r *running) judge(t *testing.T, tries []try) {
	t.Helper()
	for _, c := range tries {
		answer := r.send(t, c.secrets, time.Now().Add(c.off), c.tamper)
		want := http.StatusUnauthorized
		if c.good {
			want = http.StatusOK
		}
		if answer.Status != want {
			t.Errorf("%s: %d %s%s, want %d", c.name, answer.Status, answer.Detail, answer.Body, want)
		}
	}
	r.stop()
	if n := strings.Count(r.said.String(), "sailor_42 grüße 🌊 true"); n != 4 {
		t.Errorf("it took %d results, want 4:\n%s", n, r.said.String())
	}
}

// running is a guide's receiver, and the proxy in front of it.
type running struct {
	url    urlpolicy.URL
	client *callback.Client
	roots  *x509.CertPool
	tamper bool
	said   *words
	stop   func()
}

func start(t *testing.T, g verify.Guide, code verify.Code, lib string) *running {
	t.Helper()
	r, up := begin(t, g, code, lib, secret+" "+newSecret)
	if !up {
		t.Fatalf("the program ended:\n%s", r.said.String())
	}
	return r
}

// begin runs a guide's receiver. up is false if it ended, as it may where its secret is refused.
func begin(t *testing.T, g verify.Guide, code verify.Code, lib, secrets string) (r *running, up bool) {
	t.Helper()
	program := runtimes[g.ID].program
	prove.Program(t, program, program)
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, g.Receiver.File), g.Receiver.Text)
	mustWrite(t, filepath.Join(dir, code.File), code.Text)
	port := freePort(t)
	command := runtimes[g.ID].run(t, dir, lib, port)
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, "VERIFYD_SIGNING_SECRET="+secrets,
		"VERIFYD_PUBLIC_KEY="+publicKey(seed)+" "+publicKey(newSeed),
		fmt.Sprintf("PORT=%d", port), "PYTHONUTF8=1", "LANG=C.UTF-8")
	r = &running{said: &words{}}
	command.Stdout, command.Stderr = r.said, r.said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	r.stop = sync.OnceFunc(func() { _ = command.Process.Kill(); <-ended })
	t.Cleanup(r.stop)
	if !listens(t, port, ended, r.said) {
		return r, false
	}
	r.front(t, port)
	return r, true
}

// front is the proxy that speaks https, and changes a body if the test wants it.
func (r *running) front(t *testing.T, port int) {
	t.Helper()
	ca, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{
		Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port),
	})
	transport := &http.Transport{DisableKeepAlives: true}
	proxy.Transport = transport
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if r.tamper {
			body = bytes.Replace(body, []byte("sailor_42"), []byte("sailor_43"), 1)
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, q)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	policy := urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
	if r.url, err = policy.Parse("https://" + l.Addr().String() + "/verified"); err != nil {
		t.Fatal(err)
	}
	r.roots = ca.Pool()
	r.client = callback.New(callback.Config{RootCAs: ca.Pool(), Policy: policy, Timeout: time.Minute})
}

// send sends one callback, as the dispatcher does.
func (r *running) send(t *testing.T, secrets []string, at time.Time, tamper bool) callback.Answer {
	t.Helper()
	r.tamper = tamper
	request, err := r.client.Prepare(callback.Callback{
		URL: r.url, Session: session, PlatformUserID: "sailor_42", GuildID: "grüße 🌊", Verified: true,
		Secrets: secrets, At: at,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := r.client.Dial(t.Context(), r.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.Send(t.Context(), request)
}

// sendTest sends the callback of a test key, with a client of its own: validly signed, and not to be
// processed.
func (r *running) sendTest(t *testing.T) int {
	t.Helper()
	const id, body = "cbtest_" + string(session),
		`{"platform_user_id":"sailor_42","guild_id":"grüße 🌊","verified":true}`
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	signature, err := hook.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url.String(),
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(callback.HeaderID, id)
	q.Header.Set(callback.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	q.Header.Set(callback.HeaderSignature, signature)
	c := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: r.roots}},
	}
	response, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// words is the output of a program, read while it runs.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// listens waits until the program listens, and reports whether it does; otherwise it has ended.
func listens(t *testing.T, port int, ended <-chan struct{}, said *words) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := new(net.Dialer).
			DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-tick.C:
		case <-ended:
			return false
		case <-ctx.Done():
			t.Fatalf("the program does not listen:\n%s", said.String())
		}
	}
}
