package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// served serves a store with some outcomes, and returns a scrubber whose pauses are over at once.
func served(t *testing.T) (e *embedded.Server, conn *natsconf.Conn, dir string, s *Scrubber) {
	t.Helper()
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	dir = filepath.Join(t.TempDir(), "store")
	e, conn, _ = natstest.StartServer(t, embedded.Options{DataDir: dir})
	for i := range 100 {
		natstest.Publish(t, conn, fmt.Sprintf("completion.t%d", i), []byte("an outcome"))
		natstest.Publish(t, conn, fmt.Sprintf("notice.a.t%d", i), []byte("a notice"))
	}
	s = New(e, time.Hour, zerolog.Nop())
	s.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return e, conn, dir, s
}

// flip changes a bit of a message in the middle of a stream's file.
func flip(t *testing.T, dir, stream string) {
	t.Helper()
	path := filepath.Join(embedded.StreamFolder(dir, stream), "msgs", "1.blk")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A flipped bit is found. The store has failed, and the measurements show it.
func TestDamageIsFound(t *testing.T) {
	e, _, dir, s := served(t)
	r := prometheus.NewRegistry()
	s.Measure(r)
	flip(t, dir, topology.StreamCompletions)
	err := s.PassOnce(t.Context())
	if damage, ok := errors.AsType[*embedded.DamageError](e.Failure()); !ok ||
		damage.Damages[0].Stream != topology.StreamCompletions || !errors.Is(err, e.Failure()) {
		t.Errorf("the failure is %v, the pass ends with %v", e.Failure(), err)
	}
	found, err := testutil.GatherAndCount(r, "verifyd_store_damaged_records",
		"verifyd_store_scrub_age_seconds")
	if _, damaged := s.State(); damaged != 1 || found != 2 || err != nil {
		t.Errorf("%d damaged places are measured, %d metrics, %v", damaged, found, err)
	}
}

// Damage in a stream that no session needs is found, and the pass goes on.
func TestDamageAsideIsFound(t *testing.T) {
	e, _, dir, s := served(t)
	flip(t, dir, topology.StreamNotices)
	before, _ := s.State()
	if err := s.PassOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Damaged(topology.StreamNotices) == nil || e.Failure() != nil {
		t.Errorf("notices: %v, the store: %v", e.Damaged(topology.StreamNotices), e.Failure())
	}
	if ended, damaged := s.State(); damaged != 1 || !ended.After(before) {
		t.Errorf("%d damaged places, the pass ended at %s", damaged, ended)
	}
}

// What is being written is not damaged, nor what is replaced, deleted or erased meanwhile.
func TestWhatIsWrittenIsNotDamaged(t *testing.T) {
	e, conn, _, s := served(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				for _, m := range []string{
					fmt.Sprintf("completion.w%d-%d", w, i), fmt.Sprintf("session-keys.w%d", w),
					fmt.Sprintf("session.x.w%d-%d", w, i),
					topology.BucketSubject(topology.BucketSessions, fmt.Sprintf("w%d-%d", w, i%50)),
				} {
					if _, err := conn.JS.Publish(t.Context(), m, make([]byte, 20<<10)); err != nil {
						t.Error(err)
						return
					}
				}
				page := fmt.Sprintf("session-keys.w%d", w)
				_ = conn.Destroy(t.Context(), topology.StreamSessionKeys, page, 0)
			}
		})
	}
	for range 20 {
		if err := s.PassOnce(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	writers.Wait()
	if d := e.Damages(); len(d) > 0 {
		t.Errorf("called damaged: %v", d)
	}
}

// examined is a store that returns what a test says, read by read.
type examined struct {
	reads [][]embedded.Damage // of the first stream
	noted []embedded.Damage
	files int
}

func (e *examined) Examine(stream string, pause func() error) ([]embedded.Damage, error) {
	for range e.files {
		time.Sleep(time.Second) // of the bubble
		if err := pause(); err != nil {
			return nil, err
		}
	}
	if stream != topology.StreamNames()[0] || len(e.reads) == 0 {
		return nil, nil
	}
	found := e.reads[0]
	e.reads = e.reads[1:]
	return found, nil
}

func (e *examined) NoteDamage(d embedded.Damage) { e.noted = append(e.noted, d) }
func (e *examined) Failure() error               { return nil }

// What seems damaged counts if it is the same at the second look.
func TestOnlyWhatLastsIsDamaged(t *testing.T) {
	one, other := embedded.Damage{What: "one", Lost: 1}, embedded.Damage{What: "other"}
	more := embedded.Damage{What: "one", Lost: 2}
	for name, c := range map[string]struct {
		first, second, want []embedded.Damage
	}{
		"whole again": {[]embedded.Damage{one}, nil, nil},
		"another":     {[]embedded.Damage{one}, []embedded.Damage{other}, nil},
		"the same":    {[]embedded.Damage{one, other}, []embedded.Damage{more}, []embedded.Damage{more}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &examined{reads: [][]embedded.Damage{c.first, c.second}}
			if err := New(store, time.Hour, zerolog.Nop()).PassOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(store.noted, c.want) {
				t.Errorf("%s: %v is noted, want %v", name, store.noted, c.want)
			}
		})
	}
}

// A pass begins each hour, and takes a twentieth of a processor.
func TestPassesTakeATwentieth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(&examined{files: 1}, time.Hour, zerolog.Nop())
		began, _ := s.State()
		ctx, stop := context.WithTimeout(t.Context(), 90*time.Minute)
		defer stop()
		if err := s.Serve(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		want := time.Hour + time.Duration(len(topology.StreamNames()))*(1+idleShare)*time.Second
		if ended, _ := s.State(); ended.Sub(began) != want {
			t.Errorf("the pass ended after %s, want %s", ended.Sub(began), want)
		}
	})
}
