package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/account"
	"verifyd/edge/devnetwork"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// fuzzKey is the master key of the seeds of fuzz targets.
var fuzzKey = secretbox.Key([]byte("verifyd fuzz seeds, not a secret"))

// The fuzz targets begin with the bytes of a service: of a session that is verified after its receiver had
// sent a callback away once, with another try that was requested; of one that is confirmed with a code; and
// of one whose receiver asks for another try in an hour. If a service writes something in another form than
// the stored seed, this reports it:
//
//	go test ./cmd/verifyd -run TestFuzzSeeds -args -update
//
// rewrites that seed, and leaves the others as they are.
func TestFuzzSeeds(t *testing.T) {
	natstest.NeedsEmbedded(t, "the bytes are the same on a cluster")
	t.Parallel()
	w := &seedWalk{t: t, wire: newRecorder(t), seeds: map[string][]any{}}
	w.boot()
	w.sessions()
	w.store()
	w.connections()
	w.backup()
	for _, name := range slices.Sorted(maps.Keys(w.seeds)) {
		keepSeed(t, name, w.seeds[name])
	}
	if len(w.seeds) < 25 {
		t.Errorf("%d seeds: %q", len(w.seeds), slices.Sorted(maps.Keys(w.seeds)))
	}
}

// seedWalk is one run of a service, and what it has stored.
type seedWalk struct {
	t     *testing.T
	r     *rig
	wire  *recorder
	seeds map[string][]any // the arguments of a fuzz target, by PACKAGE/TARGET/NAME
	first demo.Started     // the session that is delivered
	late  demo.Started     // the one whose receiver is to be asked again in an hour
}

// add records the arguments of a target, without the name of this machine and process.
func (w *seedWalk) add(target, name string, args ...any) {
	host, err := os.Hostname()
	if err != nil {
		w.t.Fatal(err)
	}
	for i, a := range args {
		if b, ok := a.([]byte); ok {
			args[i] = bytes.ReplaceAll(b, fmt.Appendf(nil, "%s.%d.", host, os.Getpid()), []byte("host.1."))
		}
	}
	w.seeds[target+"/"+name] = args
}

// recorder is between a browser and the service, and between the service and the identity network.
type recorder struct {
	network *httptest.Server
	issuer  *devnetwork.Provider

	mu      sync.Mutex
	cookies []*http.Cookie
	returns []string          // queries of returns from the network
	answers map[string][]byte // of the network, by path
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	p := &recorder{answers: map[string][]byte{}}
	var there *url.URL
	p.network = httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(there) },
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answers[r.Request.URL.Path] = body
			return err
		},
	})
	t.Cleanup(p.network.Close)
	at := natstest.Address(t)
	there = &url.URL{Scheme: "http", Host: at}
	p.issuer = must[*devnetwork.Provider](t)(devnetwork.New(devnetwork.Config{Listen: at,
		Issuer: p.network.URL}))
	if err := p.issuer.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.issuer.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// browser returns one whose requests are recorded.
func (p *recorder) browser() *demo.Browser {
	b := demo.NewBrowser()
	transport := p.network.Client().Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	b.Client.Transport = noting{transport, p}
	return b
}

type noting struct {
	http.RoundTripper
	to *recorder
}

func (n noting) RoundTrip(q *http.Request) (*http.Response, error) {
	n.to.mu.Lock()
	n.to.cookies = append(n.to.cookies, q.Cookies()...)
	if strings.HasSuffix(q.URL.Path, "/callback") {
		n.to.returns = append(n.to.returns, q.URL.RawQuery)
	}
	n.to.mu.Unlock()
	return n.RoundTripper.RoundTrip(q)
}

