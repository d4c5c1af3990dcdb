package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// What check calls an error of a server that answers, serve refuses as well: it is one table.
func TestServeRefusesWhatCheckCallsAnError(t *testing.T) {
	t.Parallel()
	well := provision.Inspection{
		MaxPayload: 1 << 20, AccountLimits: jetstream.AccountLimits{
			MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MaxStore: 1 << 30,
		},
		SkewKnown: true,
		Streams:   []provision.StreamHealth{{Name: "EVENTS", Leader: "n1", Copies: 3, Current: 3}},
	}
	for name, row := range map[string]struct {
		change func(*provision.Inspection)
		area   string
		level  Level
	}{
		"well":           {func(*provision.Inspection) {}, "limits", LevelOK},
		"small messages": {func(in *provision.Inspection) { in.MaxPayload = 4096 }, "limits", LevelError},
		"few streams":    {func(in *provision.Inspection) { in.MaxStreams = 3 }, "limits", LevelError},
		"few consumers":  {func(in *provision.Inspection) { in.MaxConsumers = 3 }, "limits", LevelError},
		"bytes required": {
			func(in *provision.Inspection) { in.MaxBytesRequired = true }, "limits", LevelError,
		},
		"bounded ack wait": {
			func(in *provision.Inspection) { in.MaxAckPending = 1000 }, "limits", LevelWarning,
		},
		"bounded streams": {
			func(in *provision.Inspection) { in.StoreMaxStreamBytes = 1 << 30 }, "limits", LevelWarning,
		},
		"clock far off": {
			func(in *provision.Inspection) { in.Skew = -6 * time.Second }, "clock", LevelError,
		},
		"clock a bit off": {func(in *provision.Inspection) { in.Skew = time.Second }, "clock", LevelWarning},
		"nearly full store": {
			func(in *provision.Inspection) { in.Used, in.MaxStore = 85, 100 }, "store", LevelWarning,
		},
		"copies are current": {func(*provision.Inspection) {}, "replicas", LevelOK},
		"a copy is away": {func(in *provision.Inspection) {
			in.Streams = []provision.StreamHealth{{Name: "EVENTS", Leader: "n1", Copies: 3, Current: 2}}
		}, "replicas", LevelWarning},
		"bounded store":   {func(*provision.Inspection) {}, "store", LevelOK},
		"unbounded store": {func(in *provision.Inspection) { in.MaxStore = -1 }, "store", LevelWarning},
	} {
		in := well
		row.change(&in)
		var s Survey
		for _, look := range there {
			look(&s, in, config.Config{Store: config.Store{NATSURL: "tls://nats.example:4222"}})
		}
		if !slices.ContainsFunc(s.findings, func(f Finding) bool {
			return f.Area == row.area && f.Level == row.level
		}) {
			t.Errorf("%s: want %s of %s in %+v", name, row.level, row.area, s.findings)
		}
		if err := s.refusal(); (err != nil) != (row.level == LevelError) {
			t.Errorf("%s: serve says %v", name, err)
		}
	}
}

// More copies than a server can keep are one finding, which says what to set, and no warning for each stream.
func TestMoreCopiesThanServers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		in    provision.Inspection
		level Level
		do    string
	}{
		"single": {
			provision.Inspection{Servers: 1, MayUpdate: true}, LevelError, "VERIFYD_REPLICAS=1",
		},
		"single, left alone": {provision.Inspection{Servers: 1}, LevelWarning, "VERIFYD_REPLICAS=1"},
		"small cluster": {
			provision.Inspection{Servers: 1, Cluster: "c", MayUpdate: true}, LevelWarning, "other servers",
		},
		"cluster": {provision.Inspection{Servers: 3, Cluster: "c", MayUpdate: true}, "", ""},
	} {
		for _, stream := range topology.StreamNames() {
			row.in.Differences = append(row.in.Differences, provision.Difference{
				Asset: "stream " + stream, Field: "num_replicas", Have: "1", Want: "3",
				Kind: provision.Updated,
			})
		}
		c := config.Config{Store: config.Store{
			NATSURL: "tls://nats.example:4222", Topology: topology.Options{Replicas: 3},
		}}
		var s Survey
		checkServers(&s, row.in, c)
		switch {
		case row.level == "" && len(s.findings) == 0:
		case len(s.findings) != 1 || s.findings[0].Level != row.level ||
			!strings.Contains(s.findings[0].Do, row.do):
			t.Errorf("%s: want %s of %q, got %+v", name, row.level, row.do, s.findings)
		}
		s = Survey{}
		checkTopology(&s, row.in, c)
		if told := len(s.findings) > 0; told != (row.in.Cluster != "") {
			t.Errorf("%s: of the streams %+v", name, s.findings)
		}
	}
}

// A server that does not answer at the moment of the check keeps no service from starting: the start waits
// for it as the service does.
func TestServeDoesNotRefuseForASilentServer(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	conn := e.Connect(t, permission.RoleOperator)
	natstest.Ensure(t, conn)
	c := config.Config{
		Edge: true, Log: zerolog.Nop(), Store: config.Store{
			NATSURL: e.URL, Topology: topology.Options{Replicas: 1},
		},
	}
	if err := RefuseThere(t.Context(), conn, c); err != nil {
		t.Fatal(err)
	}
	conn.NC.Close()
	if err := RefuseThere(t.Context(), conn, c); err != nil {
		t.Error(err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// expectFinding looks for a finding of a level in an area, with some words.
func expectFinding(t *testing.T, byArea map[string][]Finding, area string, l Level, words string) {
	t.Helper()
	if !slices.ContainsFunc(byArea[area], func(f Finding) bool {
		return f.Level == l && strings.Contains(f.Detail, words)
	}) {
		t.Errorf("%s: want %s with %q, got %+v", area, l, words, byArea[area])
	}
}
