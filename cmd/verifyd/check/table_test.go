package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// What check calls an error of a server that answers, serve refuses as well: it is one table.
func TestServeRefusesWhatCheckCallsAnError(t *testing.T) {
	t.Parallel()
	well := natsconf.Inspection{
		MaxPayload: 1 << 20, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, Limit: 1 << 30,
		SkewKnown: true,
	}
	for name, row := range map[string]struct {
		change func(*natsconf.Inspection)
		area   string
		level  Level
	}{
		"well":           {func(*natsconf.Inspection) {}, "limits", LevelOK},
		"small messages": {func(in *natsconf.Inspection) { in.MaxPayload = 4096 }, "limits", LevelError},
		"few streams":    {func(in *natsconf.Inspection) { in.MaxStreams = 3 }, "limits", LevelError},
		"few consumers":  {func(in *natsconf.Inspection) { in.MaxConsumers = 3 }, "limits", LevelError},
		"bytes required": {
			func(in *natsconf.Inspection) { in.StreamsNeedLimits = true }, "limits", LevelError,
		},
		"bounded ack wait": {
			func(in *natsconf.Inspection) { in.MaxAckPending = 1000 }, "limits", LevelWarning,
		},
		"bounded streams": {
			func(in *natsconf.Inspection) { in.MaxStreamBytes = 1 << 30 }, "limits", LevelWarning,
		},
		"clock far off": {
			func(in *natsconf.Inspection) { in.Skew = -6 * time.Second }, "clock", LevelError,
		},
		"clock a bit off": {func(in *natsconf.Inspection) { in.Skew = time.Second }, "clock", LevelWarning},
		"nearly full store": {
			func(in *natsconf.Inspection) { in.Used, in.Limit = 85, 100 }, "store", LevelWarning,
		},
		"bounded store":   {func(*natsconf.Inspection) {}, "store", LevelOK},
		"unbounded store": {func(in *natsconf.Inspection) { in.Limit = -1 }, "store", LevelWarning},
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

// A server that does not answer at the moment of the look keeps no service from its start, which waits for it
// as the service does.
func TestServeDoesNotRefuseForASilentServer(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	conn := e.Connect(t, natsconf.RoleOperator)
	natstest.Ensure(t, conn)
	c := config.Config{
		Edge: true, Log: zerolog.Nop(), Store: config.Store{
			NATSURL: e.URL, Topology: natsconf.TopologyOptions{Embedded: true},
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

func TestMain(m *testing.M) {
	natstest.Parallel(8)
	goleak.VerifyTestMain(m)
}

// expectFinding looks for a finding of a level in an area, with some words.
func expectFinding(t *testing.T, byArea map[string][]Finding, area string, l Level, words string) {
	t.Helper()
	if !slices.ContainsFunc(byArea[area], func(f Finding) bool {
		return f.Level == l && strings.Contains(f.Detail, words)
	}) {
		t.Errorf("%s: want %s with %q, got %+v", area, l, words, byArea[area])
	}
}
