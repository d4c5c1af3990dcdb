package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// What older builds have stored is kept in testdata/upgrade, one file for each. A build that changes how a
// record is stored adds one from the previous build:
//
//	go build -o /tmp/verifyd-old ./cmd/verifyd    # in a worktree of the older commit
//	go test ./cmd/verifyd -run WriteUpgrade -args -upgrade-from /tmp/verifyd-old -upgrade-name COMMIT
var (
	upgradeFrom = flag.String("upgrade-from", "", "binary of an older build, to write down what it stores")
	upgradeName = flag.String("upgrade-name", "", "the older build's commit")
)

// olderStore is what an older build has stored, and how that build read it.
type olderStore struct {
	Key      string              `json:"master_key"` // base64; it seals only tests
	APIKey   string              `json:"api_key"`
	Revoked  string              `json:"revoked_key"`
	Sessions map[string]readBack `json:"sessions"` // by token
	Messages []olderMessage      `json:"messages"`
}

type readBack struct {
	User     string `json:"user"`
	State    string `json:"state"`
	Delivery string `json:"delivery"`
	Attempts int    `json:"attempts"`
}

type olderMessage struct {
	Stream  string      `json:"stream"`
	Subject string      `json:"subject"`
	Data    []byte      `json:"data,omitempty"`
	Header  nats.Header `json:"header,omitempty"`
}

func upgradeFile(name string) string {
	return filepath.Join("testdata", "upgrade", name+".json.gz")
}

// TestWriteUpgrade makes a file of testdata/upgrade.
func TestWriteUpgrade(t *testing.T) {
	t.Parallel()
	if *upgradeFrom == "" {
		t.Skip("it writes testdata, by an older binary that is named")
	}
	c := newChild(t)
	c.exe = *upgradeFrom
	c.start(t)
	older, _ := c.fill(t)
	c.kill()
	older.Key = must[secretbox.Key](t)(secretbox.Load(filepath.Join(c.dir, "store", "secret.key"))).Encode()
	older.Messages = c.everything(t)
	var text bytes.Buffer
	zip := must[*gzip.Writer](t)(gzip.NewWriterLevel(&text, gzip.BestCompression))
	if err := json.NewEncoder(zip).Encode(older); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(upgradeFile(*upgradeName), text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fill makes a running service store a session of each kind, an account, a key, and a revoked one. Nobody
// listens at away, where one callback is due.
func (c *child) fill(t *testing.T) (older olderStore, away string) {
	t.Helper()
	older = olderStore{Sessions: map[string]readBack{}}
	must[string](t)(c.command(t, "account", "create", "Harbor Guild"))
	create := []string{"key", "create", "--account", "Harbor Guild"}
	older.APIKey = must[string](t)(c.command(t, create...))
	first := must[string](t)(c.command(t, "key", "list"))
	older.Revoked = must[string](t)(c.command(t, create...))
	for _, id := range regexp.MustCompile(`key_\w+`).
		FindAllString(must[string](t)(c.command(t, "key", "list")), -1) {
		if !strings.Contains(first, id) {
			must[string](t)(c.command(t, "key", "revoke", id))
		}
	}
	b := &backedUp{child: c, api: api{base: c.base(), key: older.APIKey}}
	b.api.knownSoon(t)
	want := map[string]string{}
	ends := func(delivery string) {
		w := b.sign(t, c.inbox.CallbackURL())
		b.api.until(t, w.session.Session, delivery)
		want[w.session.Session] = delivery
	}
	ends("delivered")
	c.inbox.retryAfter("1")
	ends("rejected")
	c.inbox.retryAfter("")
	away = natstest.Address(t)
	want[b.sign(t, "https://"+away+"/callbacks").session.Session] = "due"
	pending := b.api.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "guild_id": "g", "callback_url": c.inbox.CallbackURL(),
	})
	want[pending.Session] = "none"
	answer := c.inbox.keepWaiting()
	open := b.sign(t, c.inbox.CallbackURL()).session.Session
	<-c.inbox.got
	if v := b.api.until(t, open, "claimed"); v.Delivery.State != "claimed" {
		t.Fatal(v)
	}
	c.kill()
	answer()
	c.start(t)
	want[open] = "unknown"
	for token, delivery := range want {
		v := b.api.until(t, token, delivery)
		older.Sessions[token] = readBack{
			v.PlatformUserID, v.State, v.Delivery.State, len(v.Delivery.Attempts),
		}
	}
	return older, away
}

