package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/command/storage"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
)

// backedUp is a service with one session of each kind, and a backup of it.
type backedUp struct {
	*child
	api     api
	file    string
	settled walk         // delivered before the backup
	due     walk         // verified, its receiver down at the time of the backup
	pending demo.Started // nobody has opened its page
}

func newBackedUp(t *testing.T) *backedUp {
	t.Helper()
	c := newChild(t)
	c.start(t)
	b := &backedUp{child: c, file: filepath.Join(t.TempDir(), "backup")}
	b.api = api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
	b.api.knownSoon(t)
	b.settled = b.sign(t, c.inbox.CallbackURL())
	if v := b.api.settled(t, b.settled.session.Session); v.Delivery.State != "delivered" {
		t.Fatalf("delivery %s", v.Delivery.State)
	}
	b.due = b.sign(t, "https://"+natstest.Address(t)+"/callbacks") // nobody listens there
	b.pending = b.api.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": c.inbox.CallbackURL(),
	})
	must[string](t)(c.command(t, "backup", b.file))
	return b
}

func (b *backedUp) sign(t *testing.T, callback string) walk {
	t.Helper()
	w := walk{c: b.child, api: b.api, browser: demo.NewBrowser()}
	w.session = b.api.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": callback,
	})
	for _, s := range steps[1:] {
		s.do(t, &w)
	}
	return w
}

// restored returns the service on another data directory, into which the backup was restored; the service
// that was backed up is gone.
func (b *backedUp) restored(t *testing.T, args ...string) *child {
	t.Helper()
	b.kill()
	n := *b.child
	n.dir, n.log = t.TempDir(), &buffer{}
	n.ownStore(t)
	if !natstest.OnCluster() { // there it is in the settings, which stay
		n.keep(t, filepath.Join(b.dir, "store", "secret.key"))
	}
	if out, err := n.command(t, append([]string{"restore", b.file}, args...)...); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	return &n
}

