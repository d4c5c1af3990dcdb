package alarm_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// service is several processes on one store, with one clock.
type service struct {
	conn *natsconf.Conn

	mu       sync.Mutex
	at       time.Time
	notified []alarm.Event
	deaf     bool // operators cannot be notified
}

func newService(t *testing.T) *service {
	return &service{conn: natstest.Start(t), at: time.Now()}
}

func (s *service) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// pass advances the time.
func (s *service) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

func (s *service) notify(_ context.Context, e alarm.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return errors.New("nobody takes it")
	}
	s.notified = append(s.notified, e)
	return nil
}

// expect checks the notifications to operators since the last call.
func (s *service) expect(t *testing.T, when string, want ...alarm.Status) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []alarm.Status
	for _, e := range s.notified {
		got = append(got, e.Status)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: told %v, want %v", when, got, want)
	}
	s.notified = nil
}

// process is one of them, with what it sees.
type process struct {
	*alarm.Keeper
	sees []alarm.Condition
}

func (s *service) start(change ...func(*alarm.Config)) *process {
	p := &process{}
	c := alarm.Config{
		Conn: s.conn,
		Sources: []func(context.Context) []alarm.Condition{
			func(context.Context) []alarm.Condition { return p.sees },
		},
		Announce: alarm.ToOperators(s.conn, zerolog.Nop()), Notify: s.notify,
		Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(), Now: s.now,
	}
	for _, alter := range change {
		alter(&c)
	}
	p.Keeper = alarm.New(c)
	return p
}

// A keeper that is served checks by itself.
func TestKeeperChecksByItself(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T, conn *natsconf.Conn) {
		s, heard := &service{conn: conn, at: time.Now()}, make(chan alarm.Event, 1)
		p := s.start(func(c *alarm.Config) {
			c.Notify = func(_ context.Context, e alarm.Event) error { heard <- e; return nil }
		})
		p.sees = []alarm.Condition{{Type: alarm.StoreHigh}}
		natstest.Serve(t, p)
		if e := natstest.Receive(t, "it is raised", heard); e.Status != alarm.Raised {
			t.Errorf("told %+v", e)
		}
	})
}

