package provision_test

import (
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/topology"
)

func TestHealth(t *testing.T) {
	natstest.NeedsEmbedded(t, "what is said of a server that is alone")
	conn := natstest.Start(t)
	table := topology.New(topology.Options{Embedded: true})
	look := func() provision.Health {
		t.Helper()
		return provision.Ensurer{Conn: conn, Topology: table}.Health(t.Context())
	}
	h := look()
	if len(h.Streams) != len(table.Streams) || len(h.Consumers) != len(table.Consumers) {
		t.Fatalf("%d streams, %d consumers", len(h.Streams), len(h.Consumers))
	}
	for _, s := range h.Streams {
		if state, err := s.Check(); err != nil || !strings.Contains(state, "1 of 1 copies current") {
			t.Errorf("%s: %q, %v", s.Name, state, err)
		}
	}
	for _, c := range h.Consumers {
		if state, err := c.Check(); err != nil || !strings.Contains(state, "0 waiting") {
			t.Errorf("%s: %q, %v", c.Name, state, err)
		}
	}
	if state, err := h.CheckTopology(); err != nil {
		t.Errorf("table: %q, %v", state, err)
	}
	if state, err := h.CheckClock(); err != nil || !h.SkewKnown || h.Skew.Abs() > time.Second {
		t.Errorf("clock: %q, %v", state, err)
	}

	if err := conn.JS.DeleteStream(t.Context(), topology.StreamRetries); err != nil {
		t.Fatal(err)
	}
	h = look()
	if _, err := h.CheckTopology(); err == nil ||
		!strings.Contains(err.Error(), "stream RETRIES is missing") {
		t.Errorf("table without a stream: %v", err)
	}
	for _, s := range h.Streams {
		if _, err := s.Check(); (err != nil) != (s.Name == topology.StreamRetries) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if _, err := h.Consumers[1].Check(); err == nil {
		t.Error("the consumer of a stream that is gone is well")
	}
}

func TestStreamHealthWords(t *testing.T) {
	for _, row := range []struct {
		health provision.StreamHealth
		want   string
	}{
		{provision.StreamHealth{Leader: "n1", Copies: 3, Current: 3}, ""},
		{provision.StreamHealth{Leader: "n1", Copies: 3, Current: 2}, "missing or behind: one more failure"},
		{provision.StreamHealth{Leader: "n1", Copies: 3, Current: 2, Behind: []string{"n3"}},
			"behind at n3:"},
		{provision.StreamHealth{Leader: "n1", Copies: 3, Current: 1}, "fewer than a majority"},
		{provision.StreamHealth{Copies: 3, Current: 3}, "no server leads it"},
	} {
		_, err := row.health.Check()
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row.health, err)
		}
	}
	if _, err := (provision.Health{SkewKnown: true, Skew: -storetime.MaxSkew}).CheckClock(); err == nil {
		t.Error("a clock that is five seconds behind is well")
	}
}