// keep puts a master key where the service of this data directory reads it.
func (c *child) keep(t *testing.T, from string) {
	t.Helper()
	key := must[secretbox.Key](t)(secretbox.Load(from))
	if err := os.MkdirAll(filepath.Join(c.dir, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := secretbox.Save(filepath.Join(c.dir, "store", "secret.key"), key); err != nil {
		t.Fatal(err)
	}
}

// What had not ended at the backup may have ended after it: a restored store sends nothing for it, and
// reports it as unknown.
func TestRestoreSendsNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	// After the backup, and so not in it, the pending session is verified and delivered.
	w := walk{c: b.child, api: b.api, browser: demo.NewBrowser(), session: b.pending}
	for _, s := range steps[1:] {
		s.do(t, &w)
	}
	after := b.api.settled(t, b.pending.Session)
	if after.Delivery.State != "delivered" {
		t.Fatalf("delivery %s", after.Delivery.State)
	}
	_, _, publicKeys := b.api.call(t, http.MethodGet, "/signing-keys", "")
	n := b.restored(t)
	n.start(t)
	if _, _, keys := b.api.call(t, http.MethodGet, "/signing-keys", ""); !bytes.Equal(keys, publicKeys) ||
		!bytes.Contains(keys, []byte("whpk_")) {
		t.Errorf("public keys %s, before the restore %s", keys, publicKeys)
	}
	if v := b.api.read(t, b.settled.session.Session); v.Delivery.State != "delivered" ||
		v.State != "verified" || len(v.Delivery.Attempts) != 1 {
		t.Errorf("what was delivered before the backup: %+v", v)
	}
	if v := b.api.read(t, b.due.session.Session); v.Delivery.State != "unknown" || v.State != "verified" {
		t.Errorf("what was due at the backup: %+v", v)
	}
	if v := b.api.read(t, b.pending.Session); v.State != "expired" || v.Delivery.State != "none" {
		t.Errorf("what was open at the backup: %+v", v)
	}
	if p := must[*demo.Page](t)(demo.NewBrowser().
		Open(t.Context(), b.pending.VerifyURL)); p.Status == http.StatusOK {
		t.Errorf("an open session's page after a restore: %d %q", p.Status, p.Title())
	}
	if posts := n.inbox.count(after.ID); posts != 1 {
		t.Errorf("%d POSTs for the session that was completed after the backup", posts)
	}
	// The service continues as before: another session, and a person who resends an unknown one.
	fresh := (&backedUp{child: n, api: b.api}).sign(t, n.inbox.CallbackURL())
	if v := b.api.settled(t, fresh.session.Session); v.Delivery.State != "delivered" ||
		n.inbox.count(v.ID) != 1 {
		t.Errorf("a new session: %+v", v)
	}
	id := b.api.read(t, b.due.session.Session).ID
	if status, _, body := b.api.call(t, http.MethodPost, "/sessions/"+id+"/resend",
		""); status != http.StatusAccepted && status != http.StatusOK {
		t.Errorf("send again: %d %s", status, body)
	}
}

// A service that was stopped before its backup, and has not run since, continues where it was.
func TestRestoreContinues(t *testing.T) {
	t.Parallel()
	b := newBackedUp(t)
	if out, err := b.command(t, "restore", "--go-on", b.file); err == nil ||
		!strings.Contains(err.Error(), "the service ran while") {
		t.Errorf("a backup of a service that ran: %s %v", out, err)
	}
	b.stopAndBackUp(t)
	n := b.restored(t, "--go-on")
	n.start(t)
	if v := b.api.read(t, b.due.session.Session); v.Delivery.State != "due" {
		t.Errorf("what was due at the backup: %+v", v)
	}
	w := walk{c: n, api: b.api, browser: demo.NewBrowser(), session: b.pending}
	for _, s := range steps[1:] {
		s.do(t, &w)
	}
	if v := b.api.settled(t, b.pending.Session); v.Delivery.State != "delivered" || n.inbox.count(v.ID) != 1 {
		t.Errorf("what was open at the backup: %+v", v)
	}
}

// A service that is slow to answer, or begins to run while the backup is made, is not mistaken for a stopped
// one.
func TestBackupDetectsARunningService(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "holds a data directory")
	dir := t.TempDir()
	holder := must[*store.Store](t)(store.Open(t.Context(),
		config.Store{DataDir: dir, Topology: topology.Options{Embedded: true}}, zerolog.Nop(),
		store.ToServe))
	defer holder.Close() // it answers no request at all
	if header, err := (headerOf{DataDir: dir}).backUp(t, nil); err != nil || !header.Running {
		t.Errorf("a data directory that another process holds: %+v, %v", header, err)
	}

	e := natstest.StartExternal(t)
	edge := e.Connect(t, permission.RoleEdge)
	external := headerOf{
		NATSURL: e.URL, NATSCreds: e.Credential(permission.RoleOperator), SecretKey: secretbox.NewKey().
				Encode(), Replicas: 1,
	}
	if code, _, errOut := verifyd(t, "apply", "--nats-url", e.URL, "--nats-creds", external.NATSCreds,
		"--secret-key", external.SecretKey, "--replicas", "1"); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	if header, err := external.backUp(t, nil); err != nil || header.Running {
		t.Errorf("while nobody runs: %+v, %v", header, err)
	}
	var runs atomic.Bool
	sub := must[*nats.Subscription](t)(edge.NC.Subscribe(topology.SubjectFleet, func(m *nats.Msg) {
		if runs.Load() {
			time.AfterFunc(time.Second, func() { _ = m.Respond([]byte("{}")) })
		}
	}))
	defer func() { _ = sub.Unsubscribe() }()
	if header, err := external.backUp(t, &runs); !errors.Is(err, storage.ErrBegan) {
		t.Errorf("where a service begins to run meanwhile: %+v, %v", header, err)
	}
	if header, err := external.backUp(t, nil); err != nil || !header.Running {
		t.Errorf("while a slow service runs: %+v, %v", header, err)
	}
}

// headerOf makes backups of a store for their headers.
type headerOf config.StoreSettings