// look makes processes check, all at the same moment.
func look(t *testing.T, ps ...*process) {
	t.Helper()
	var all sync.WaitGroup
	for _, p := range ps {
		all.Go(func() {
			if err := p.CheckOnce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

var high = []alarm.Condition{{Type: alarm.StoreHigh, Detail: "full", Data: map[string]any{"used_bytes": 9}}}

// Several processes see the same: operators are notified once, and once more when none of them sees it any
// more.
func TestEachCauseIsReportedOnce(t *testing.T) {
	s := newService(t)
	heard := make(chan *nats.Msg, 16)
	sub, err := s.conn.NC.ChanSubscribe(alarm.Subject+">", heard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	all := []*process{s.start(), s.start(), s.start()}
	look(t, all...)
	s.expect(t, "nothing is wrong")
	for _, p := range all {
		p.sees = high
	}
	for range 20 { // over several renewals and leases
		look(t, all...)
		s.pass(alarm.Every)
	}
	s.expect(t, "three see it for minutes", alarm.Raised)
	all[0].sees, all[1].sees = nil, nil
	look(t, all...)
	s.expect(t, "one still sees it")
	all[2].sees = nil
	for range 5 {
		look(t, all...)
		s.pass(alarm.Every)
	}
	s.expect(t, "nobody sees it", alarm.Resolved)
	all[1].sees = high
	look(t, all...)
	s.expect(t, "it comes again", alarm.Raised)
	var e alarm.Event
	m := <-heard
	if err := json.Unmarshal(m.Data, &e); err != nil || m.Subject != "verifyd.alarm.store.high" ||
		e.Type != alarm.StoreHigh || e.Status != alarm.Raised || e.ID == "" || e.Detail != "full" {
		t.Errorf("%s %s: %v", m.Subject, m.Data, err)
	}
}

// A process that saw it and died no longer reports it; if the notifying process died, another takes over.
func TestTheDeadAreFollowed(t *testing.T) {
	s := newService(t)
	dying, other := s.start(), s.start()
	dying.sees = high
	s.deaf = true
	look(t, dying)
	s.deaf = false
	look(t, other)
	s.expect(t, "the teller has time yet")
	s.pass(61 * time.Second)
	look(t, other)
	s.expect(t, "another tells", alarm.Raised)
	look(t, other)
	s.pass(2 * time.Minute)
	look(t, other)
	s.expect(t, "nobody reports it any more", alarm.Resolved)
}

// The process that opened a cause may die before it announces it: the next one does, also where nothing but
// announcements tells operators.
func TestWhoTakesOverAnnounces(t *testing.T) {
	for name, notify := range map[string]func(context.Context, alarm.Event) error{
		"announcements alone": nil,
		"an address as well":  func(context.Context, alarm.Event) error { return nil },
	} {
		s := newService(t)
		s.deaf = true
		dying := s.start(func(c *alarm.Config) { c.Announce = nil }) // it dies at the first try
		var announced []alarm.Event
		other := s.start(func(c *alarm.Config) {
			c.Announce = func(e alarm.Event) { announced = append(announced, e) }
			c.Notify = notify
		})
		dying.sees = high
		look(t, dying)
		s.pass(61 * time.Second)
		look(t, other)
		look(t, other)
		if len(announced) != 1 || announced[0].Status != alarm.Raised {
			t.Errorf("%s: announced %+v, want the cause once", name, announced)
		}
	}
}

// A notification may take longer than the whole check: that it was sent is stored, so that the cause is sent
// as resolved.
func TestSlowNotificationIsNoted(t *testing.T) {
	s := newService(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := s.start(func(c *alarm.Config) {
		c.Notify = func(ctx context.Context, e alarm.Event) error {
			cancel() // the check's time is over
			return s.notify(ctx, e)
		}
	})
	p.sees = high
	if err := p.CheckOnce(ctx); err != nil {
		t.Fatal(err)
	}
	p.sees = nil
	look(t, p)
	s.expect(t, "the cause came and went", alarm.Raised, alarm.Resolved)
}

// A cause that ended before anybody could be notified is not reported.
func TestUnreportedCauseIsNotResolved(t *testing.T) {
	s := newService(t)
	p := s.start()
	p.sees = high
	s.deaf = true
	look(t, p)
	s.pass(61 * time.Second)
	p.sees, s.deaf = nil, false
	look(t, p)
	s.pass(time.Hour)
	look(t, p)
	s.expect(t, "it was never told")
}

// A condition with an end outlasts the process that saw it, and ends then, or when it is known to be over.
func TestWhatHoldsByItself(t *testing.T) {
	s := newService(t)
	until := s.at.Add(24 * time.Hour)
	near := func(account string, over bool) alarm.Condition {
		return alarm.Condition{Type: alarm.QuotaNear, About: account, Until: until, Over: over}
	}
	dying, other := s.start(), s.start()
	dying.sees = []alarm.Condition{near("acc_a", false), near("acc_b", false), near("acc_c", true)}
	look(t, dying)
	s.expect(t, "two accounts", alarm.Raised, alarm.Raised)
	s.pass(time.Hour)
	look(t, other)
	s.expect(t, "an hour later")
	other.sees = []alarm.Condition{near("acc_a", true)}
	look(t, other)
	look(t, other)
	s.expect(t, "one quota was raised", alarm.Resolved)
	other.sees = nil
	s.pass(24 * time.Hour)
	look(t, other)
	look(t, other)
	s.expect(t, "the month is over", alarm.Resolved)
}

// What a process has reported that is gone is ended only by one whose clock is right.
func TestWrongClockEndsNoAlarm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	s := &service{conn: conn, at: time.Now()}
	gone, right := s.start(), s.start()
	gone.sees = high
	wrong := s.start(func(c *alarm.Config) {
		c.Conn = natstest.ConnectTo(t, natstest.URL(t, dir), func(o *natsconf.ConnectOptions) {
			o.Now = func() time.Time { return time.Now().Add(-time.Hour) }
		})
	})
	look(t, gone)
	s.expect(t, "at first", alarm.Raised)
	s.pass(10 * time.Minute)
	look(t, wrong)
	s.expect(t, "a process whose clock is wrong looks")
	look(t, right)
	s.expect(t, "one whose clock is right looks", alarm.Resolved)
	right.sees = high
	look(t, right)
	s.expect(t, "again", alarm.Raised)
	wrong.sees = high
	look(t, wrong)
	wrong.sees, right.sees = nil, nil
	look(t, wrong) // it takes back what it reported itself
	s.expect(t, "another still sees it")
	look(t, right)
	s.expect(t, "nobody does", alarm.Resolved)
}