// boot starts the service under the known master key, traced.
func (w *seedWalk) boot() {
	w.r = boot(w.t, collect(w.t).to(w.t), func(c *config.Config) {
		dir := c.Store.DataDir
		if err := os.MkdirAll(dir, 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := secretbox.Save(filepath.Join(dir, config.SecretFile), fuzzKey); err != nil {
			w.t.Fatal(err)
		}
		n := w.wire.issuer.Settings()
		n.ID, n.Name = "default", "Example Network"
		c.Networks = append(c.Networks, n)
		c.NetworkRoots = x509.NewCertPool()
		c.NetworkRoots.AddCert(w.wire.network.Certificate())
	})
	w.wire.issuer.AllowRedirect(w.r.Base + "/signin/default/callback")
}

// sessions are what integrators and users do.
func (w *seedWalk) sessions() {
	t, r := w.t, w.r
	r.inbox.retryAfter("1")
	body := `{"platform":"discord","platform_user_id":"sailor_42","guild_id":"118","callback_url":"` +
		r.inbox.CallbackURL() + `"}`
	w.add("edge/api/FuzzDecodeVerification", "init", []byte(body))
	status, first := r.api().tryKeyed(t.Context(), "an-order", r.inbox.CallbackURL())
	if status != http.StatusOK {
		t.Fatal(status)
	}
	w.first = first
	w.verify(w.first)
	id := r.api().until(t, w.first.Session, "rejected").ID
	got := <-r.inbox.got
	w.add("edge/client/FuzzVerify", "callback", got.Header.Get("Webhook-Id"), got.Body, 7, byte(1))
	if status, _, answer := r.api().call(t, http.MethodPost, "/sessions/"+id+"/resend", ""); status >= 300 {
		t.Fatalf("resend: %d %s", status, answer)
	}
	r.api().until(t, w.first.Session, "delivered")
	w.add("sessions/FuzzParseID", "token", w.first.Session)
	w.add("sessions/FuzzParseID", "id", id)

	a := must[account.Account](t)(r.Store.Accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	key, _, err := r.Store.Accounts.CreateKey(t.Context(), operator(), a.ID,
		account.KeyOptions{Name: "patient", Policy: sessions.PolicyAtLeastOnce})
	if err == nil {
		err = r.Knows(t.Context(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	confirmed := r.api().init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": r.inbox.CallbackURL(), "binding": "code",
	})
	code := w.signIn(confirmed).Code()
	w.add("sessions/proof/FuzzParseCode", "code", code)
	status, _, answer := r.api().call(t, http.MethodPost, "/sessions/"+confirmed.Session+"/confirm",
		fmt.Sprintf(`{"platform_user_id":"u","code":%q}`, code))
	if status != http.StatusOK {
		t.Fatalf("confirm: %d %s", status, answer)
	}
	r.inbox.retryAfter("3600")
	patient := api{base: r.Base, key: key}
	w.late = patient.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": r.inbox.CallbackURL(),
	})
	w.verify(w.late)

	_, _, page := r.api().call(t, http.MethodGet, "/sessions?limit=1", "")
	var list struct{ Next string }
	if err := json.Unmarshal(page, &list); err != nil || list.Next == "" {
		t.Fatalf("%s: %v", page, err)
	}
	w.add("sessions/lists/FuzzCursor", "next", list.Next)
	w.add("edge/api/FuzzListQuery", "next", "limit=1&state=verified&cursor="+url.QueryEscape(list.Next))
}

func (w *seedWalk) verify(s demo.Started) {
	expectTitle(w.t, w.signIn(s), http.StatusOK, "You are verified")
}

// signIn returns the page that the user returns to.
func (w *seedWalk) signIn(s demo.Started) *demo.Page {
	b := w.wire.browser()
	at := must[*demo.Page](w.t)(b.Open(w.t.Context(), s.VerifyURL))
	for _, button := range []string{"default", "sign-in"} {
		at = must[*demo.Page](w.t)(b.Press(w.t.Context(), at, button))
	}
	return at
}

// store is what the service has stored.
func (w *seedWalk) store() {
	t, conn := w.t, w.r.Store.Conn
	id := w.r.api().read(t, w.late.Session).ID
	natstest.Await(t, "a retry is scheduled", func() bool {
		m, err := conn.Last(t.Context(), topology.StreamRetries, "schedule."+id)
		if err == nil {
			w.add("sessions/records/FuzzRetry", "retry", m.Data)
		}
		return err == nil
	})
	m := must[*jetstream.RawStreamMsg](t)(conn.Last(t.Context(),
		topology.BucketStream(topology.BucketIdempotency), ">"))
	w.add("sessions/records/FuzzRecord", "reservation", "reservation", m.Data)
	w.each(topology.StreamCompletions, func(subject string, data []byte) {
		k, ok := facts.ParseSubject(subject)
		if !ok {
			t.Fatalf("subject %q", subject)
		}
		w.add("sessions/facts/FuzzParseSubject", k.Kind, subject)
		switch k.Kind {
		case "completion":
			w.add("sessions/records/FuzzCompletion", "completion-v"+formVersion(t, data), data)
		case "claim":
			w.add("sessions/records/FuzzClaim", "claim", data)
		case "result":
			name := string(records.DecodeVerdict(data))
			if bytes.Contains(data, []byte(`"next"`)) {
				name += "-again"
			}
			w.add("sessions/records/FuzzResult", name, data)
		default:
			w.add("sessions/records/FuzzRecord", k.Kind, k.Kind, data)
		}
	})
	w.each(topology.StreamEvents, func(subject string, data []byte) {
		if name := strings.Split(subject, ".")[1]; name == "returned" { // others may come or not
			w.add("sessions/records/FuzzRecord", "event", "event", data)
		}
	})
	w.each(topology.BucketStream(topology.BucketSessions), func(subject string, data []byte) {
		switch words := strings.Split(subject, "."); {
		case words[2] == "progress":
			w.add("sessions/records/FuzzRecord", "progress", "progress", data)
		case strings.HasPrefix(words[2], "acc_"):
			w.add("sessions/records/FuzzCompletion", "session-v"+formVersion(t, data), data)
		}
	})
	w.each(topology.BucketStream(topology.BucketAccounts), func(subject string, data []byte) {
		if name := strings.TrimPrefix(subject, "$KV.accounts."); strings.HasPrefix(name, "acc_") {
			w.add("edge/account/record/FuzzAccount", "account", name, data)
		}
	})
	w.each(topology.BucketStream(topology.BucketKeys), func(subject string, data []byte) {
		w.add("edge/account/record/FuzzKey", "key", strings.TrimPrefix(subject, "$KV.keys."), data)
	})
}

func formVersion(t *testing.T, data []byte) string {
	t.Helper()
	var r struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(r.Version)
}

func (w *seedWalk) each(stream string, do func(subject string, data []byte)) {
	w.t.Helper()
	first, last, err := w.r.Store.Conn.Bounds(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	msgs, err := w.r.Store.Conn.Range(w.t.Context(), stream, ">", first, last)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range msgs {
		do(m.Subject(), m.Data())
		if parent := m.Headers().Get("traceparent"); parent != "" {
			w.add("sessions/tracing/FuzzTraceparent", "session", parent)
		}
	}
}

// connections records the bytes of other programs.
func (w *seedWalk) connections() {
	t, r := w.t, w.r
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	for _, c := range w.wire.cookies {
		if tag, ok := strings.CutPrefix(c.Name, "verifyd_flow_"); ok {
			w.add("edge/flow/FuzzOpenFlow", "cookie", tag, c.Value, 9, byte(1))
		}
	}
	for _, query := range w.wire.returns {
		w.add("edge/network/FuzzParseReturn", "return", query)
	}
	for path, answer := range w.wire.answers {
		var token struct {
			ID string `json:"id_token"`
		}
		if json.Unmarshal(answer, &token) == nil && strings.Count(token.ID, ".") == 2 {
			claims := must[[]byte](t)(base64.RawURLEncoding.DecodeString(strings.Split(token.ID, ".")[1]))
			w.add("edge/network/FuzzUserInfo", "id-token", claims, "sub")
		} else if strings.Contains(path, "openid-configuration") {
			w.add("edge/network/FuzzUserInfo", "metadata", answer, "issuer")
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.inbox.ca.PEM())
	receiver := must[*url.URL](t)(url.Parse(r.inbox.CallbackURL()))
	host := receiver.Hostname()
	for range 2 { // it takes the second
		conn := must[*tls.Conn](t)(tls.Dial("tcp", receiver.Host, &tls.Config{ServerName: host,
			RootCAs: roots}))
		answer := exchange(t, conn, "POST /callbacks HTTP/1.1\r\nHost: "+receiver.Host+
			"\r\nWebhook-Id: seed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		w.add("dispatcher/callback/FuzzAnswer", string(answer[9:12]), answer)
	}
	for name, to := range map[string]string{"established": receiver.Host, "refused": natstest.Address(t)} {
		conn := must[net.Conn](t)(net.Dial("tcp", newEgress(t).Listener.Addr().String()))
		w.add("dispatcher/callback/FuzzProxyAnswer", name,
			exchange(t, conn, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n"))
	}
}

// exchange sends a request as it is, and returns all of the answer that comes at once.
func exchange(t *testing.T, conn net.Conn, request string) []byte {
	t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4<<10)
	n, err := conn.Read(b)
	if err != nil || n < 12 {
		t.Fatalf("%q, %v", b[:n], err)
	}
	return b[:n]
}

// backup is a whole file, which its target reads as it is.
func (w *seedWalk) backup() {
	const seed = "../../natsconf/transfer/testdata/seed.backup"
	check := func(path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := transfer.Open(f)
		if err != nil {
			return err
		}
		held, err := b.Check(fuzzKey, func(string, string) {})
		if err == nil && len(held) < 10 {
			err = fmt.Errorf("it holds %v", held)
		}
		return err
	}
	file := filepath.Join(w.t.TempDir(), "backup")
	if code, _, errOut := w.r.run(w.t, "backup", file); code != 0 {
		w.t.Fatal(errOut)
	}
	if err := check(file); err != nil {
		w.t.Fatal(err)
	}
	err := check(seed)
	if err != nil && *updateDocs {
		if err := os.MkdirAll(filepath.Dir(seed), 0o755); err != nil {
			w.t.Fatal(err)
		}
		err = os.WriteFile(seed, must[[]byte](w.t)(os.ReadFile(file)), 0o644)
	}
	if err != nil {
		w.t.Errorf("%s: %v; write it anew with -args -update", seed, err)
	}
}

// keepSeed compares the form of a target's arguments with that of the stored seed, and writes the seed if
// they differ and -update is set.
func keepSeed(t *testing.T, name string, args []any) {
	t.Helper()
	pkg, target, kind := filepath.Dir(filepath.Dir(name)), filepath.Base(filepath.Dir(name)),
		filepath.Base(name)
	path := filepath.Join("../..", pkg, "testdata", "fuzz", target, kind)
	text, err := os.ReadFile(path)
	if err == nil && seedForm(string(text)) == seedForm(corpus(args)) {
		return
	}
	if !*updateDocs {
		t.Errorf("%s: %v; its form is\n%s\nand the service writes\n%s\nwrite it anew with -args -update",
			path, err,
			seedForm(string(text)), seedForm(corpus(args)))
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(corpus(args)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// corpus writes the arguments of a target as the go command reads them.
func corpus(args []any) string {
	text := "go test fuzz v1\n"
	for _, a := range args {
		switch v := a.(type) {
		case []byte:
			text += "[]byte(" + strconv.Quote(string(v)) + ")\n"
		case string:
			text += "string(" + strconv.Quote(v) + ")\n"
		case int:
			text += fmt.Sprintf("int(%d)\n", v)
		case byte:
			text += "byte(" + strconv.QuoteRune(rune(v)) + ")\n"
		default:
			panic(fmt.Sprintf("%T", a))
		}
	}
	return text
}

// seedForm is the part of a seed that is the same in each run: the types of its values, and the members of
// those that are JSON objects, but for how long things took.
func seedForm(corpus string) string {
	var form []string
	for line := range strings.Lines(corpus) {
		kind, rest, ok := strings.Cut(strings.TrimSpace(line), "(")
		if !ok {
			continue
		}
		form = append(form, kind)
		text, err := strconv.Unquote(strings.TrimSuffix(rest, ")"))
		var members map[string]any
		if err == nil && json.Unmarshal([]byte(text), &members) == nil {
			delete(members, "timing")
			form = append(form, fmt.Sprint(slices.Sorted(maps.Keys(members)), " v", members["v"]))
		}
	}
	return strings.Join(form, " ")
}
