package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/command/storage"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// masterKey returns the key next to the process's store.
func (c *child) masterKey(t *testing.T) secretbox.Key {
	t.Helper()
	return must[secretbox.Key](t)(secretbox.Load(filepath.Join(c.dir, "store", config.SecretFile)))
}

// refuses expects a command to fail with a text.
func (c *child) refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	if out, err := c.command(t, args...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: want %q: %s %v", args, want, out, err)
	}
}

// The master key is changed while a service runs with a user in the middle of a sign-in: the user goes on
// before and after the restart with the new key, everything that was sealed opens, and when the change has
// ended, the old key opens nothing, here and in a restored store.
func TestRekeyWhileTheServiceRuns(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the master key in its data directory")
	c := newChild(t)
	c.start(t)
	w := walk{c: c, api: api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}, browser: demo.NewBrowser()}
	w.api.knownSoon(t)
	delivered := func(s demo.Started) {
		t.Helper()
		v := w.api.settled(t, s.Session)
		if v.PlatformUserID != "u" || v.Delivery.State != "delivered" || c.inbox.count(v.ID) != 1 {
			t.Errorf("%+v, %d POSTs", v, c.inbox.count(v.ID))
		}
	}
	whole := func() demo.Started {
		t.Helper()
		fresh := walk{c: w.c, api: w.api, browser: demo.NewBrowser()}
		for _, s := range steps {
			s.do(t, &fresh)
		}
		delivered(fresh.session)
		return fresh.session
	}
	early := whole()
	secret := must[string](t)(c.command(t, "account", "secret", "Harbor Guild"))
	_, _, publicKeys := w.api.call(t, http.MethodGet, "/signing-keys", "")
	for _, s := range steps[:3] {
		s.do(t, &w)
	}

	old := c.masterKey(t)
	c.refuses(t, "no change of the master key was begun", "secret", "rekey", "--finish")
	if out := must[string](t)(c.command(t, "secret", "rekey")); out != "" {
		t.Errorf("it prints %q", out)
	}
	fresh := c.masterKey(t)
	info := must[os.FileInfo](t)(os.Stat(filepath.Join(c.dir, "store", config.SecretFile)))
	if fresh == old || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is the old one, or others may read it: %s", info.Mode())
	}
	c.refuses(t, "runs with another master key", "secret", "rekey", "--finish")
	steps[3].do(t, &w) // at the process that has the old key
	whole()
	c.restart(t)
	steps[4].do(t, &w) // at one that has the new key
	delivered(w.session)
	if out, err := c.command(t, "status"); !strings.Contains(fmt.Sprint(out, err), "--finish") {
		t.Errorf("status forgets the old key: %s %v", out, err)
	}
	must[string](t)(c.command(t, "secret", "rekey")) // it is under way
	if c.masterKey(t) != fresh {
		t.Error("a repeat makes a third key")
	}
	must[string](t)(c.command(t, "secret", "rekey", "--finish"))

	c.refuses(t, "VERIFYD_SECRET_KEY", "account", "secret", "Harbor Guild", "--secret-key", old.Encode())
	c.refuses(t, "was changed", "account", "secret", "Harbor Guild", "--secret-key", old.Encode())
	same := func() {
		t.Helper()
		if now := must[string](t)(w.c.command(t, "account", "secret", "Harbor Guild")); now != secret {
			t.Error("the signing secret is another one")
		}
		if _, _, now := w.api.call(t, http.MethodGet, "/signing-keys", ""); !bytes.Equal(now, publicKeys) {
			t.Errorf("the public keys are %s, before %s", now, publicKeys)
		}
		delivered(early)
		delivered(w.session)
		whole()
	}
	same()
	log := must[string](t)(c.command(t, "operator", "audit"))
	for _, want := range []string{"master_key.admitted", "master_key.changed", fresh.Fingerprint()} {
		if !strings.Contains(log, want) {
			t.Errorf("the log of operations lacks %q: %s", want, log)
		}
	}
	c.restart(t)
	same()

	b := backedUp{child: c, api: w.api, file: filepath.Join(t.TempDir(), "backup")}
	must[string](t)(c.command(t, "backup", b.file))
	w.c = b.restored(t)
	w.c.start(t)
	same()
	w.c.refuses(t, "was changed", "key", "list", "--secret-key", old.Encode())
}

