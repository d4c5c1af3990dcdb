package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/client"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// crashVariable makes a child die at a point: POINT:N, at the Nth time that the point is reached.
const crashVariable = "VERIFYD_TEST_CRASH"

// everySession are the points that every session passes.
var everySession = []string{
	crashpoint.BeforeCount, crashpoint.AfterCount, crashpoint.BeforeCreate, crashpoint.AfterCreate,
	crashpoint.BeforeRedeem, crashpoint.AfterRedeem, crashpoint.BeforeComplete, crashpoint.AfterComplete,
	crashpoint.Taken, crashpoint.Connected, crashpoint.BeforeClaim, crashpoint.AfterClaim,
	crashpoint.BeforeSend, crashpoint.AfterSend, crashpoint.Answered, crashpoint.BeforeResult,
	crashpoint.AfterResult, crashpoint.BeforeAck, crashpoint.AfterAck,
}

var crashSeeds = flag.Int("crash-seeds", 1,
	"how often each crash point is tried, each time at another moment")

// dieAt makes this process kill itself, as kill -9 would.
func dieAt(where string) {
	point, text, ok := strings.Cut(where, ":")
	if !ok {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	var reached atomic.Int64
	crashpoint.Hook(func(p string) {
		if p == point && reached.Add(1) == int64(n) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // nothing after the point is executed
		}
	})
}

// tally has the counts of one run.
type tally struct{ sessions, delivered, unknown, duplicates, lost, toldFalsely int }

func (t *tally) String() string {
	return fmt.Sprintf("%d sessions: %d delivered, %d unknown, %d duplicates, %d lost, %d told falsely",
		t.sessions, t.delivered, t.unknown, t.duplicates, t.lost, t.toldFalsely)
}

func (t *tally) add(o tally) {
	t.sessions += o.sessions
	t.delivered += o.delivered
	t.unknown += o.unknown
	t.duplicates += o.duplicates
	t.lost += o.lost
	t.toldFalsely += o.toldFalsely
}

// The process dies at each point between the quota's counter and the last acknowledgement, with several
// sessions in progress, and is started again. Counted at a real receiver: never more than one POST; a session
// whose user read success is delivered, or visible as unknown; nothing that was acknowledged is lost; nothing
// is stuck.
//
// docs/EVIDENCE.md has the command of a long run.
func TestCrashPoints(t *testing.T) {
	skipKills(t)
	t.Parallel()
	var mu sync.Mutex
	var all tally
	t.Run("points", func(t *testing.T) {
		for i, point := range everySession {
			for seed := range *crashSeeds {
				t.Run(fmt.Sprintf("%s-%d", point, seed), func(t *testing.T) {
					t.Parallel()
					got := crashOnce(t, point, 1+rand.New(rand.NewPCG(uint64(seed), uint64(i))).
						IntN(crashUsers))
					mu.Lock()
					defer mu.Unlock()
					all.add(got)
				})
			}
		}
	})
	t.Logf("figures: %d points x %d seeds, %s", len(everySession), *crashSeeds, &all)
	if all.duplicates+all.lost+all.toldFalsely > 0 {
		t.Errorf("broken promises: %s", &all)
	}
}

// user is one person in a session while the service dies and comes back.
type user struct {
	session demo.Started
	browser *demo.Browser // the same one after the restart: another would wait for the first to give up
	success bool          // read "You are verified", or the integrator that a code confirms
}

const crashUsers = 4

func crashOnce(t *testing.T, point string, n int, env ...string) tally {
	c := newChild(t)
	c.env = append(c.env, briefly)
	c.env = append(c.env, env...)
	key := c.makeKey(t, "Harbor Guild")
	c.env = append(c.env, fmt.Sprintf("%s=%s:%d", crashVariable, point, n))
	c.start(t)

	a := api{base: c.base(), key: key}
	users := make([]*user, 0, crashUsers)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range crashUsers {
		wg.Go(func() {
			s, ok := a.tryInit(t, c.inbox.CallbackURL())
			if !ok {
				return
			}
			u := &user{session: s, browser: demo.NewBrowser()}
			mu.Lock()
			users = append(users, u)
			mu.Unlock()
			u.walkOn(t, a)
		})
	}
	wg.Wait()
	select {
	case <-c.exited:
	case <-time.After(natstest.TestTimeout):
		t.Fatalf("the process never reached %s for the %d. time", point, n)
	}
	c.env = c.env[:len(c.env)-1]
	c.start(t)
	for _, u := range users { // those who were in the middle go on
		u.walkOn(t, a)
	}
	return count(t, c, a, users)
}

// tryInit starts a session if the service is up; only a 200 counts.
func (a api) tryInit(t *testing.T, callback string) (s demo.Started, ok bool) {
	t.Helper()
	i := &demo.Integrator{Base: a.base, APIKey: a.key}
	s, err := i.StartFor(t.Context(), "u", callback)
	return s, err == nil
}

