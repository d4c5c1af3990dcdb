package provision_test

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// shapes are answers to STREAM.INFO as servers give them, with what follows from each.
var shapes = map[string]struct {
	cluster string // empty: nobody answers
	whole   bool
	current int
	behind  []string
}{
	"all are current": {`{"name":"c","leader":"n1","replicas":[` +
		`{"name":"n2","current":true,"active":31284},{"name":"n3","current":true,"active":31384}]}`,
		true, 3, nil},
	"one is off": {`{"name":"c","leader":"n1","replicas":[` +
		`{"name":"n2","current":true,"active":31284},` +
		`{"name":"n3","current":false,"offline":true,"active":7224521000,"lag":91}]}`,
		false, 2, []string{"n3"}},
	"one was heard a moment ago, and is off": {`{"name":"c","leader":"n1","replicas":[` +
		`{"name":"n2","current":true,"active":31284},` +
		`{"name":"n3","current":true,"offline":true,"active":724521000}]}`, false, 2, []string{"n3"}},
	"one catches up": {`{"name":"c","leader":"n1","replicas":[` +
		`{"name":"n2","current":false,"active":31284,"lag":40218},` +
		`{"name":"n3","current":true,"active":31284}]}`, false, 2, []string{"n2"}},
	"two are off": {`{"name":"c","leader":"n1","replicas":[` +
		`{"name":"n3","current":false,"offline":true,"active":1},` +
		`{"name":"n2","current":false,"offline":true,"active":1}]}`, false, 1, []string{"n2", "n3"}},
	"one was removed": {`{"name":"c","leader":"n1","replicas":[` +
		`{"name":"n2","current":true,"active":31284}]}`, false, 2, nil},
	"a follower answers while none leads": {`{"name":"c","replicas":[` +
		`{"name":"n2","current":true,"active":1},{"name":"n3","current":true,"active":1}]}`, false, 0, nil},
	"nobody answers": {"", false, 0, nil},
}

// ofShape is a topology of one stream, whose state the test reports itself, below shapePrefix.
var ofShape = topology.Topology{Streams: []jetstream.StreamConfig{{
	Name: "SHAPE", Replicas: natstest.Replicas,
}}}

const shapePrefix = "shapes"

// askingTheTest returns a connection whose requests to JetStream go to the test.
func askingTheTest(t *testing.T) *natsconf.Conn {
	t.Helper()
	conn := natstest.Start(t)
	js, err := jetstream.NewWithAPIPrefix(conn.NC, shapePrefix)
	if err != nil {
		t.Fatal(err)
	}
	conn.JS = js
	return conn
}

// A copy that load keeps a few messages behind is current at the next instant; one that is not, or that says
// nothing any more, is behind.
func TestCopyThatIsBehindForAMoment(t *testing.T) {
	t.Parallel()
	conn := askingTheTest(t)
	const (
		behind = `{"leader":"n1","replicas":[{"name":"n2","current":true,"active":31284},` +
			`{"name":"n3","current":false,"active":5284000,"lag":9}]}`
		mute = `{"leader":"n1","replicas":[{"name":"n2","current":true,"active":31284},` +
			`{"name":"n3","current":false,"active":5284000000,"lag":9}]}`
		current = `{"leader":"n1","replicas":[{"name":"n2","current":true,"active":31284},` +
			`{"name":"n3","current":true,"active":31284}]}`
	)
	for name, row := range map[string]struct {
		clusters []string
		whole    bool
	}{
		"for a moment":     {[]string{behind, behind, current}, true},
		"at each look":     {[]string{behind}, false},
		"and says nothing": {[]string{mute, current}, false},
	} {
		t.Run(name, func(t *testing.T) {
			answer(t, conn, row.clusters...)
			h := provision.Ensurer{Conn: conn, Topology: ofShape}.Health(t.Context())
			if h.Streams[0].Whole() != row.whole {
				t.Errorf("%+v", h.Streams[0])
			}
		})
	}
}

