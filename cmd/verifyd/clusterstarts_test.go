//go:build linux

package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf/topology"
)

const (
	// startsEvery is the pause between two starts: 100 a second. While there is no leader, for at most 9.4 s,
	// no more of them wait than one edge allows.
	startsEvery = 10 * time.Millisecond
	// clientWaits is how long a client waits for an answer, as the documents advise.
	clientWaits = 15 * time.Second
)

// startsAroundDeaths starts sessions as integrators do, by clients that wait as the documents advise, while
// the NATS server that leads the sessions is killed, and another time stopped silently: none of them fails.
// As many are started as the users of TestCluster start meanwhile.
func startsAroundDeaths(ctx context.Context, t *testing.T, s *proof) error {
	t.Helper()
	deaths := []struct {
		what       string
		begin, end func(*member, context.Context) error
	}{
		{"killed", (*member).kill, (*member).start},
		{"stopped silently", (*member).freeze, (*member).thaw},
	}
	for _, d := range deaths {
		leader, err := s.leader(ctx, topology.BucketStream(topology.BucketSessions))
		if err != nil {
			return err
		}
		st := &starts{client: newCaller(t, s.key), url: s.door.base() + "/verify/init"}
		st.client.client.Timeout = clientWaits
		st.run(ctx, *clusterSessions/len(deaths), func() {
			if err := d.begin(leader, ctx); err != nil {
				t.Error(err)
			}
		})
		if err := errors.Join(d.end(leader, ctx), leader.await(ctx)); err != nil {
			return err
		}
		st.judge(t, leader.name+", which leads the sessions, is "+d.what)
	}
	return nil
}

// starts are starts of sessions at a steady pace.
type starts struct {
	client *caller
	url    string

	mu       sync.Mutex
	took     []time.Duration
	sessions map[string]bool
	failures map[string]int
}

// run starts n sessions. When a fifth of them has begun, vanish is called concurrently.
func (st *starts) run(ctx context.Context, n int, vanish func()) {
	st.sessions, st.failures = map[string]bool{}, map[string]int{}
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(startsEvery)
	defer tick.Stop()
	for i := range n {
		if i == n/5 {
			wg.Go(vanish)
		}
		wg.Go(func() { st.start(ctx) })
		<-tick.C
	}
}

func (st *starts) start(ctx context.Context) {
	began := time.Now()
	r, body, err := st.client.do(ctx, http.MethodPost, st.url, anInit)
	took := time.Since(began)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.took = append(st.took, took)
	switch {
	case err != nil:
		st.failures[err.Error()]++
	case r.StatusCode != http.StatusOK:
		why, _, _ := strings.Cut(string(body), `,"request_id":`)
		st.failures[r.Status+" "+why]++
	default:
		st.sessions[string(body)] = true
	}
}

func (st *starts) judge(t *testing.T, what string) {
	t.Helper()
	slices.Sort(st.took)
	at := func(percent int) float64 { return st.took[(len(st.took)-1)*percent/100].Seconds() }
	t.Logf("figures: %s: %d starts, %d failed; p50 %.3f s, p90 %.1f s, p99 %.1f s, the slowest %.1f s", what,
		len(st.took), len(st.took)-len(st.sessions), at(50), at(90), at(99), at(100))
	for why, n := range st.failures {
		t.Errorf("%s: %d starts failed: %s", what, n, why)
	}
	if len(st.failures) == 0 && len(st.sessions) != len(st.took) {
		t.Errorf("%s: %d answers tell of %d sessions", what, len(st.took), len(st.sessions))
	}
}
