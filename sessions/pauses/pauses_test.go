package pauses_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
	"verifyd/sessions/pauses"
	"verifyd/sessions/urlpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

func TestPauseBeginsAndEnds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := pauses.NewStore(natstest.Start(t), func() time.Time { return now })
	if _, err := s.End(t.Context(), "bot.example.com", "olga"); !errors.Is(err, pauses.ErrNotPaused) {
		t.Errorf("the end of no pause: %v", err)
	}
	p, err := s.Begin(t.Context(), "Bot.Example.com", "olga", " moving house ", time.Hour)
	if err != nil || p.Host != "bot.example.com:443" || p.Reason != "moving house" ||
		!p.Until.Equal(now.Add(time.Hour)) || !p.On(now) || p.On(now.Add(time.Hour)) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := s.Begin(t.Context(), "[2001:db8::1]:8443", "olga", "", time.Minute); err != nil {
		t.Error(err)
	}
	on, err := s.List(t.Context())
	if err != nil || len(on) != 2 || on[0].Host != "[2001:db8::1]:8443" || on[1].Host != p.Host {
		t.Errorf("%+v, %v", on, err)
	}
	p, err = s.End(t.Context(), "bot.example.com:443", "dev")
	if err != nil || p.EndedBy != "dev" || p.On(now) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := s.End(t.Context(), "bot.example.com", "olga"); !errors.Is(err, pauses.ErrNotPaused) {
		t.Errorf("a second end: %v", err)
	}
	now = now.Add(time.Minute) // the other one's end
	if on, err := s.List(t.Context()); err != nil || len(on) != 0 {
		t.Errorf("%+v, %v", on, err)
	}
}

func TestBadPauses(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := pauses.NewStore(conn, nil)
	for _, host := range []string{
		"", "https://bot.example.com", "bot.example.com/x", "bot example", "user@bot.example.com",
		"bot.example.com:0", "*",
	} {
		if _, err := s.Begin(t.Context(), host, "olga", "", time.Hour); !errors.As(err,
			new(*urlpolicy.Fault)) {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for _, lasts := range []time.Duration{0, -time.Hour, pauses.Longest + 1} {
		if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", lasts); !errors.Is(err,
			pauses.ErrTooLong) {
			t.Errorf("for %s: %v", lasts, err)
		}
	}
	if _, err := s.Begin(t.Context(), "bot.example.com", "olga", strings.Repeat("x", 201),
		time.Hour); !errors.Is(err, pauses.ErrReason) {
		t.Errorf("a long reason: %v", err)
	}
	o := natstest.Options(conn)
	o.KeepResults = 4 * time.Hour
	short := provision.Ensurer{Conn: conn, Update: true, Topology: topology.New(o)}
	if err := short.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", 3*time.Hour); !errors.Is(err,
		pauses.ErrTooLong) {
		t.Errorf("a pause that outlasts half of the results: %v", err)
	}
}

// A pause does not last until the oldest waiting callback leaves the store, however many pauses came before
// it.
func TestPauseFitsWhatIsLeft(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := pauses.NewStore(natstest.Start(t), func() time.Time { return now })
	oldest := now.Add(-50 * time.Hour)
	s.Oldest = func(context.Context) (time.Time, error) { return oldest, nil }
	_, err := s.Begin(t.Context(), "bot.example.com", "olga", "", 22*time.Hour)
	left, ok := errors.AsType[*pauses.TooLongError](err)
	if !ok || !errors.Is(err, pauses.ErrTooLong) || left.Left != 21*time.Hour ||
		!strings.Contains(err.Error(), "at most 21h0m0s") {
		t.Errorf("22 of 21 hours: %v", err)
	}
	if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", 21*time.Hour); err != nil {
		t.Error(err)
	}
	now = now.Add(21 * time.Hour)
	if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", time.Minute); !errors.As(err,
		new(*pauses.TooLongError)) || !strings.Contains(err.Error(), "resume") {
		t.Errorf("nothing is left: %v", err)
	}
	oldest = time.Time{}
	if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", pauses.Longest); err != nil {
		t.Errorf("nothing waits: %v", err)
	}
}

// A newer build's pause, of whatever shape, is neither ended nor overwritten: that build reads it. Garbage is
// no newer build's.
func TestNewerPausesAreLeft(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := pauses.NewStore(conn, nil)
	if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", time.Hour); err != nil {
		t.Fatal(err)
	}
	stream := topology.BucketStream(topology.BucketOperations)
	m, err := conn.Last(t.Context(), stream, topology.BucketSubject(topology.BucketOperations, "pause.>"))
	if err != nil {
		t.Fatal(err)
	}
	for shape, newer := range map[string]bool{
		`{"v":2,"host":"bot.example.com:443","until":"2126-01-01T00:00:00Z"}`: true,
		`{"v":2,"host":["bot.example.com:443"],"at":0}`:                       true,
		`{"host":["bot.example.com:443"]}`:                                    false,
		`{"stream":"a server's answer"}`:                                      false,
	} {
		seq := natstest.Publish(t, conn, m.Subject, []byte(shape))
		_, begin := s.Begin(t.Context(), "bot.example.com", "olga", "", time.Hour)
		_, end := s.End(t.Context(), "bot.example.com", "olga")
		for what, err := range map[string]error{"begin": begin, "end": end} {
			if err == nil || errors.Is(err, natsconf.ErrNewer) != newer ||
				strings.Contains(err.Error(), "run the newer verifyd") != newer {
				t.Errorf("%s with %s: %v", what, shape, err)
			}
		}
		if now, err := conn.Last(t.Context(), stream, m.Subject); err != nil || now.Sequence != seq {
			t.Errorf("%s was written over: %v", shape, err)
		}
	}
}

// Of many concurrent changes of one host's pause each stores its own, and a mirror ends with the stored one.
func TestManyChangeOnePause(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := pauses.NewStore(conn, nil)
	m := pauses.NewMirror(conn, zerolog.Nop())
	natstest.Serve(t, m)
	<-m.Loaded()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := s.Begin(t.Context(), "bot.example.com", "olga", "", time.Hour); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := s.End(t.Context(), "bot.example.com", "olga"); err != nil {
		t.Fatal(err)
	}
	late := time.After(natstest.TestTimeout)
	for {
		changed := m.Changed()
		if p, ok := m.Of("bot.example.com:443"); ok && !p.Ended.IsZero() {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatal("the mirror does not hear of the end")
		}
	}
}
