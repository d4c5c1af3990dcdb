package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest/prove"
)

const (
	// usersAtRestart are in the middle of signing in when the process is killed.
	usersAtRestart = 500
	// usersAtOnce is how many of them press something at the same moment.
	usersAtOnce = 50
	// userPatience is how long one user keeps trying.
	userPatience = 90 * time.Second
)

// The process is killed and started again while hundreds of users are in the middle of signing in: at the
// provider, on the way back from it, or about to press. All of them finish, each session has one outcome, and
// each receiver gets one POST.
//
// It runs alone: with other tests the users would wait for the processor longer than their patience.
func TestUsersInTheMiddleOfARestart(t *testing.T) {
	prove.Only(t, "kills", "hundreds of users wait for the processor")
	const n = usersAtRestart
	c := newChild(t)
	c.env = append(c.env, "VERIFYD_RATE_LIMIT=1000/s", "VERIFYD_RATE_BURST=1000", "VERIFYD_LOG_LEVEL=info")
	c.start(t)
	a := api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
	a.knownSoon(t)
	sessions := make([]demo.Started, n)
	for i := range sessions {
		sessions[i] = a.init(t, map[string]any{
			"platform": "p", "platform_user_id": fmt.Sprint("user_", i),
			"callback_url": c.inbox.CallbackURL(),
		})
	}
	var away, ended atomic.Int32 // at the provider for the first time; at the end
	middle := make(chan struct{})
	turns := make(chan struct{}, usersAtOnce)
	errs := make(chan error, n)
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), userPatience)
			defer cancel()
			u := loadUser{browser: demo.NewBrowser(), link: sessions[i].VerifyURL, turns: turns,
				left: func() {
					if away.Add(1) == int32(n/2) { // the others press while the process is down
						close(middle)
					}
				}}
			if err := u.signIn(ctx); err != nil {
				errs <- fmt.Errorf("user %d: %w", i, err)
				return
			}
			ended.Add(1)
		})
	}
	<-middle
	c.kill()
	done := ended.Load()
	c.start(t)
	all.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if int(done) == n {
		t.Error("nobody was in the middle of anything")
	}
	t.Logf("%d users, %d of them at the end before the restart", n, done)
	for _, s := range sessions {
		v := a.settled(t, s.Session)
		posts := c.inbox.count(v.ID)
		// What the process was sending as it died is unknown, and is not sent again.
		if v.State != "verified" || posts > 1 || posts == 0 && v.Delivery.State != "unknown" {
			t.Errorf("session is %s, delivery %s, %d POSTs", v.State, v.Delivery.State, posts)
		}
	}
}

// loadUser is one person who does not give up.
type loadUser struct {
	browser *demo.Browser
	link    string
	turns   chan struct{} // holds one for each request under way
	left    func()        // is notified when the user is at the provider for the first time
}

// errNotYet: the answer does not lead further; the user starts again from the link.
var errNotYet = errors.New("not at the end yet")

// signIn starts from the link repeatedly, until the page shows the end.
func (u *loadUser) signIn(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := u.tryOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (u *loadUser) tryOnce(ctx context.Context) error {
	p, err := u.step(func() (*demo.Page, error) { return u.browser.Open(ctx, u.link) })
	if err != nil || p.Title() == "You are verified" {
		return err
	}
	p, err = u.step(func() (*demo.Page, error) { return u.browser.Press(ctx, p, "default") })
	if err != nil {
		return err
	}
	if u.left != nil {
		u.left()
		u.left = nil
	}
	var back string
	if _, err = u.step(func() (*demo.Page, error) {
		back, err = u.browser.Begin(ctx, p, "sign-in")
		return p, err
	}); err != nil {
		return err
	}
	p, err = u.step(func() (*demo.Page, error) { return u.browser.Open(ctx, back) })
	switch {
	case err != nil:
		return err
	case p.Status != http.StatusOK || p.Title() != "You are verified":
		return fmt.Errorf("%w: %d %s", errNotYet, p.Status, p.Title())
	}
	return nil
}

func (u *loadUser) step(do func() (*demo.Page, error)) (*demo.Page, error) {
	u.turns <- struct{}{}
	defer func() { <-u.turns }()
	return do()
}