// Each shape of STREAM.INFO becomes what a stream lacks, and the figures that monitoring reads.
func TestShapesOfStreamInfo(t *testing.T) {
	t.Parallel()
	conn := askingTheTest(t)
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			if shape.cluster != "" {
				answer(t, conn, shape.cluster)
			}
			o := provision.NewObserver(conn, ofShape)
			o.AskOnce(t.Context())
			h := o.Health().Streams[0]
			streams, servers := provision.Degraded(o.Health().Streams)
			if h.Whole() != shape.whole || (len(streams) == 0) != shape.whole ||
				!slices.Equal(servers, shape.behind) || h.Copies != natstest.Replicas {
				t.Errorf("%+v: degraded %q, behind %q", h, streams, servers)
			}
			if _, err := h.Check(); (err == nil) != shape.whole {
				t.Errorf("%+v: %v", h, err)
			}
			led := strings.Contains(shape.cluster, `"leader"`)
			if _, err := o.Check(); (err == nil) != led {
				t.Errorf("whether a leader answered: %v", err)
			}
			expectFigures(t, o, shape.current, led)
		})
	}
}

// answer answers requests for a stream's state until the test ends: the first as in the first cluster, and
// all from the last one on as in that.
func answer(t *testing.T, conn *natsconf.Conn, clusters ...string) {
	t.Helper()
	sub, err := conn.NC.Subscribe(shapePrefix+".STREAM.INFO.SHAPE", func(m *nats.Msg) {
		body, err := json.Marshal(map[string]any{
			"config": ofShape.Streams[0], "state": map[string]any{"messages": 7},
			"cluster": json.RawMessage(clusters[0]),
		})
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(body)
		if len(clusters) > 1 {
			clusters = clusters[1:]
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// expectFigures checks the metrics of the only stream.
func expectFigures(t *testing.T, o *provision.Observer, current int, led bool) {
	t.Helper()
	r := prometheus.NewRegistry()
	o.Measure(r)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	leaders := 0
	if led {
		leaders = 1
	}
	want := map[string]int{"verifyd_stream_copies_wanted": natstest.Replicas,
		"verifyd_stream_copies_current": current, "verifyd_stream_leader_known": leaders}
	got := map[string]int{}
	for _, f := range families {
		m := f.GetMetric()[0]
		if len(f.GetMetric()) != 1 || m.GetLabel()[0].GetValue() != "SHAPE" {
			t.Errorf("%s: %v", f.GetName(), f.GetMetric())
		}
		got[f.GetName()] = int(m.GetGauge().GetValue())
	}
	if !maps.Equal(got, want) {
		t.Errorf("figures %v, want %v", got, want)
	}
}

// One of three servers vanishes: each stream lacks its copy, the leaders name it, and all is whole again once
// it is back and has caught up.
func TestLostServerIsObserved(t *testing.T) {
	t.Parallel()
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	o := provision.NewObserver(conn, topology.New(natstest.Options(conn)))
	degraded := func() (streams, servers []string) {
		o.AskOnce(t.Context())
		return provision.Degraded(o.Health().Streams)
	}
	whole := func() bool { streams, _ := degraded(); return len(streams) == 0 }
	natstest.Await(t, "all copies are current", whole)
	all := len(o.Health().Streams)
	const lost = "n3"
	trio.Kill(lost)
	natstest.Await(t, "every stream has a leader, and lacks the copy of that server", func() bool {
		streams, servers := degraded()
		return len(streams) == all && slices.Equal(servers, []string{lost}) &&
			!slices.ContainsFunc(o.Health().Streams, func(s provision.StreamHealth) bool {
				return s.Leader == "" || s.Current != natstest.Replicas-1
			})
	})
	for range 200 { // that it has to catch up with
		natstest.Publish(t, conn, "claim.t"+rand.Text()+".1", []byte("{}"),
			nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}})
	}
	trio.Start(t, lost)
	natstest.Await(t, "all copies are current again", whole)
}
