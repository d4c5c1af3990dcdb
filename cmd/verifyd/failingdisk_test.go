//go:build linux

package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

var diskRuns = flag.Int("disk-runs", 2, "how often TestFailingDisk has the disk under the store fail")

const (
	// failingSessions is how many users sign in around the failure, over failingFor.
	failingSessions = 300
	failingFor      = 6 * time.Second
	// livesOn is how long the process keeps running with the failed store.
	livesOn = 5 * time.Second
	// saysFailed is how each place for operators reports it.
	saysFailed = "failed to write to its disk"
)

// The disk under the store fails while users sign in, and the process keeps running for a while. It reports
// that at once, and what it had acknowledged, shown and sent before is still true after a kill and a start on
// what reached the disk: no second POST, nothing lost.
//
// docs/EVIDENCE.md has the command of a long run.
func TestFailingDisk(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its disk has synced")
	prove.Only(t, "disk", "it makes filesystems")
	var mu sync.Mutex
	var all toll
	t.Cleanup(func() { t.Logf("figures: %d failures of the disk: %s", *diskRuns, &all) })
	ways := []struct {
		name string
		fail func(*natstest.Disk, testing.TB)
	}{{"all writes", (*natstest.Disk).Fail}, {"only syncs", (*natstest.Disk).FailSyncs}}
	// They mostly wait, and run in parallel with each other, but with no other test: the figures of how soon
	// the failure is noticed would depend on it.
	places := make(chan struct{}, len(ways))
	for i := range *diskRuns {
		way := ways[i%len(ways)]
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			places <- struct{}{}
			t.Cleanup(func() { <-places })
			got := failDiskOnce(t, way.fail)
			mu.Lock()
			defer mu.Unlock()
			all.add(got)
		})
	}
}

func (tl *toll) add(more *toll) {
	if more == nil {
		return
	}
	tl.sessions += more.sessions
	tl.delivered += more.delivered
	tl.unknown += more.unknown
	tl.unfinished += more.unfinished
	tl.duplicates += more.duplicates
	tl.lost += more.lost
	tl.stuck += more.stuck
	tl.toldFalsely += more.toldFalsely
	tl.unasked += more.unasked
	tl.wrong += more.wrong
}

func failDiskOnce(t *testing.T, fail func(*natstest.Disk, testing.TB)) *toll {
	c := newChild(t)
	disk := natstest.NewDisk(t, filepath.Join(c.dir, "store"))
	t.Cleanup(func() { c.kill() }) // before the filesystem goes
	c.env = append(c.env, "VERIFYD_LOG_LEVEL=info", briefly)
	receiver := newCounter(t, c.inbox.ca, must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")))
	c.start(t)
	key := c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")
	api{base: c.base(), key: key}.knownSoon(t)

	users := &crowd{base: c.base(), key: key, counter: receiver}
	ctx, cancel := context.WithTimeout(t.Context(), judgeAfter)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	wg.Go(func() { users.walk(ctx, rand.New(rand.NewPCG(rand.Uint64(), 2)), failingSessions, failingFor) })
	pass(ctx, failingFor/4+rand.N(failingFor/2))

	failed := time.Now()
	fail(disk, t)
	// A disk that accepts nothing more is noticed by the next sync. A filesystem that was shut down is
	// noticed by a write, or by one of the process's own checks, after which nothing is written.
	natstest.Await(t, "the process meets the failure, and says so", func() bool {
		return strings.Contains(c.log.String(), saysFailed)
	})
	t.Logf("the process says so %s after the disk was made to fail", time.Since(failed))
	if c.readyz(ctx) {
		t.Error("/readyz, asked after the process has said that its store has failed, says ready")
	}
	c.saysItFailed(t)
	pass(ctx, livesOn)
	c.kill()
	disk.Remount(t)
	c.start(t)
	wg.Wait()
	got := users.judge(t)
	t.Logf("%s", got)
	if got.broken() {
		t.Errorf("broken promises: %s", got)
	}
	return got
}

// saysItFailed checks each place for operators.
func (c *child) saysItFailed(t *testing.T) {
	t.Helper()
	admin := api{base: "http://" + c.admin}
	if _, _, why := admin.call(t, http.MethodGet, "/readyz", ""); !strings.Contains(string(why), saysFailed) {
		t.Errorf("/readyz: %s", why)
	}
	if _, _, text := admin.call(t, http.MethodGet, "/metrics", ""); !strings.Contains(string(text),
		"verifyd_store_failed 1") {
		t.Error("the metrics do not say that the store has failed")
	}
	if !strings.Contains(c.log.String(), saysFailed) {
		t.Errorf("the log does not say that the store has failed:\n%s", c.log)
	}
	// If nothing can be read any more, that includes the endpoint file of the process.
	if out, err := c.command(t, "status"); err == nil || !strings.Contains(out, saysFailed) &&
		!strings.Contains(err.Error(), "the disk under it may have failed") {
		t.Errorf("status: %v\n%s", err, out)
	}
}
