package serverconf_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/serverconf"
	"verifyd/natsconf/topology"
)

// machine is a folder with a process's copy of its credential, as it is given to another machine.
type machine struct {
	file string
	of   string
}

func newMachine(t *testing.T, e natstest.External, role permission.Role) machine {
	t.Helper()
	m := machine{filepath.Join(t.TempDir(), "nats.nk"), e.Credential(role)}
	m.give(t)
	return m
}

// give copies the role's credential to the machine.
func (m machine) give(t *testing.T) {
	t.Helper()
	seed, err := os.ReadFile(m.of)
	if err == nil {
		err = os.WriteFile(m.file, seed, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m machine) user(t *testing.T) string {
	t.Helper()
	user, err := natsconf.CredentialUser(m.file)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func (m machine) connect(t *testing.T, url string) *natsconf.Conn {
	t.Helper()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: url, CredsFile: m.file, Name: t.Name(), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// works asks for answers on the inbox of the connection, by a read and a consumer, and for who it is.
func works(t *testing.T, conn *natsconf.Conn) (user string) {
	t.Helper()
	if _, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.a"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Error("a read:", err)
	}
	if _, err := conn.Newest(t.Context(), topology.BucketStream(topology.BucketKeys),
		topology.BucketSubject(topology.BucketKeys, ">")); err != nil {
		t.Error("a reading:", err)
	}
	g, err := conn.Grants(t.Context())
	if err != nil {
		t.Error("who it is:", err)
	}
	return g.User
}

// A process that is given its new credential goes on through two rotations, and is never started again: the
// connection comes back as the new user, and answers reach it.
func TestRotationNeedsNoRestart(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	natstest.Ensure(t, e.Connect(t, permission.RoleOperator))
	edge := newMachine(t, e, permission.RoleEdge)
	conn, first := edge.connect(t, e.URL), edge.user(t)
	for range 2 {
		before := edge.user(t)
		rotate(t, e)
		if user := works(t, conn); user != before {
			t.Errorf("as %s, want %s", user, before)
		}
		late := edge.connect(t, e.URL) // a process that starts before it is given the new one
		edge.give(t)
		if works(t, late); edge.user(t) == before {
			t.Fatal("the credential is the same")
		}
		works(t, edge.connect(t, e.URL)) // a process that starts with it
		back, lateBack := conn.Back(), late.Back()
		if err := serverconf.Retire(e.Credentials); err != nil {
			t.Fatal(err)
		}
		e.Reload(t)
		natstest.Receive(t, "the connection is back", back)
		natstest.Receive(t, "the other one, too", lateBack)
		for _, c := range []*natsconf.Conn{conn, late} {
			if user := works(t, c); user != edge.user(t) {
				t.Errorf("as %s, want %s", user, edge.user(t))
			}
		}
		late.Close()
	}
	if g, err := conn.Grants(t.Context()); err != nil || !g.MayListen(permission.InboxOf(first)+".>") {
		t.Error("the answers of a process that began as the first user:", err)
	}
}

// After Retire the old credential opens nothing, and before it both do. A folder that a build before 0.10.0
// has prepared is rotated as well.
func TestOldUsersAreLetInUntilTheyAreRetired(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	if err := os.Remove(filepath.Join(e.Credentials, "nats", "users.json")); err != nil {
		t.Fatal(err)
	}
	old := newMachine(t, e, permission.RoleMonitor)
	rotate(t, e)
	for range 2 { // a repeat, as of each upgrade, keeps both
		old.connect(t, e.URL).Close()
		e.Connect(t, permission.RoleMonitor).Close()
		e.Reload(t)
	}
	if err := serverconf.Retire(e.Credentials); err != nil {
		t.Fatal(err)
	}
	e.Reload(t)
	e.Connect(t, permission.RoleMonitor).Close()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: e.URL, CredsFile: old.file, Log: zerolog.Nop(),
	})
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("with a retired credential: %v", err)
	}
}

// A credential that is removed by hand ends at once, and one that is put back is the role's again.
func TestSeedsThatAreReplacedByHand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users := func() serverconf.Users {
		t.Helper()
		all, err := serverconf.EnsureUsers(dir)
		if err != nil {
			t.Fatal(err)
		}
		return all[permission.RoleEdge]
	}
	file := serverconf.SeedFile(dir, permission.RoleEdge)
	first := users()
	seed, err := os.ReadFile(file)
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	if second := users(); second.Newest() == first.Newest() || len(second.Old) > 0 || len(second.Names) != 2 {
		t.Errorf("after it was removed: %+v, before %+v", second, first)
	}
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	if third := users(); third.Newest() != first.Newest() || len(third.Old) > 0 || len(third.Names) != 2 {
		t.Errorf("after it was put back: %+v, before %+v", third, first)
	}
}

// rotate does what verifyd prepare --rotate does, and lets the servers reload. In between they have the new
// users, and the seeds are the old ones, also after an interruption and a repeat.
func rotate(t *testing.T, e natstest.External) {
	t.Helper()
	before, err := os.ReadFile(e.Credential(permission.RoleEdge))
	if err != nil {
		t.Fatal(err)
	}
	if err := serverconf.Rotate(e.Credentials); err != nil {
		t.Fatal(err)
	}
	e.Reload(t)
	seed := func() []byte {
		t.Helper()
		text, err := os.ReadFile(e.Credential(permission.RoleEdge))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if !bytes.Equal(before, seed()) {
		t.Error("the seed is replaced before the servers know its user")
	}
	if err := serverconf.Place(e.Credentials); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before, seed()) {
		t.Error("the seed is not replaced")
	}
	e.Reload(t)
}
