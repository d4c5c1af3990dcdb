package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/client"
)

const (
	// patience is how long a user, or an integrator, retries before they give up.
	patience = 2 * time.Minute
	// settledWithin is how long a delivery may take to end, and abandonedFor after how long an unfinished
	// session has expired.
	settledWithin = retryFor + 3*time.Minute
	// pause is the interval between two tries.
	pause = time.Second
)

// crowd is the users and the integrator, and what they saw.
type crowd struct {
	s     *site
	rate  int
	c     *client.Client
	tally tally
	seed  uint64
	web   *http.Transport // the integrator's connections
}

// tally counts how the sessions ended.
type tally struct {
	mu                                       sync.Mutex
	Started, NotStarted                      int
	Delivered, Unknown, Undeliverable, Left  int
	Duplicates, Lost, Stuck, ReportedFalsely int
	first                                    error // of what is wrong
}

func newCrowd(s *site, o Options) *crowd {
	return &crowd{s: s, rate: o.Rate, seed: o.Seed, web: &http.Transport{MaxIdleConnsPerHost: 64}}
}

// run starts sessions until loaded ends, and returns when all are judged, or ctx ends.
func (c *crowd) run(ctx, loaded context.Context) {
	defer c.web.CloseIdleConnections()
	var err error
	if c.c, err = client.New(c.s.base, c.s.key, client.WithHTTPClient(&http.Client{
		Transport: c.web, Timeout: demo.BrowserTimeout,
	})); err != nil {
		c.tally.wrong(&c.tally.Lost, err)
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(c.rate))
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := 0; ; i++ {
		select {
		case <-loaded.Done():
			return
		case <-tick.C:
			wg.Go(func() { c.session(ctx, i) })
		}
	}
}

// session runs one session, from its start to its judgement.
func (c *crowd) session(ctx context.Context, i int) {
	rng := rand.New(rand.NewPCG(c.seed, uint64(i)+2)) //nolint:gosec // what users do
	user := "soak_" + strconv.Itoa(i)
	var s client.Started
	err := within(ctx, patience, "start", func() (err error) {
		s, err = c.c.Start(ctx, client.Verification{
			Platform: "soak", PlatformUserID: user, CallbackURL: c.s.receivers.url(i), IdempotencyKey: user,
		})
		return err
	})
	if err != nil {
		c.tally.count(&c.tally.NotStarted) // nothing was promised
		return
	}
	c.tally.count(&c.tally.Started)
	verified := false
	if steps := rng.IntN(10); steps < 8 { // the others never open the link
		verified = c.signIn(ctx, s, steps < 7) // some give up at the network
	}
	c.judge(ctx, s, verified)
}

// signIn walks to the page that says verified and reports whether it was seen. It begins again if something
// fails, as people do.
func (c *crowd) signIn(ctx context.Context, s client.Started, whole bool) bool {
	deadline := time.Now().Add(patience)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		b := demo.NewBrowser()
		page, err := b.Open(ctx, s.VerifyURL)
		if err == nil && page.Title() == verifiedTitle {
			return true
		}
		if err == nil {
			page, err = b.Press(ctx, page, "default")
		}
		if !whole {
			return false
		}
		if err == nil {
			page, err = b.Press(ctx, page, "sign-in")
		}
		if err == nil && page.Title() == verifiedTitle {
			return true
		}
		wait(ctx, pause)
	}
	return false
}

const verifiedTitle = "You are verified"

// judge waits until the session has ended and compares what all parties saw.
func (c *crowd) judge(ctx context.Context, s client.Started, verified bool) {
	var got client.Session
	err := within(ctx, settledWithin, "settle", func() (err error) {
		wait(ctx, pause)
		if got, err = c.c.Session(ctx, s.Session); err != nil {
			if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
				return fatalError{err}
			}
			return err
		}
		switch {
		case got.State == client.Pending && !verified:
			return nil // its user left it
		case got.Delivery.State == "due", got.Delivery.State == "claimed", got.State == client.Pending:
			return fmt.Errorf("session %s is %s, its delivery %s", got.ID, got.State, got.Delivery.State)
		}
		return nil
	})
	posts := c.s.receivers.of(webhookID(s.Session))
	t := &c.tally
	fault := fmt.Errorf("session %s: page verified %v, %s, delivery %s %+v, %d POSTs: %w", s.ID(), verified,
		got.State, got.Delivery.State, got.Delivery.Attempts, posts, err)
	_, gone := errors.AsType[fatalError](err)
	switch {
	case ctx.Err() != nil:
	case gone:
		t.wrong(&t.Lost, fault)
	case err != nil:
		t.wrong(&t.Stuck, fault)
	case posts > 1:
		t.wrong(&t.Duplicates, fault)
	case verified && got.State != client.Verified:
		t.wrong(&t.ReportedFalsely, fault)
	case got.Delivery.State == "delivered" && posts == 0, got.Delivery.State == "undeliverable" && posts > 0,
		got.Delivery.State == "none" && posts > 0:
		t.wrong(&t.ReportedFalsely, fault)
	case got.Delivery.State == "delivered":
		t.count(&t.Delivered)
	case got.Delivery.State == "unknown":
		t.count(&t.Unknown)
	case got.Delivery.State == "undeliverable":
		t.count(&t.Undeliverable)
	default:
		t.count(&t.Left)
	}
}

func (t *tally) count(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

func (t *tally) wrong(n *int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
	if t.first == nil {
		t.first = err
	}
}

// started returns how many sessions have been started.
func (t *tally) started() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Started
}

// String formats the results of the sessions on a line.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d sessions, %d starts given up; %d delivered, %d unknown, %d undeliverable, "+
		"%d left by their users; %d duplicates, %d lost, %d stuck, %d told falsely", t.Started, t.NotStarted,
		t.Delivered, t.Unknown, t.Undeliverable, t.Left, t.Duplicates, t.Lost, t.Stuck, t.ReportedFalsely)
}

func (t *tally) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Duplicates+t.Lost+t.Stuck+t.ReportedFalsely > 0 {
		return fmt.Errorf("%w: %w", ErrBroken, t.first)
	}
	return nil
}

// wait pauses, and reports whether ctx is still valid.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
