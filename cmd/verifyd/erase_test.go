package main

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// planted is the text that the tests search for after an erasure.
const planted = "MARKER_sailor_42"

// connect connects to the store of a running service.
func (c *child) connect(t *testing.T) *natsconf.Conn {
	t.Helper()
	if natstest.OnCluster() {
		return must[*natsconf.Conn](t)(natsconf.Connect(t.Context(), natsconf.ConnectOptions{
			URL: c.natsURL, Name: t.Name(), Log: zerolog.Nop(),
		}))
	}
	return must[*natsconf.Conn](t)(store.ConnectRunning(t.Context(), filepath.Join(c.dir, "store"),
		zerolog.Nop()))
}

// readable returns the streams that hold a text in a readable message.
func (c *child) readable(t *testing.T, text string) map[string]int {
	t.Helper()
	conn := c.connect(t)
	defer conn.Close()
	held := map[string]int{}
	for _, s := range topology.New(topology.Options{}).Streams {
		_, last, err := conn.Bounds(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.Pages(t.Context(), s.Name, ">", 1, last, func(msgs []jetstream.Msg) error {
			for _, m := range msgs {
				if strings.Contains(string(m.Data())+m.Subject(), text) {
					held[s.Name]++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return held
}

// newest returns the middle of a stream's newest message, by which it is found in files.
func (c *child) newest(t *testing.T, stream string) string {
	t.Helper()
	conn := c.connect(t)
	defer conn.Close()
	m := must[*jetstream.RawStreamMsg](t)(conn.Last(t.Context(), stream, ">"))
	return string(m.Data[len(m.Data)/2:][:100])
}

// onDisk returns the files of a folder that hold a text.
func onDisk(t *testing.T, folder, text string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreMissing(err) // a running process rewrites files
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), text) {
			files = append(files, path)
		}
		return ignoreMissing(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// signAs walks one user's session to its end.
func (b *backedUp) signAs(t *testing.T, user, guild string) receipt {
	t.Helper()
	w := walk{c: b.child, api: b.api, browser: demo.NewBrowser()}
	w.session = b.api.init(t, map[string]any{
		"platform": "harbor", "platform_user_id": user, "guild_id": guild,
		"callback_url": b.inbox.CallbackURL(),
	})
	for _, s := range steps[1:] {
		s.do(t, &w)
	}
	return b.api.settled(t, w.session.Session)
}

// A user is erased: no message and no file names them any more, and the keys of what is left of them are
// destroyed; all other sessions stay, and no second POST and no second outcome follow. It need not wait
// for the ten minutes of a session whose callback has ended.
func TestErase(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	c.start(t)
	b := &backedUp{child: c, file: filepath.Join(t.TempDir(), "backup")}
	b.api = api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
	b.api.knownSoon(t)
	gone, other := b.signAs(t, planted, "118"), b.signAs(t, "somebody_else", "118")
	args := []string{"erase", "--platform-user-id", planted, "--account", "Harbor Guild"}

	b.api.init(t, map[string]any{
		"platform": "harbor", "platform_user_id": "undecided", "callback_url": b.inbox.CallbackURL(),
	})
	if out, err := c.command(t, "erase", "--platform-user-id", "undecided", "--account",
		"Harbor Guild"); err == nil || !strings.Contains(err.Error(), "have not ended") {
		t.Errorf("a session that can be completed: %s %v", out, err)
	}
	if out, err := c.command(t, append(args, "--dry-run")...); err != nil ||
		!strings.Contains(out, "Harbor Guild  1 ") {
		t.Errorf("dry run: %s %v", out, err)
	}
	keys := c.newest(t, topology.StreamSessionKeys)
	if v := b.api.read(t, gone.ID); v.PlatformUserID != planted {
		t.Fatalf("before the erasure: %+v", v)
	}
	must[string](t)(c.command(t, args...))
	for _, text := range []string{planted, keys} {
		if held := c.readable(t, text); len(held) != 0 {
			t.Errorf("after the erasure the store holds %q: %v", text, held)
		}
		// on a cluster the files are the servers': package sessions reads those
		if files := onDisk(t, c.dir, text); len(files) != 0 {
			t.Errorf("after the erasure %q is in %v", text, files)
		}
	}
	if held := c.readable(t, "session.opened."+gone.ID); len(held) != 0 {
		t.Errorf("events of the session are there: %v", held)
	}
	for _, path := range []string{
		"/sessions/" + gone.ID, "/sessions?platform_user_id=" + planted, "/sessions",
	} {
		status, _, body := b.api.call(t, http.MethodGet, path, "")
		if strings.Contains(string(body), planted) || strings.Contains(string(body), gone.ID) ||
			status >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := b.api.call(t, http.MethodPost, "/sessions/"+gone.ID+"/resend",
		""); status != http.StatusNotFound {
		t.Errorf("send again: %d %s", status, body)
	}
	for _, command := range [][]string{
		{"deliveries", "list"}, {"deliveries", "show", gone.ID}, {"explain", gone.ID},
	} {
		if out, err := c.command(t, command...); strings.Contains(out, gone.ID) || err != nil &&
			strings.Contains(err.Error(), planted) {
			t.Errorf("%v: %s %v", command, out, err)
		}
	}
	if v := b.api.read(t, other.ID); v.Delivery.State != "delivered" {
		t.Errorf("somebody else's session: %+v", v)
	}
	if out := must[string](t)(c.command(t, "account", "audit", "Harbor Guild")); !strings.Contains(out,
		"user.erased") || strings.Contains(out, planted) {
		t.Errorf("audit log: %s", out)
	}
	if out := must[string](t)(c.command(t, args...)); !strings.Contains(out, "Harbor Guild  0 ") {
		t.Errorf("a second erasure: %s", out)
	}
	must[string](t)(c.command(t, "backup", b.file))
	n := b.restored(t)
	if files := onDisk(t, n.dir, planted); len(files) != 0 { // on a cluster the files are the servers'
		t.Errorf("the restored store's files hold the user: %v", files)
	}
	n.start(t)
	if held := n.readable(t, planted); len(held) != 0 {
		t.Errorf("the restored store holds %v", held)
	}
	if v := b.api.read(t, other.ID); v.Delivery.State != "delivered" || n.inbox.count(v.ID) != 1 ||
		n.inbox.count(gone.ID) != 1 {
		t.Errorf("after a restore: %+v, %d and %d POSTs", v, n.inbox.count(v.ID), n.inbox.count(gone.ID))
	}
}

// The request must be explicit: a forgotten flag does not erase the users of a whole service.
func TestEraseRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"erase"}, "--platform-user-id"},
		{[]string{"erase", "--platform-user-id", "u"}, "--account"},
		{[]string{"erase", "--platform-user-id", "u", "--account", "a", "--all-accounts"}, "--account"},
		{[]string{"erase", "--platform-user-id", "u", "--account", "a", "--guild", "g"}, "--platform"},
	} {
		code, _, errOut := verifyd(t, c.args...)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: %d %s", c.args, code, errOut)
		}
	}
}

// What a newer build has written keeps commands that list from nothing else: they name it, and fail in the
// end.
func TestCommandsGoOnWithoutWhatIsNewer(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	c.start(t)
	c.makeKey(t, "Harbor Guild", "--name", "bot")
	newer := account.IDOf("Newer Guild")
	conn := c.connect(t)
	natstest.Publish(t, conn, topology.BucketSubject(topology.BucketAccounts, newer), []byte(`{"v":99}`))
	conn.Close()
	for _, args := range [][]string{
		{"account", "list"}, {"account", "show", "Harbor Guild"}, {"key", "list"},
		{"erase", "--platform-user-id", "nobody", "--all-accounts"},
	} {
		out, err := c.command(t, args...)
		if err == nil || !strings.Contains(err.Error(), newer) || !strings.Contains(out, "Harbor Guild") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
