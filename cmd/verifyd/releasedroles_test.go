package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/topology"
)

// roleEnv is the environment of a process with its role's secrets, as verifyd prepare has written them.
func roleEnv(dir, role string) []string {
	return []string{
		"VERIFYD_NATS_CREDS=" + filepath.Join(dir, role, "nats.nk"),
		"VERIFYD_SECRET_KEY_FILE=" + filepath.Join(dir, role, "secret.key"),
	}
}

// roled is a site of both builds in which each role has a credential of its own.
type roled struct {
	*mixed
	trio *natstest.Trio
	all  []*child // every process that was started
}

// upgradeRoles goes the way of docs/UPGRADING.md on three NATS servers, with a credential for each role, from
// the released version to this build and back. At each step processes of the builds that may run there are
// started, killed, started again, and become more, and users sign in.
func upgradeRoles(t *testing.T, exe string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "verifyd")
	first := newChild(t)
	first.exe = exe
	must[string](t)(first.command(t, "prepare", dir, "--nats-servers", "n1,n2,n3", "--store-limit", "6GiB"))
	if table, now := released(t, exe); table != now {
		t.Errorf("natsconf/permission/testdata/released.golden is not the table of %s", releasedFile)
	}
	trio := natstest.StartTrioWith(t, filepath.Join(dir, "nats", "accounts.conf"))
	p := &plant{first: first, roles: dir, env: append(slices.Clone(first.env),
		"VERIFYD_NATS_URL="+trio.URL(), "VERIFYD_LOG_LEVEL=warn")}
	r := &roled{mixed: mix(t, p), trio: trio}

	r.apply(t, exe)
	oldEdge, oldDispatcher := r.add(t, exe, "edge"), r.add(t, exe, "dispatcher")
	r.api.key = keyFor(t, []*child{oldEdge}, "Harbor Guild")
	r.sign(t, oldEdge, oldEdge, 1)

	r.prepare(t, "", true)
	r.crash(t, oldEdge, oldDispatcher) // before the streams are this build's
	r.apply(t, "")
	r.crash(t, oldEdge, oldDispatcher)
	newDispatcher, newEdge := r.add(t, "", "dispatcher"), r.add(t, "", "edge")
	r.both(t, oldEdge, newEdge)
	r.crash(t, oldEdge, oldDispatcher, newDispatcher, newEdge)
	more := []*child{r.add(t, exe, "edge"), r.add(t, exe, "dispatcher")} // while both builds run
	r.both(t, more[0], newEdge)
	r.loseServer(t, func() { r.both(t, oldEdge, newEdge) })
	if out, err := r.operate(t, "", "apply", "--finish"); err == nil ||
		!strings.Contains(err.Error(), "upgrade or stop it first") {
		t.Errorf("the upgrade is finished beside an older build: %s %v", out, err)
	}
	for _, c := range append(more, oldEdge, oldDispatcher) {
		c.stop(t)
	}
	r.crash(t, newDispatcher, newEdge)
	r.sign(t, newEdge, newEdge, 1)

	oldEdge = r.add(t, exe, "edge") // the way back: the reverse order
	r.both(t, oldEdge, newEdge)
	newEdge.stop(t)
	oldDispatcher = r.add(t, exe, "dispatcher")
	r.crash(t, newDispatcher, oldDispatcher, oldEdge)
	newDispatcher.stop(t)
	r.sign(t, oldEdge, oldEdge, 1)
	r.prepare(t, exe, false)
	r.crash(t, oldEdge, oldDispatcher)
	r.sign(t, oldEdge, oldEdge, 1)
	newEdge.exe = ""
	refuses(t, newEdge, "verifyd prepare") // under a table that lacks what it needs
	for _, c := range r.all {
		if log := c.log.String(); strings.Contains(log, "NATS refuses") {
			t.Errorf("a process was refused something: %s", log)
		}
	}
}

// add starts a process that is killed when the test ends.
func (r *roled) add(t *testing.T, exe, role string) *child {
	t.Helper()
	c := r.launch(t, exe, role)
	r.all = append(r.all, c)
	if role == "edge" && r.api.key != "" {
		api{base: c.base(), key: r.api.key}.knownSoon(t)
	}
	return c
}

// crash kills processes and starts them again, one after the other.
func (r *roled) crash(t *testing.T, all ...*child) {
	t.Helper()
	for _, c := range all {
		c.restart(t)
	}
}

// both signs users in, each by two edges.
func (r *roled) both(t *testing.T, one, other *child) {
	t.Helper()
	for _, change := range []int{1, len(steps) - 1} {
		r.sign(t, one, other, change)
		r.sign(t, other, one, change)
	}
}

// operate runs a command of a build with the operator's credential.
func (r *roled) operate(t *testing.T, exe string, args ...string) (out string, err error) {
	t.Helper()
	c := *r.first
	c.exe, c.env = exe, append(slices.Clone(r.env), roleEnv(r.roles, "operator")...)
	return c.command(t, args...)
}

func (r *roled) apply(t *testing.T, exe string) {
	t.Helper()
	must[string](t)(r.operate(t, exe, "apply"))
}

// prepare writes a build's table of permissions, and has the servers read it; notices is whether that table
// knows their stream.
func (r *roled) prepare(t *testing.T, exe string, notices bool) {
	t.Helper()
	must[string](t)(r.operate(t, exe, "prepare", r.roles))
	r.trio.Reload(t)
	for _, name := range r.trio.Names() {
		natstest.Await(t, name+" has the other table", func() bool {
			conn := natstest.ConnectTo(t, r.trio.URL(name), func(o *natsconf.ConnectOptions) {
				o.CredsFile = filepath.Join(r.roles, string(permission.RoleDispatcher), "nats.nk")
			})
			defer conn.Close()
			g, err := conn.Grants(t.Context())
			return err == nil && g.MayPublish("$JS.API.STREAM.MSG.GET."+topology.StreamNotices) == notices
		})
	}
}

// loseServer kills the server that leads the completions, and starts it again after a step. The step begins
// when others lead and all processes are ready again: 0.9.0 answers 503 until then.
func (r *roled) loseServer(t *testing.T, step func()) {
	t.Helper()
	as := func(servers ...string) *natsconf.Conn {
		return natstest.ConnectTo(t, r.trio.URL(servers...), func(o *natsconf.ConnectOptions) {
			o.CredsFile = filepath.Join(r.roles, string(permission.RoleOperator), "nats.nk")
		})
	}
	lost := natstest.Leader(t, as(), topology.StreamCompletions)
	r.trio.Kill(lost)
	conn := as(r.trio.Others(lost)...)
	for _, s := range topology.New(topology.Options{}).Streams {
		natstest.Await(t, "another server leads "+s.Name, func() bool {
			return natstest.Leader(t, conn, s.Name) != lost
		})
	}
	awaitAll(t, r.all...)
	step()
	r.trio.Start(t, lost)
}

// released returns the table of permissions in the released version's source, and what this build takes for
// it.
func released(t *testing.T, exe string) (table, kept string) {
	t.Helper()
	const golden = "natsconf/permission/testdata/"
	source := filepath.Join(filepath.Dir(exe), "source", golden, "permissions.golden")
	return string(must[[]byte](t)(os.ReadFile(source))),
		string(must[[]byte](t)(os.ReadFile(filepath.Join("../..", golden, "released.golden"))))
}
