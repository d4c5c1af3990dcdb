package permission_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/serverconf"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

var update = flag.Bool("update", false, "write testdata anew")

// refusals collects what the server refuses to a connection of its own.
func refusals(t *testing.T, e natstest.External, role permission.Role) (*nats.Conn, <-chan string) {
	t.Helper()
	refused := make(chan string, 100)
	option, err := nats.NkeyOptionFromSeed(e.Credential(role))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(e.URL, option,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				refused <- err.Error()
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, refused
}

// asked does what must be refused, and reports whether it was.
func asked(t *testing.T, nc *nats.Conn, refused <-chan string, do func() error) bool {
	t.Helper()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(natstest.TestTimeout); err != nil {
		t.Fatal(err)
	}
	select { // the client passes errors to a goroutine of its own
	case <-refused:
		return true
	case <-time.After(natstest.TestTimeout): // only a failing test waits
		return false
	}
}

func TestEachRoleIsRefusedWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	natstest.Ensure(t, e.Connect(t, permission.RoleOperator))
	const sid = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	forbidden := map[permission.Role][]string{
		permission.RoleEdge: {
			"claim." + sid + ".1", "result." + sid + ".1", "schedule." + sid, "retry." + sid,
			"$KV.operations.operator.a",
			"$JS.API.CONSUMER.MSG.NEXT.COMPLETIONS.dispatcher",
			"$JS.API.CONSUMER.CREATE.COMPLETIONS.dispatcher",
			"$JS.API.CONSUMER.CREATE.COMPLETIONS.dispatcher.completion.x",
			"$JS.API.CONSUMER.DELETE.COMPLETIONS.dispatcher",
			"$JS.API.CONSUMER.MSG.NEXT.RETRIES.retries", "$JS.API.CONSUMER.CREATE.RETRIES.retries.retry.x",
			"$JS.ACK.COMPLETIONS.dispatcher.1.1.1.1.1",
			"$JS.API.CONSUMER.DELETE.NOTICES.notices", "$JS.ACK.NOTICES.notices.1.1.1.1.1",
			"$JS.ACK.AUDIT.audit-notices.1.1.1.1.1",
		},
		permission.RoleDispatcher: {
			"$KV.sessions.acc_a." + sid, "completion." + sid, "resend." + sid + ".1",
			"session.sign_in." + sid, "usage.acc_a.202611",
			"retry." + sid, "audit.acc_a.1", "$KV.accounts.acc_a", "$KV.keys.a.b", "$KV.logins.session.a",
			"$KV.key-uses.key_a",
			"$KV.idempotency.acc_a.live.a", "$KV.identities.a", "$KV.operations.pause.a",
			"$KV.operations.operator.a", topology.SubjectSpent, topology.SubjectFleet,
			"$JS.API.STREAM.MSG.GET.KV_sessions", "$JS.API.STREAM.MSG.GET.KV_logins",
			"$JS.API.CONSUMER.CREATE.KV_sessions.x.>",
		},
		permission.RoleMonitor: {
			"$KV.sessions.acc_a." + sid, "completion." + sid, "claim." + sid + ".1",
			"$JS.API.STREAM.MSG.GET.COMPLETIONS",
			"$JS.API.CONSUMER.CREATE.COMPLETIONS.x.>", "$JS.API.CONSUMER.MSG.NEXT.COMPLETIONS.dispatcher",
		},
	}
	// Only the operator may change or remove existing streams.
	for _, s := range []string{
		"STREAM.CREATE.COMPLETIONS", "STREAM.UPDATE.COMPLETIONS", "STREAM.DELETE.COMPLETIONS",
		"STREAM.PURGE.KV_sessions",
		"STREAM.MSG.DELETE.KV_keys", "STREAM.SNAPSHOT.KV_accounts", "STREAM.RESTORE.KV_accounts",
		"CONSUMER.DURABLE.CREATE.COMPLETIONS.x",
	} {
		for role := range forbidden {
			forbidden[role] = append(forbidden[role], "$JS.API."+s)
		}
	}
	for role, subjects := range forbidden {
		nc, refused := refusals(t, e, role)
		for _, s := range subjects {
			if !asked(t, nc, refused, func() error { return nc.Publish(s, []byte("{}")) }) {
				t.Errorf("%s may publish on %s", role, s)
			}
		}
		for _, s := range []string{">", "_INBOX.>", "completion.*", "$KV.>", "$JS.API.>"} {
			if !asked(t, nc, refused, func() error { _, err := nc.SubscribeSync(s); return err }) {
				t.Errorf("%s may listen on %s", role, s)
			}
		}
	}
	m, err := e.Connect(t, permission.RoleOperator).JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	if n := m.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages were stored", n)
	}
}