// open opens the store of a stopped service, whatever it contains.
func (c *child) open(t *testing.T) (conn *natsconf.Conn, closed func()) {
	t.Helper()
	e := must[*embedded.Server](t)(embedded.Open(embedded.Options{
		DataDir: filepath.Join(c.dir, "store"), Log: zerolog.Nop(),
	}))
	stop := natstest.Serve(t, e)
	<-e.Ready()
	conn = must[*natsconf.Conn](t)(natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		Embedded: e, Log: zerolog.Nop(),
	}))
	return conn, func() { conn.Close(); stop(); _ = e.Close() }
}

// everything reads all that a stopped service has stored, whatever its streams are.
func (c *child) everything(t *testing.T) (all []olderMessage) {
	t.Helper()
	conn, closed := c.open(t)
	defer closed()
	host := must[string](t)(os.Hostname()) // it is in the workers' names, and does not matter
	names := conn.JS.StreamNames(t.Context())
	for name := range names.Name() {
		_, last, err := conn.Bounds(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.Pages(t.Context(), name, ">", 1, last, func(msgs []jetstream.Msg) error {
			for _, m := range msgs {
				all = append(all, olderMessage{
					name, m.Subject(), bytes.ReplaceAll(m.Data(), []byte(`"`+host+"."), []byte(`"host.`)),
					m.Headers(),
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A service that is upgraded reads what the builds before it have stored: sessions and how they ended, keys,
// accounts and their secrets, and continues what they had not finished.
func TestOlderRecordsAreRead(t *testing.T) {
	natstest.NeedsEmbedded(t, "fills its data directory before it starts")
	t.Parallel()
	files := must[[]string](t)(filepath.Glob(upgradeFile("*")))
	if len(files) < 2 {
		t.Fatalf("%d older builds in testdata/upgrade", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json.gz"), func(t *testing.T) {
			older := readOlder(t, file)
			dir := filepath.Join(t.TempDir(), "store")
			older.store(t, dir)
			key := must[secretbox.Key](t)(secretbox.ParseKey(older.Key))
			r := boot(t, func(c *config.Config) { c.Store.DataDir, c.Store.Key = dir, &key })
			a := api{base: r.Base, key: older.APIKey}
			older.judge(t, a)
			s := a.init(t, map[string]any{
				"platform": "p", "platform_user_id": "u", "callback_url": r.inbox.CallbackURL(),
			})
			must[*demo.Page](t)(demo.NewBrowser().Open(t.Context(), s.VerifyURL))
			accounts, err := r.Store.Accounts.Accounts(t.Context())
			if err != nil || len(accounts) != 1 || len(accounts[0].Secrets) != 1 ||
				!strings.HasPrefix(accounts[0].Secrets[0].Value, "whsec_") {
				t.Errorf("%d accounts, %v", len(accounts), err)
			}
		})
	}
}

// like checks that a session reads as the older build read it.
func (want readBack) like(t *testing.T, v receipt) {
	t.Helper()
	if want.State == "pending" && v.State == "expired" {
		want.State = "expired" // its ten minutes are over, unless it was stored just now
	}
	got := readBack{v.PlatformUserID, v.State, v.Delivery.State, len(v.Delivery.Attempts)}
	if want.Delivery == "due" { // it is continued at once; one that is as old as outcomes may be is given up
		want.Delivery = got.Delivery
		if got.Delivery == "undeliverable" {
			want.Attempts = 1 // the claim under which it is given up
		}
	}
	if got != want {
		t.Errorf("a session of the older build reads %+v, want %+v", got, want)
	}
}

func readOlder(t *testing.T, file string) (older olderStore) {
	t.Helper()
	f := must[*os.File](t)(os.Open(file))
	defer func() { _ = f.Close() }()
	if err := json.NewDecoder(must[*gzip.Reader](t)(gzip.NewReader(f))).Decode(&older); err != nil {
		t.Fatal(err)
	}
	return older
}

// store puts the messages into a new store as they were, but for what the server has put into them itself.
func (o olderStore) store(t *testing.T, dir string) {
	t.Helper()
	conn, stop := natstest.StartIn(t, dir)
	defer stop()
	for _, m := range o.Messages {
		header := nats.Header{}
		for name, values := range m.Header {
			if !strings.HasPrefix(name, "Nats-") {
				header[name] = values
			}
		}
		switch {
		case m.Stream == topology.StreamUsage:
			header.Set("Nats-Incr", "+1")
			m.Data = nil
		case m.Stream == topology.StreamRetries && strings.HasPrefix(m.Subject, "schedule."):
			m.Subject = strings.Replace(m.Subject, "schedule.", "retry.", 1) // it has been due for long
		}
		if _, err := conn.JS.PublishMsg(t.Context(), &nats.Msg{
			Subject: m.Subject, Data: m.Data, Header: header,
		}); err != nil {
			t.Fatalf("%s: %v", m.Subject, err)
		}
	}
}