// backUp sets begun, if it is given, as soon as the header is written. A backup that finds the store too slow
// is made again.
func (h headerOf) backUp(t *testing.T, begun *atomic.Bool) (transfer.Header, error) {
	t.Helper()
	w, err := &noticed{}, error(nil)
	h.Sync, h.StoreLimit, h.KeepResults = "always", "8GiB", 72*time.Hour
	b := storage.Backup{
		Local: command.Local{Store: command.Store{StoreSettings: config.StoreSettings(h)}}, File: "-",
	}
	natstest.Await(t, "the store answers in time", func() bool {
		w = &noticed{}
		if begun != nil {
			begun.Store(false)
			w.first = func() { begun.Store(true) }
		}
		err = b.Run(t.Context(), command.Console{Out: w, Err: io.Discard})
		return !errors.Is(err, context.DeadlineExceeded)
	})
	if err != nil {
		return transfer.Header{}, err
	}
	return must[*transfer.File](t)(transfer.Open(bytes.NewReader(w.Bytes()))).Header, nil
}

// noticed is a buffer that calls first at its first byte.
type noticed struct {
	bytes.Buffer

	first func()
}

func (n *noticed) Write(p []byte) (int, error) {
	if n.Len() == 0 && n.first != nil {
		n.first()
	}
	return n.Buffer.Write(p)
}

// stopAndBackUp makes the backup again, of a stopped service.
func (b *backedUp) stopAndBackUp(t *testing.T) {
	t.Helper()
	b.kill()
	b.file += "-stopped"
	must[string](t)(b.command(t, "backup", b.file))
}

// An interrupted restore leaves a store that no service runs on, so that nothing can have happened in it
// since; and only the same command finishes it: a run with --go-on would send what the interrupted run has
// ended.
func TestInterruptedRestoreIsFinishedAsItBegan(t *testing.T) {
	natstest.NeedsEmbedded(t, "stops a restore in its data directory")
	t.Parallel()
	b := newBackedUp(t)
	b.stopAndBackUp(t)
	backup := must[*transfer.File](t)(transfer.Open(must[*os.File](t)(os.Open(b.file))))
	for _, c := range []struct{ began, other storage.Restore }{
		{storage.Restore{}, storage.Restore{GoOn: true}},
		{storage.Restore{GoOn: true}, storage.Restore{}},
	} {
		n := *b.child
		n.dir, n.log = t.TempDir(), &buffer{}
		n.ownStore(t)
		n.keep(t, filepath.Join(b.dir, "store", "secret.key"))
		began(t, n.dir, c.began, backup.Header)
		if err := n.run(); err != nil {
			t.Fatal(err)
		}
		if err := n.end(t); err == nil || !strings.Contains(n.log.String(), "is incomplete") {
			t.Errorf("go on %v: the service starts on a store that is being filled: %v\n%s", c.began.GoOn,
				err, n.log)
		}
		if out, err := n.command(t, append(restoreArgs(c.other), b.file)...); err == nil ||
			!strings.Contains(err.Error(), "with or without --go-on as before") {
			t.Errorf("begun with go on %v, finished with %v: %s %v", c.began.GoOn, c.other.GoOn, out, err)
		}
		if out, err := n.command(t, append(restoreArgs(c.began), b.file)...); err != nil {
			t.Errorf("the same command again: %s %v", out, err)
		}
	}
}

// restoreArgs are the command line of a restore, without the file.
func restoreArgs(r storage.Restore) []string {
	if r.GoOn {
		return []string{"restore", "--go-on"}
	}
	return []string{"restore"}
}

// began leaves a store as a restore does that was interrupted before it copied anything.
func began(t *testing.T, dir string, r storage.Restore, h transfer.Header) {
	t.Helper()
	cfg := config.Store{
		DataDir: filepath.Join(dir, "store"), Topology: topology.Options{Embedded: true},
	}
	st := must[*store.Store](t)(store.Open(t.Context(), cfg, zerolog.Nop(), store.ToFill))
	defer st.Close()
	if _, err := r.Begin(t.Context(), st, store.Assets(), h); err != nil {
		t.Fatal(err)
	}
}

