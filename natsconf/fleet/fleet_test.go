package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

func TestWhoIsThere(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	ask := func() []fleet.Process {
		t.Helper()
		all, err := fleet.Ask(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := ask(); len(all) != 0 {
		t.Errorf("nobody runs: %+v", all)
	}
	since := time.Now()
	report := func(p fleet.Process) func() fleet.Process {
		p.Since = since
		return func() fleet.Process { return p }
	}
	natstest.Serve(t, fleet.NewPresence(conn,
		report(fleet.Process{Host: "b", Roles: []string{"edge"}, Ready: true}), zerolog.Nop()))
	stop := natstest.Serve(t, fleet.NewPresence(conn, report(fleet.Process{
		Host: "a", Roles: []string{"dispatcher"}, Hosts: make([]fleet.Host, fleet.MaxHosts+1),
	}), zerolog.Nop()))
	var all []fleet.Process
	natstest.Await(t, "both listen, each from its own time", func() bool {
		all = ask()
		return len(all) >= 2
	})
	if len(all) != 2 || all[0].Host != "a" || all[1].Host != "b" || all[0].ID == all[1].ID {
		t.Fatalf("%+v", all)
	}
	if len(all[0].Hosts) != fleet.MaxHosts || !all[1].Ready {
		t.Errorf("%d hosts, ready %v", len(all[0].Hosts), all[1].Ready)
	}
	stop()
	natstest.Await(t, "the other one answers alone", func() bool {
		all = ask()
		return len(all) == 1 && all[0].Host == "b"
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fleet.Ask(ctx, conn); err == nil {
		t.Error("no error after its end")
	}
}

// If nobody answers, nobody runs.
func TestNobodyRuns(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T, conn *natsconf.Conn) {
		if is, err := fleet.AnyRunning(t.Context(), conn); is || err != nil {
			t.Errorf("somebody runs: %t, %v", is, err)
		}
	})
}

// A process that answers late counts.
func TestLateAnswerCounts(t *testing.T) {
	t.Parallel()
	virtual.Test(t, lateAnswerCounts)
}

func lateAnswerCounts(t *testing.T, conn *natsconf.Conn) {
	anybody := func() bool {
		t.Helper()
		is, err := fleet.AnyRunning(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	sub, err := conn.NC.Subscribe(topology.SubjectFleet, func(m *nats.Msg) {
		time.AfterFunc(time.Second, func() { _ = m.Respond([]byte(`{"id":"slow"}`)) })
	})
	if err != nil {
		t.Fatal(err)
	}
	// An answer that a busy machine makes later than it is waited for does not count.
	natstest.Await(t, "who answers after a second counts", anybody)
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	var late atomic.Int64 // it was just connecting when the first request was sent
	sub, err = conn.NC.Subscribe(topology.SubjectFleet, func(m *nats.Msg) {
		if late.Add(1) > 1 {
			_ = m.Respond([]byte(`{"id":"late"}`))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "who hears only the second question counts", func() bool {
		late.Store(0)
		return anybody()
	})
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fleet.AnyRunning(ctx, conn); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("after its end: %v", err)
	}
}

// Everyone counts who answers, late or not, once for each process, and one whose answer cannot be read.
func TestEveryone(t *testing.T) {
	t.Parallel()
	virtual.Test(t, everyone)
}

func everyone(t *testing.T, conn *natsconf.Conn) {
	sub, err := conn.NC.Subscribe(topology.SubjectFleet, func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"id":"quick","host":"a"}`))
		_ = m.Respond([]byte(`{`))
		time.AfterFunc(time.Second, func() {
			_ = m.Respond([]byte(`{"id":"slow","host":"b","key_fingerprint":"k"}`))
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	natstest.Await(t, "all three are counted", func() bool {
		all, err := fleet.Everyone(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 3 && all[0].Version == "unknown" && all[1].ID == "quick" && all[2].Key == "k"
	})
}

func TestHostsOfAll(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	all := []fleet.Process{
		{Hosts: []fleet.Host{{Host: "x", Breaker: "closed", Waiting: 3},
			{Host: "y", Breaker: "open", Since: late, Detail: "late"}}},
		{Hosts: []fleet.Host{{Host: "y", Breaker: "half-open", Since: early, Waiting: 2, Detail: "early"},
			{Host: "z", Breaker: "closed", Waiting: 9}}},
		{Hosts: []fleet.Host{{Host: "x", Breaker: "open", Since: late, Waiting: 1}}},
	}
	want := []fleet.Host{
		{Host: "x", Breaker: "open", Since: late, Waiting: 4},
		{Host: "y", Breaker: "half-open", Since: early, Waiting: 2, Detail: "early"},
		{Host: "z", Breaker: "closed", Waiting: 9},
	}
	if got := fleet.Hosts(all); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