// walkOn goes through the pages as far as the service allows, enters the code if one is shown, and remembers
// whether success was read.
func (u *user) walkOn(t *testing.T, a api) {
	b := u.browser
	p, err := b.Open(t.Context(), u.session.VerifyURL)
	if err != nil {
		return
	}
	for _, button := range []string{"default", "sign-in"} {
		if p.Title() == "You are verified" || p.Code() != "" {
			break
		}
		if p, err = b.Press(t.Context(), p, button); err != nil {
			return
		}
	}
	u.success = u.success || p.Status == http.StatusOK && p.Title() == "You are verified"
	if code := p.Code(); code != "" {
		c := must[*client.Client](t)(client.New(a.base, a.key))
		_, err := c.Confirm(t.Context(), u.session.Session, "u", code)
		u.success = u.success || err == nil
	}
}

// The process dies around the steps of a session that is confirmed with a code: what the integrator was told
// is true, nobody is asked for another code, and the outcome is sent once.
func TestCrashPointsOfAConfirmation(t *testing.T) {
	skipKills(t)
	t.Parallel()
	for i, point := range []string{
		crashpoint.BeforeConfirm, crashpoint.AfterConfirm, crashpoint.BeforeRedeem, crashpoint.AfterRedeem,
		crashpoint.BeforeComplete, crashpoint.AfterComplete,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			if got := crashOnce(t, point, 1+i%crashUsers, "VERIFYD_BINDING=code"); got.sessions == 0 ||
				got.duplicates+got.lost+got.toldFalsely > 0 {
				t.Errorf("broken promises: %s", &got)
			}
		})
	}
}

// count waits until every session has ended and checks it.
func count(t *testing.T, c *child, a api, users []*user) tally {
	t.Helper()
	got := tally{sessions: len(users)}
	for _, u := range users {
		status, _, body := a.call(t, http.MethodGet, "/sessions/"+u.session.Session, "")
		if status != http.StatusOK {
			got.lost++ // its init was acknowledged
			t.Errorf("an acknowledged session is gone: %d %s", status, body)
			continue
		}
		v := a.settled(t, u.session.Session)
		posts := c.inbox.count(v.ID)
		switch {
		case posts > 1:
			got.duplicates++
		case v.Delivery.State == "delivered" && posts == 1:
			got.delivered++
		case v.Delivery.State == "unknown":
			got.unknown++
		default:
			got.lost++
			t.Errorf("session %s, delivery %s, %d POSTs", v.State, v.Delivery.State, posts)
		}
		if u.success && v.State != "verified" {
			got.toldFalsely++
		}
	}
	return got
}

// The receiver asks for a pause that is long enough to become a message schedule, under the policy that
// grants it. The process dies before the schedule is stored, after it, and between it and the
// acknowledgement: the second attempt is made once, and not early.
func TestKillAroundASchedule(t *testing.T) {
	prove.Only(t, "kills", "a pause is scheduled from 30 s on")
	t.Parallel()
	for _, point := range []string{
		crashpoint.BeforeAck, crashpoint.AfterAck, crashpoint.BeforeSchedule, crashpoint.AfterSchedule,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			c.inbox.retryAfter("31")
			key := c.makeKey(t, "Harbor Guild", "--policy", "at-least-once")
			c.env = append(c.env, fmt.Sprintf("%s=%s:1", crashVariable, point))
			c.start(t)
			w := &walk{c: c, api: api{base: c.base(), key: key}, browser: demo.NewBrowser()}
			for _, s := range steps[:len(steps)-1] {
				s.do(t, w)
			}
			_, _ = w.browser.Open(t.Context(), w.back) // the process may die before the page is stored
			<-c.inbox.got
			first := time.Now()
			select {
			case <-c.exited:
			case <-time.After(natstest.TestTimeout):
				t.Fatalf("the process never reached %s", point)
			}
			c.env = c.env[:len(c.env)-1]
			c.start(t)
			v := w.api.settled(t, w.session.Session)
			if n := c.inbox.count(v.ID); n != 2 || v.Delivery.State != "delivered" ||
				len(v.Delivery.Attempts) != 2 {
				t.Errorf("delivery %s after %d POSTs, %d attempts", v.Delivery.State, n,
					len(v.Delivery.Attempts))
			}
			if pause := time.Since(first); pause < 30*time.Second {
				t.Errorf("sent again after %s", pause)
			}
		})
	}
}

// Every point is reached by one ordinary session. It is the only test that watches points in this process, so
// it runs alone.
func TestEveryCrashPointIsReached(t *testing.T) {
	var mu sync.Mutex
	reached := map[string]bool{}
	done := make(chan struct{})
	crashpoint.Hook(func(p string) {
		mu.Lock()
		defer mu.Unlock()
		if reached[p] {
			return
		}
		reached[p] = true
		if p == crashpoint.AfterAck {
			close(done)
		}
	})
	t.Cleanup(func() { crashpoint.Hook(nil) })
	r := boot(t)
	t.Cleanup(r.stop) // before the hook is removed
	s, b := r.begin(t), demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	<-done
	for _, p := range everySession {
		mu.Lock()
		if !reached[p] {
			t.Errorf("%s is never reached", p)
		}
		mu.Unlock()
	}
	if len(everySession) < 14 || !slices.Contains(everySession, crashpoint.AfterSend) {
		t.Errorf("only %d points", len(everySession))
	}
}