// A file that is no complete backup of this service is refused, and leaves nothing behind.
func TestRestoreRefuses(t *testing.T) {
	natstest.NeedsEmbedded(t, "alters the master key in its data directory, and looks for what is left there")
	t.Parallel()
	b := newBackedUp(t)
	whole := must[[]byte](t)(os.ReadFile(b.file))
	flipped := func(at int) []byte {
		text := bytes.Clone(whole)
		text[at] ^= 1
		return text
	}
	head := bytes.IndexByte(whole, '\n')
	other := func(c *child) {
		if err := os.MkdirAll(filepath.Join(c.dir, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := secretbox.Save(filepath.Join(c.dir, "store", "secret.key"),
			secretbox.NewKey()); err != nil {
			t.Fatal(err)
		}
	}
	same := func(c *child) { c.keep(t, filepath.Join(b.dir, "store", "secret.key")) }
	for name, c := range map[string]struct {
		text []byte
		key  func(*child)
		want string
	}{
		"empty":                  {nil, same, "not a backup"},
		"something else":         {[]byte("SQLite format 3\n"), same, "not a backup"},
		"header alone":           {whole[:head+1], same, "damaged"},
		"cut within":             {whole[:len(whole)/2], same, "damaged"},
		"cut before its end":     {whole[:len(whole)-1], same, "damaged"},
		"more behind its end":    {append(bytes.Clone(whole), 'x'), same, "damaged"},
		"a bit of the middle":    {flipped(len(whole) / 2), same, "damaged"},
		"a bit of the last byte": {flipped(len(whole) - 1), same, "damaged"},
		"another instant": {
			bytes.Replace(whole, []byte(`"created_at":"2`), []byte(`"created_at":"1`), 1), same, "damaged",
		},
		"a newer version": {
			bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":3`), 1), same,
			"restore it with the newer verifyd",
		},
		"another master key": {whole, other, "another master key"},
		"no master key":      {whole, func(*child) {}, "there is no master key"},
	} {
		n := *b.child
		n.dir = t.TempDir()
		n.ownStore(t)
		c.key(&n)
		file := filepath.Join(n.dir, "backup")
		if err := os.WriteFile(file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := n.command(t, "restore", file)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q: %s %v", name, c.want, out, err)
		}
		if _, err := os.Stat(filepath.Join(n.dir, "store", "nats")); !os.IsNotExist(err) {
			t.Errorf("%s: a store was made: %v", name, err)
		}
	}
	if out, err := b.command(t, "restore", b.file); err == nil ||
		!strings.Contains(err.Error(), "new store") {
		t.Errorf("into a running service: %s %v", out, err)
	}
	b.kill()
	if out, err := b.command(t, "restore", b.file); err == nil ||
		!strings.Contains(err.Error(), "in service") {
		t.Errorf("into a store that was served: %s %v", out, err)
	}
	if out, err := b.command(t, "backup", b.file); err == nil ||
		!strings.Contains(err.Error(), "exists already") {
		t.Errorf("over another backup: %s %v", out, err)
	}
}

// A backup holds the master key only on request, and then restores without another.
func TestBackupWithTheMasterKey(t *testing.T) {
	natstest.NeedsEmbedded(t, "a data directory without a master key")
	t.Parallel()
	b := newBackedUp(t)
	key := must[secretbox.Key](t)(secretbox.Load(filepath.Join(b.dir, "store", "secret.key"))).Encode()
	if bytes.Contains(must[[]byte](t)(os.ReadFile(b.file)), []byte(key)) {
		t.Error("the backup holds the master key")
	}
	b.file += "-with-key"
	must[string](t)(b.command(t, "backup", "--with-master-key", b.file))
	b.kill()
	n := *b.child
	n.dir, n.log = t.TempDir(), &buffer{}
	n.ownStore(t)
	if out, err := n.command(t, "restore", "--replicas", "3", b.file); err == nil ||
		!strings.Contains(err.Error(), "VERIFYD_REPLICAS") {
		t.Errorf("with a setting that is wrong: %s %v", out, err)
	}
	must[string](t)(n.command(t, "restore", b.file))
	n.start(t)
	if v := b.api.read(t, b.settled.session.Session); v.Delivery.State != "delivered" {
		t.Errorf("what was delivered before the backup: %+v", v)
	}
}