// A change of the master key goes on wherever it was killed, and the key beside the store opens the store at
// all times.
func TestRekeyGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the master key in its data directory")
	for _, point := range []string{crashpoint.RekeyWritten, crashpoint.RekeyAdmitted} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			c.makeKey(t, "Harbor Guild")
			secret := must[string](t)(c.command(t, "account", "secret", "Harbor Guild"))
			old := c.masterKey(t)
			dies := func(at string, args ...string) {
				t.Helper()
				dying := *c
				dying.env = append(slices.Clone(c.env), crashVariable+"="+at+":1")
				if out, err := dying.command(t, args...); err == nil {
					t.Fatalf("it lives on: %s", out)
				}
				if now := must[string](t)(c.command(t, "account", "secret", "Harbor Guild")); now != secret {
					t.Error("the signing secret is another one")
				}
			}
			dies(point, "secret", "rekey")
			if c.masterKey(t) != old {
				t.Error("the old key is gone before the new one opens the store")
			}
			must[string](t)(c.command(t, "secret", "rekey"))
			dies(crashpoint.RekeyAlone, "secret", "rekey", "--finish")
			must[string](t)(c.command(t, "secret", "rekey", "--finish"))
			if now := must[string](t)(c.command(t, "account", "secret", "Harbor Guild")); now != secret {
				t.Error("the signing secret is another one")
			}
			c.refuses(t, "was changed", "key", "list", "--secret-key", old.Encode())
			beside := filepath.Join(c.dir, "store", config.SecretFile)
			if now := must[secretbox.Key](t)(secretbox.Load(beside + "." + old.Fingerprint())); now != old {
				t.Error("backups of before are lost")
			}
			if _, err := os.Stat(beside + ".new"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the new key lies about: %v", err)
			}
		})
	}
}

// Processes with the old and the new key, each with its role's credential, do one session's work together.
// The change ends only when none has the old key, and then all of them seal under the new one.
func TestRekeyOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	old := secretbox.NewKey()
	command := func(key secretbox.Key, args ...string) string {
		t.Helper()
		code, _, errOut := verifyd(t, append(args, "--nats-url", e.URL, "--nats-creds",
			e.Credential(permission.RoleOperator), "--replicas", "1", "--secret-key", key.Encode())...)
		if code == 0 {
			return ""
		}
		return errOut
	}
	refused := func(want string, key secretbox.Key, args ...string) {
		t.Helper()
		if errOut := command(key, args...); !strings.Contains(errOut, want) {
			t.Errorf("%v: want %q: %s", args, want, errOut)
		}
	}
	done := func(key secretbox.Key, args ...string) {
		t.Helper()
		if errOut := command(key, args...); errOut != "" {
			t.Fatalf("%v: %s", args, errOut)
		}
	}
	done(old, "apply")
	edge := func(key *secretbox.Key) *rig {
		return boot(t, withRole(e, permission.RoleEdge, key), func(c *config.Config) { c.Dispatcher = false })
	}
	first := edge(&old)
	dispatcher := func(key *secretbox.Key) *rig {
		return boot(t, withRole(e, permission.RoleDispatcher, key), func(c *config.Config) {
			c.Edge = false
			c.CallbackRoots, c.CallbackPolicy = first.Config.CallbackRoots, first.Config.CallbackPolicy
		})
	}
	sending := dispatcher(&old)
	session := func(at *rig) {
		t.Helper()
		s := at.api().init(t, map[string]any{
			"platform": "p", "platform_user_id": "u", "callback_url": first.inbox.CallbackURL(),
		})
		b := demo.NewBrowser()
		expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
			http.StatusOK, "You are verified")
		if v := at.api().until(t, s.Session, "delivered"); first.inbox.count(v.ID) != 1 {
			t.Errorf("%d POSTs", first.inbox.count(v.ID))
		}
	}
	file := filepath.Join(t.TempDir(), "new.key")
	refused("--new-key-file", old, "secret", "rekey")
	done(old, "secret", "rekey", "--new-key-file", file)
	fresh := must[secretbox.Key](t)(secretbox.Load(file))
	refused("this is the old master key", old, "secret", "rekey", "--finish")
	done(fresh, "secret", "rekey") // it is under way
	second := edge(&fresh)
	session(second) // and the dispatcher has the old key
	session(first)
	refused("runs with another master key", fresh, "secret", "rekey", "--finish")
	first.stop()
	refused("runs with another master key", fresh, "secret", "rekey", "--finish")
	sending.stop()
	sending = dispatcher(&fresh)
	session(second)
	done(fresh, "secret", "rekey", "--finish")
	for name, r := range map[string]*rig{"edge": second, "dispatcher": sending} {
		if key := r.Store.Ring.Seals(); key != 2 {
			t.Errorf("the %s seals under key %d", name, key)
		}
		if log := r.log.String(); strings.Contains(log, "NATS refuses") {
			t.Errorf("the %s was refused something: %s", name, log)
		}
	}
	session(second)
	refused("was changed", old, "key", "list")
}