// A client that sends itself a request may not answer at the subject that the request names: it could allow
// itself anything.
func TestNoClientExtendsItsPermissions(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	natstest.Ensure(t, e.Connect(t, permission.RoleOperator))
	nc, refused := refusals(t, e, permission.RoleEdge)
	sub, err := nc.SubscribeSync(topology.SubjectFleet)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"claim.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.1", "$KV.operations.operator.a",
		"$JS.API.STREAM.DELETE.KV_keys",
	} {
		if err := nc.PublishRequest(topology.SubjectFleet, s, nil); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(natstest.TestTimeout)
		if err != nil {
			t.Fatal(err)
		}
		if !asked(t, nc, refused, func() error { return m.Respond(nil) }) {
			t.Errorf("an edge may answer itself on %s", s)
		}
	}
}

// The server grants each role what it needs, and no role may write more than its own.
func TestGrantsAreTheTables(t *testing.T) {
	e := natstest.StartExternal(t)
	for _, role := range permission.Roles() {
		conn := e.Connect(t, role)
		g, err := conn.Grants(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		if l := g.Lacking(role); len(l) > 0 {
			t.Errorf("%s lacks %q", role, l)
		}
		if x := g.Excess(role); len(x) > 0 {
			t.Errorf("%s may also write %q", role, x)
		}
		if role != permission.RoleOperator && g.Account != serverconf.Account {
			t.Errorf("%s is in the account %q", role, g.Account)
		}
	}
	g, err := e.Connect(t, permission.RoleEdge).Grants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l := g.Lacking(permission.RoleDispatcher); len(l) == 0 {
		t.Error("an edge's credential lacks nothing that a dispatcher needs")
	}
	if g, err = e.Connect(t, permission.RoleOperator).Grants(t.Context()); err != nil {
		t.Fatal(err)
	}
	if x := g.Excess(permission.RoleEdge); len(x) != 4 {
		t.Errorf("an edge with the operator's credential may also write %q, want claims, results, "+
			"schedules, and which receivers fail", x)
	}
}

// Every change of what a role may do shows in the golden file.
func TestPermissionsAreTheGoldenOnes(t *testing.T) {
	var b strings.Builder
	for _, role := range permission.Roles() {
		p := permission.Of(role, "NAME")
		fmt.Fprintf(&b, "# %s\nunlimited: %t\n", role, p.Unlimited)
		for _, list := range []struct {
			name     string
			subjects []string
		}{{"publish", p.Publish.Allow}, {"never publish", p.Publish.Deny}, {"listen", p.Listen.Allow},
			{"never listen", p.Listen.Deny}} {
			for _, s := range list.subjects {
				fmt.Fprintf(&b, "%s %s\n", list.name, s)
			}
		}
		b.WriteString("\n")
	}
	const golden = "testdata/permissions.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("permissions have changed; if that is meant: go test ./natsconf/permission -run "+
			"Golden -update\n%s",
			b.String())
	}
}

// releasedTable is the golden file of the last released version; the proof upgrade compares them.
const releasedTable = "testdata/released.golden"

// The last released version starts under this table: it needs all that its own table allows, and accepts no
// denial within it that its own table does not have. So a wildcard of this table can be narrowed one release
// later than the code that needs less.
func TestReleasedVersionStartsUnderThisTable(t *testing.T) {
	released, err := os.ReadFile(releasedTable)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for section := range strings.SplitSeq(strings.TrimPrefix(string(released), "# "), "\n# ") {
		role, text, _ := strings.Cut(section, "\n")
		now := permission.Of(permission.Role(role), "NAME")
		if now.Unlimited {
			continue
		}
		lists := map[string][]string{}
		for line := range strings.Lines(text) {
			if i := strings.LastIndexByte(line, ' '); i > 0 {
				lists[line[:i]] = append(lists[line[:i]], strings.TrimSpace(line[i:]))
			}
		}
		for list, rule := range map[string]permission.Rule{"publish": now.Publish, "listen": now.Listen} {
			for _, s := range lists[list] {
				compared++
				if !natsconf.Covered(s, rule.Allow) {
					t.Errorf("%s: the released version needs %s %s", role, list, s)
				}
				for _, d := range rule.Deny {
					if server.SubjectsCollide(s, d) && !natsconf.Covered(d, lists["never "+list]) {
						t.Errorf("%s: the released version needs %s %s, and %s is denied", role, list, s, d)
					}
				}
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d subjects of %s were compared", compared, releasedTable)
	}
}

// A new stream needs a role that may write to it; the operator alone is not enough, except for the store's
// state.
func TestEveryStreamHasAWriter(t *testing.T) {
	var all []string
	for _, role := range []permission.Role{permission.RoleEdge, permission.RoleDispatcher} {
		all = append(all, permission.Of(role, "NAME").Publish.Allow...)
	}
	for _, s := range topology.New(topology.Options{}).Streams {
		if s.Name == topology.BucketStream(topology.BucketStore) {
			continue // the exception: a service does not decide whether its store is in service
		}
		if !slices.ContainsFunc(all, func(may string) bool {
			return slices.ContainsFunc(s.Subjects, func(subject string) bool {
				return server.SubjectMatchesFilter(may, subject)
			})
		}) {
			t.Errorf("nobody may write to %s: put it into the table of permissions.go", s.Name)
		}
	}
}
