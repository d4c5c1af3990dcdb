//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/history"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/topology"
)

var (
	clusterSessions = flag.Int("cluster", 1500, "how many sessions TestCluster starts")
	clusterFreeze   = flag.Duration("cluster-freeze", 20*time.Second,
		"how long TestCluster stops a NATS server with SIGSTOP")
	clusterCut = flag.Duration("cluster-cut", 10*time.Second,
		"how long TestCluster cuts a NATS server off from the others")
)

const (
	// cutOff is how long a dispatcher is cut off from NATS: longer than the ack wait, so that the other one
	// gets what it holds.
	cutOff = topology.AckWait + 5*time.Second
	// probeEvery is the interval at which sessions are started to see whether that is possible.
	probeEvery = 100 * time.Millisecond
	// restAfter is the pause between two faults of one kind.
	restAfter = 2 * time.Second
)

// The service in containers on private networks, three NATS servers, two edges behind a load balancer and two
// dispatchers, under the faults of a cluster: the servers that lead the streams are killed, each server in
// turn is cut off from the others, one is stopped with SIGSTOP; meanwhile edges and dispatchers are killed
// and restarted, and a dispatcher is cut off from NATS between its claim and the POST, and between the POST
// and its result. Users continue as people do. POSTs are counted at a real receiver as in TestChaos. The
// first two faults of the NATS servers are those of startsAroundDeaths, in which the edges are left alone.
//
// docs/EVIDENCE.md has the command of a long run.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := newProof(t)
	began := time.Now()
	over := make(chan struct{})
	c := &crowd{base: s.door.base(), key: s.key, counter: s.counter, until: over, log: history.New()}
	w := c.witness()
	w.meter(t, 3, func(args ...string) (string, error) { return s.operate(t.Context(), args...) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	p := &probe{crowd: c}
	probing, stopProbing := context.WithCancel(ctx)
	wg.Go(func() { p.walk(probing) })
	wg.Go(func() { w.walk(probing) })
	wg.Go(func() {
		c.walk(ctx, rand.New(rand.NewPCG(uint64(began.UnixNano()), 2)), *clusterSessions, lasts())
	})
	r := &ruin{t: t, s: s, log: c.log}
	if err := r.torment(ctx); err != nil {
		t.Fatal(err)
	}
	close(over)
	t.Logf("after %.0f s everything is well again", time.Since(began).Seconds())
	stopProbing()
	wg.Wait()
	got := c.judge(t)
	t.Logf("figures: %.0f s: %s; %s", time.Since(began).Seconds(), got, p)
	if got.broken() {
		t.Errorf("broken promises: %s", got)
	}
}

// lasts is the time over which the sessions are spread: about that of the faults, without the time that
// servers take to come back, for which users have to wait, too.
func lasts() time.Duration {
	starts := time.Duration(*clusterSessions) * startsEvery
	return 20*time.Second + max(starts+3**clusterCut+*clusterFreeze, 2*cutOff)
}

// ruin injects the faults: one at a time on the NATS servers, of which two must remain, one at a time on the
// edges and one on the dispatchers.
type ruin struct {
	t   *testing.T
	s   *proof
	log *history.Log

	began time.Time
}

func (r *ruin) torment(ctx context.Context) error {
	r.began = time.Now()
	var wg sync.WaitGroup
	var stores, edges, dispatchers error
	wg.Go(func() { dispatchers = r.dispatchers(ctx) })
	wg.Go(func() {
		if stores = startsAroundDeaths(ctx, r.t, r.s); stores != nil {
			return
		}
		wg.Go(func() { edges = errors.Join(r.kill(ctx, r.s.edges), r.roll(ctx, r.s.edges)) })
		stores = r.stores(ctx)
	})
	wg.Wait()
	return errors.Join(stores, edges, dispatchers)
}

// say logs what happens, with the second at which it does.
func (r *ruin) say(format string, args ...any) {
	r.t.Logf("%5.1f s  %s", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *ruin) stores(ctx context.Context) error {
	for _, stream := range []string{
		topology.StreamCompletions, topology.BucketStream(topology.BucketSessions),
	} {
		m, err := r.s.leader(ctx, stream)
		if err != nil {
			return err
		}
		r.say("%s, which leads %s, is killed", m.name, stream)
		if err := r.outage(ctx, m, restAfter, m.kill, m.start); err != nil {
			return err
		}
	}
	for _, m := range r.s.stores {
		r.say("%s is cut off from the others", m.name)
		cut := func(ctx context.Context) error { return m.cut(ctx, r.s.store) }
		heal := func(ctx context.Context) error { return r.rejoin(ctx, m) }
		if err := r.outage(ctx, m, *clusterCut, cut, heal); err != nil {
			return err
		}
	}
	m, err := r.s.leader(ctx, topology.StreamCompletions)
	if err != nil {
		return err
	}
	r.say("%s, which leads %s, is stopped", m.name, topology.StreamCompletions)
	return r.outage(ctx, m, *clusterFreeze, m.freeze, m.thaw)
}

// heardWithin is how soon a server that is back has heard from the current leader, which sends something each
// second.
const heardWithin = 2 * time.Second

// rejoin ends the cut of a server, which may believe that it leads until it hears of another leader.
func (r *ruin) rejoin(ctx context.Context, m *member) error {
	over := r.log.Behind()
	defer over()
	if err := errors.Join(m.heal(ctx, r.s.store), m.await(ctx)); err != nil {
		return err
	}
	pass(ctx, heardWithin)
	return nil
}

// outage injects a fault, leaves it for a while, ends it and waits until the member has recovered.
func (r *ruin) outage(ctx context.Context, m *member, lasts time.Duration, begin,
	end func(ctx context.Context) error) error {
	if err := begin(ctx); err != nil {
		return err
	}
	pass(ctx, lasts)
	if err := end(ctx); err != nil {
		return err
	}
	if err := m.await(ctx); err != nil {
		return err
	}
	r.say("%s is well again", m.name)
	pass(ctx, restAfter)
	return ctx.Err()
}

// kill kills the first of two, roll restarts both.
func (r *ruin) kill(ctx context.Context, of []*member) error {
	r.say("%s is killed", of[0].name)
	return r.outage(ctx, of[0], 0, of[0].kill, of[0].start)
}

func (r *ruin) roll(ctx context.Context, of []*member) error {
	for _, m := range []*member{of[1], of[0]} {
		r.say("%s is rolled", m.name)
		if err := r.outage(ctx, m, 0, m.roll, nothing); err != nil {
			return err
		}
	}
	return nil
}

// dispatchers are cut off before they are restarted: what one held then is with the other by the time at
// which everything has recovered.
func (r *ruin) dispatchers(ctx context.Context) error {
	of := r.s.dispatchers
	if err := r.kill(ctx, of); err != nil {
		return err
	}
	for i, point := range []string{crashpoint.AfterClaim, crashpoint.Answered} {
		if err := r.cutOff(ctx, of[i], point); err != nil {
			return err
		}
	}
	return r.roll(ctx, of)
}

func nothing(context.Context) error { return nil }

// cutOff disconnects a dispatcher from NATS while deliveries are at a point, and lets them continue.
func (r *ruin) cutOff(ctx context.Context, m *member, point string) error {
	var err error
	tr := r.s.gate.arm(m, point, func() { err = m.cut(ctx, r.s.store) })
	select {
	case <-tr.hit:
	case <-time.After(stackUp):
		return fmt.Errorf("no delivery of %s comes to %s", m.name, point)
	}
	r.s.gate.disarm(m, point)
	if err != nil {
		return err
	}
	r.say("%s is cut off from NATS, %s", m.name, point)
	return r.outage(ctx, m, cutOff, nothing, func(ctx context.Context) error {
		return m.heal(ctx, r.s.store)
	})
}

// probe continuously starts sessions, which nobody finishes, to see for how long that is not possible.
type probe struct {
	crowd *crowd

	mu       sync.Mutex
	tries    int
	good     []time.Time // when each successful try began, in the order of their ends
	slowest  time.Duration
	refusals map[string]int
}

func (p *probe) walk(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			wg.Go(func() { p.try(ctx) })
		case <-ctx.Done():
			return
		}
	}
}

func (p *probe) try(ctx context.Context) {
	began := time.Now()
	i := &demo.Integrator{Base: p.crowd.base, APIKey: p.crowd.key}
	_, err := i.StartFor(ctx, "probe", p.crowd.counter.url)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if err != nil {
		if p.refusals == nil {
			p.refusals = map[string]int{}
		}
		text, _, _ := strings.Cut(err.Error(), " (request ")
		p.refusals[text]++
		return
	}
	p.good = append(p.good, began)
	p.slowest = max(p.slowest, time.Since(began))
}

// longest is the longest time in which no try that began succeeded.
func (p *probe) longest() (d time.Duration) {
	for i := 1; i < len(p.good); i++ {
		d = max(d, p.good[i].Sub(p.good[i-1]))
	}
	return d
}

func (p *probe) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "init: %d of %d tries succeeded, the slowest in %.1f s; the longest time without "+
		"one that succeeded: %.1f s",
		len(p.good), p.tries, p.slowest.Seconds(), p.longest().Seconds())
	for text, n := range p.refusals {
		fmt.Fprintf(&b, "\n%6d × %s", n, text)
	}
	return b.String()
}
