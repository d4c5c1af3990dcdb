//go:build linux

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// cut simulates a power cut: the process freezes, what the disk holds at this moment is kept, and everything
// else is lost.
func (c *child) cut(t *testing.T, d *natstest.Disk) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	loseUnsynced(t, d, c.kill)
}

// loseUnsynced makes a disk lose what is not on it, after what uses it was ended.
func loseUnsynced(t *testing.T, d *natstest.Disk, end func()) {
	t.Helper()
	left := d.Image + ".left"
	for _, step := range []func() error{
		func() error { return exec.Command("cp", "--sparse=always", d.Image, left).Run() },
		func() error { end(); return nil },
		d.Unmount,
		func() error { return d.Mount(left) },
		func() error { return forgetMemory(d.At) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// forgetMemory removes what the store kept on a memory filesystem.
func forgetMemory(store string) error {
	links, err := filepath.Glob(filepath.Join(store, "nats", "jetstream", "*", "streams", "*", "batches"))
	for _, link := range links {
		if target, lerr := os.Readlink(link); lerr == nil {
			err = errors.Join(err, os.RemoveAll(target))
		}
	}
	return err
}

// The power is cut right after a receiver got a POST and while inits are being acknowledged. With the default
// every acknowledged session, the outcome that the user read and the claim of the POST exist afterwards, and
// no second POST is sent. With VERIFYD_SYNC=interval things are lost, which shows that this test can fail.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "what its disk has synced")
	prove.Only(t, "disk", "it makes filesystems")
	for _, mode := range []string{"always", "interval"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			disk := natstest.NewDisk(t, filepath.Join(c.dir, "store"))
			t.Cleanup(func() { c.kill() }) // before the filesystem goes
			c.env = append(c.env, "VERIFYD_SYNC="+mode, briefly)
			t.Cleanup(c.inbox.keepWaiting())
			c.start(t)
			key := c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")
			w := &walk{c: c, api: api{base: c.base(), key: key}, browser: demo.NewBrowser()}
			w.api.knownSoon(t)

			acknowledged := initsUntil(t, w.api, c.inbox, func() {
				for _, s := range steps {
					s.do(t, w)
				}
			})
			c.cut(t, disk)
			lost := len(acknowledged)
			if c.restarts(t) {
				lost = gone(t, w.api, acknowledged)
			}
			t.Logf("figures: VERIFYD_SYNC=%s: %d acknowledged, %d lost", mode, len(acknowledged),
				lost)
			if mode == "interval" {
				if lost == 0 {
					t.Error("nothing was lost without syncing: this test cannot fail")
				}
				return
			}
			if lost != 0 {
				t.Errorf("%d of %d acknowledged sessions are lost", lost, len(acknowledged))
			}
			v := w.api.settled(t, w.session.Session)
			if n := c.inbox.count(v.ID); v.State != "verified" || v.Delivery.State != "unknown" || n != 1 {
				t.Errorf("the user's session is %s, its delivery %s, %d POSTs", v.State, v.Delivery.State, n)
			}
		})
	}
}

// The power is cut right after the service has stopped: what it acknowledged is on the disk, also with
// VERIFYD_SYNC=interval.
func TestPowerLossAfterAStop(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "what its disk has synced")
	prove.Only(t, "disk", "it makes filesystems")
	c := newChild(t)
	disk := natstest.NewDisk(t, filepath.Join(c.dir, "store"))
	t.Cleanup(func() { c.kill() }) // before the filesystem goes
	c.env = append(c.env, "VERIFYD_SYNC=interval")
	c.start(t)
	a := api{base: c.base(), key: c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")}
	a.knownSoon(t)
	s, ok := a.tryInit(t, c.inbox.CallbackURL())
	if !ok {
		t.Fatal("no session")
	}
	c.stop(t)
	loseUnsynced(t, disk, func() {})
	if !c.restarts(t) {
		t.Fatalf("it does not start:\n%s", c.log)
	}
	lost := gone(t, a, []demo.Started{s})
	t.Logf("figures: 1 acknowledged, %d lost", lost)
	if lost != 0 {
		t.Error("the session is lost")
	}
}

// initsUntil keeps starting sessions while the user signs in, until the user's POST has arrived.
func initsUntil(t *testing.T, a api, in *inbox, signIn func()) (acknowledged []demo.Started) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 32 { // so many that they share batches
		wg.Go(func() {
			for ctx.Err() == nil {
				if s, ok := a.tryInit(t, in.CallbackURL()); ok {
					mu.Lock()
					acknowledged = append(acknowledged, s)
					mu.Unlock()
				}
			}
		})
	}
	signIn()
	<-in.got
	stop()
	wg.Wait()
	return acknowledged
}

// restarts reports whether the process becomes ready again on the remaining files.
func (c *child) restarts(t *testing.T) bool {
	t.Helper()
	c.launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	return c.becomesReady(ctx)
}

// gone counts the sessions that cannot be read.
func gone(t *testing.T, a api, sessions []demo.Started) (lost int) {
	t.Helper()
	for _, s := range sessions {
		if status, _, _ := a.call(t, http.MethodGet, "/sessions/"+s.Session, ""); status != http.StatusOK {
			lost++
		}
	}
	return lost
}