// A process of an earlier build knows one key only: the change does not begin while it runs.
func TestRekeyWaitsForAnEarlierBuild(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	key := secretbox.NewKey()
	on := []string{"--nats-url", e.URL, "--nats-creds", e.Credential(permission.RoleOperator), "--replicas",
		"1", "--secret-key", key.Encode()}
	if code, _, errOut := verifyd(t, append([]string{"apply"}, on...)...); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	conn := e.Connect(t, permission.RoleEdge)
	sub := must[*nats.Subscription](t)(conn.NC.Subscribe(topology.SubjectFleet, func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"id":"x","host":"dock","version":"0.9.0"}`))
	}))
	defer func() { _ = sub.Unsubscribe() }()
	if err := conn.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := verifyd(t, append([]string{"secret", "rekey", "--new-key-file",
		filepath.Join(t.TempDir(), "new.key")}, on...)...)
	if code == 0 || !strings.Contains(errOut, "dock") || !strings.Contains(errOut, "0.9.0") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

// A backup that ends after its key opens the store no more would need two keys: it fails, and is made again.
func TestBackupDuringAChangeOfTheMasterKey(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the master key in its data directory")
	dir := t.TempDir()
	holder := must[*store.Store](t)(store.Open(t.Context(),
		config.Store{DataDir: dir, Topology: topology.Options{Embedded: true}}, zerolog.Nop(),
		store.ToServe))
	defer holder.Close()
	change := func(key secretbox.Key, edit func(*secretbox.Ring) ([]byte, error)) {
		t.Helper()
		if err := storestate.ChangeRing(t.Context(), holder.Conn, key, edit); err != nil {
			t.Error(err)
		}
	}
	next := secretbox.NewKey()
	change(holder.Key, func(r *secretbox.Ring) ([]byte, error) { return r.Admit(next, time.Now()) })
	b := storage.Backup{Local: command.Local{Store: command.Store{StoreSettings: config.StoreSettings{
		DataDir: dir, Sync: "always", StoreLimit: "8GiB", KeepResults: 72 * time.Hour,
	}}}, File: "-"}
	during := &noticed{}
	if err := b.Run(t.Context(), command.Console{Out: during, Err: io.Discard}); err != nil {
		t.Errorf("while both keys open the store: %v", err)
	}
	across := &noticed{first: func() {
		change(next, func(r *secretbox.Ring) ([]byte, error) { return r.Alone(time.Now()) })
	}}
	err := b.Run(t.Context(), command.Console{Out: across, Err: io.Discard})
	if !errors.Is(err, storestate.ErrMasterKey) {
		t.Errorf("across the end of the change: %v", err)
	}
}
