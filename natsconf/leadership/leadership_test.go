package leadership_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/leadership"
)

func TestHeard(t *testing.T) {
	t.Parallel()
	replicas := func(active ...time.Duration) *jetstream.ClusterInfo {
		c := &jetstream.ClusterInfo{Leader: "n1"}
		for _, a := range active {
			c.Replicas = append(c.Replicas, &jetstream.PeerInfo{Active: a})
		}
		return c
	}
	leaderless := replicas(time.Second, time.Second)
	leaderless.Leader = ""
	just := replicas(0, 0)
	just.Replicas[1].Current = true
	for name, test := range map[string]struct {
		cluster *jetstream.ClusterInfo
		ago     time.Duration
		alone   bool
		err     error
	}{
		"no cluster":               {nil, 0, true, nil},
		"one copy in a cluster":    {replicas(), 0, true, nil},
		"no leader":                {leaderless, leadership.Never, false, leadership.ErrNoLeader},
		"three, one is down":       {replicas(9*time.Second, time.Second), time.Second, false, nil},
		"three, cut off":           {replicas(9*time.Second, 8*time.Second), 8 * time.Second, false, nil},
		"three, nobody yet":        {replicas(0, 0), leadership.Never, false, nil},
		"three, one this instant":  {just, 0, false, nil},
		"five, two are down":       {replicas(8, 1, 9, 2), 2, false, nil},
		"five, one is never heard": {replicas(0, 3, 2, 0), 3, false, nil},
		"five, too few are heard":  {replicas(0, 3, 0, 0), leadership.Never, false, nil},
	} {
		ago, alone, err := leadership.Heard(&jetstream.StreamInfo{Cluster: test.cluster})
		if ago != test.ago || alone != test.alone || !errors.Is(err, test.err) {
			t.Errorf("%s: %s, %t, %v, want %s, %t, %v", name, ago, alone, err, test.ago, test.alone, test.err)
		}
	}
}

// asked answers as the leader of a stream does, and counts how often it was asked.
type asked struct {
	mu    sync.Mutex
	times int
	ago   time.Duration
	alone bool
	err   error
	takes time.Duration
}

func (a *asked) ask(ctx context.Context, _ string) (time.Duration, bool, error) {
	a.mu.Lock()
	a.times++
	ago, alone, err, takes := a.ago, a.alone, a.err, a.takes
	a.mu.Unlock()
	select {
	case <-time.After(takes):
		return ago, alone, err
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
}

// endsLater is a context that ends after it was asked a few times.
type endsLater struct {
	context.Context
	left int
}

func (c *endsLater) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A caller that ends at whatever moment leaves the question to the others.
func TestCallerThatEndsLeavesTheQuestion(t *testing.T) {
	t.Parallel()
	for left := range 5 {
		synctest.Test(t, func(t *testing.T) {
			l := leadership.New((&asked{alone: true}).ask)
			_ = l.Await(&endsLater{t.Context(), left}, "ONE")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := l.Await(ctx, "ONE"); err != nil {
				t.Errorf("after one that ended at its look %d: %v", left+1, err)
			}
		})
	}
}

// A leader is taken for the only one until two seconds after a majority answered it, counted from before the
// question. Callers share the question.
func TestLeaderThatIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asked{ago: 700 * time.Millisecond, takes: 100 * time.Millisecond}
		l, began := leadership.New(a.ask), time.Now()
		if !l.Until("ONE").Before(began) {
			t.Error("a leader is believed that was not asked")
		}
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				if err := l.Await(t.Context(), "ONE"); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if want := began.Add(1300 * time.Millisecond); !l.Until("ONE").Equal(want) || a.times != 1 {
			t.Errorf("after %d questions it is believed for %s, want 1.3s", a.times,
				l.Until("ONE").Sub(began))
		}
		if !l.Until("TWO").Before(began) {
			t.Error("the leader of another stream is believed, too")
		}
		time.Sleep(1100 * time.Millisecond) // of the bubble
		if err := l.Await(t.Context(), "ONE"); err != nil || a.times != 1 {
			t.Errorf("while it is believed: %v, after %d questions", err, a.times)
		}
		time.Sleep(100 * time.Millisecond) // of the bubble
		if err := l.Await(t.Context(), "ONE"); err != nil || a.times != 2 {
			t.Errorf("afterwards: %v, after %d questions, want another one", err, a.times)
		}
	})
}

// Nobody else has a copy: that is asked once a minute.
func TestLeaderAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asked{alone: true}
		l := leadership.New(a.ask)
		for range 119 {
			if err := l.Await(t.Context(), "ONE"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // of the bubble
		}
		if a.times != 2 {
			t.Errorf("asked %d times in two minutes", a.times)
		}
	})
}

// A leader that nobody answers is asked again until the callers' time is over, ten times a second for all of
// them together. One that is answered again, or follows it, is believed at once.
func TestLeaderThatIsNotHeard(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]*asked{
		"cut off":     {ago: leadership.Within},
		"new":         {ago: leadership.Never},
		"no leader":   {err: leadership.ErrNoLeader},
		"slow answer": {ago: 1900 * time.Millisecond, takes: 200 * time.Millisecond},
		"no answer":   {takes: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := leadership.New(a.ask)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var callers sync.WaitGroup
			for range 20 {
				callers.Go(func() {
					if err := l.Await(ctx, "ONE"); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			callers.Wait()
			if a.times < 5 || a.times > 31 {
				t.Errorf("%s: asked %d times in three seconds", name, a.times)
			}
			waiting := make(chan error, 1)
			go func() { waiting <- l.Await(t.Context(), "ONE") }()
			time.Sleep(time.Second) // of the bubble
			a.mu.Lock()
			a.ago, a.err, a.takes = 0, nil, 0
			a.mu.Unlock()
			if err := <-waiting; err != nil {
				t.Errorf("%s: %v once it is heard", name, err)
			}
		})
	}
}

// A caller that leaves takes nothing from the others, not even if the question was its own.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asked{takes: 300 * time.Millisecond}
		l := leadership.New(a.ask)
		ctx, leave := context.WithCancel(t.Context())
		left, stays := make(chan error, 1), make(chan error, 1)
		go func() { left <- l.Await(ctx, "ONE") }()
		synctest.Wait()
		go func() { stays <- l.Await(t.Context(), "ONE") }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error("who left:", err)
		}
		if err := <-stays; err != nil {
			t.Error("who stays:", err)
		}
		if a.times != 2 {
			t.Errorf("asked %d times", a.times)
		}
	})
}
