package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/history"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/topology"
)

var (
	chaosSessions = flag.Int("chaos", 3000, "how many sessions TestChaos starts")
	chaosFor      = flag.Duration("chaos-for", 70*time.Second,
		"over how long TestChaos spreads its sessions and faults; a long stop that has begun ends")
	chaosSeed = flag.Uint64("chaos-seed", 0, "seed of TestChaos's faults; 0: another one each time")
)

const (
	// chaosUsers bounds the concurrent users: while the service is down they accumulate, and a real
	// integrator has any number of them.
	chaosUsers = 64
	// readersAtOnce read how sessions ended.
	readersAtOnce = 16
	// longStop is longer than the ack wait of a completion, so that another dispatcher gets it.
	longStop = topology.AckWait + 5*time.Second
	// Long stops hit the two dispatchers alternately, with time between them in which both run; the one that
	// woke up gets no fault for a while.
	firstLongStop = 5 * time.Second
	// minForLongStop is how long a run has to be for such a stop to begin, with time for a second attempt.
	minForLongStop = firstLongStop + 2*bootAndGather
	longStopEvery  = 75 * time.Second
	afterLongStop  = 5 * time.Second
	// absence is longer than a dispatcher tries to store a result (20 s). Runs of more than two minutes have
	// some.
	absence      = 22 * time.Second
	firstAbsence = 60 * time.Second
	absenceEvery = 75 * time.Second
	// judgeAfter bounds the wait for open deliveries once every process is running: the ack wait, the
	// settling of a claim whose owner vanished, and a backoff of the longest kind.
	judgeAfter = 2 * time.Minute
	// walkAfter bounds how long users go on after the faults: where other tests take the processor, hundreds
	// of them are behind by then. One who is cut off has no end of theirs.
	walkAfter = 5 * time.Minute
	// settleAfter is when others may settle a claim: its owner begins within 5 s, has briefTime, and 5 s of
	// margin follow.
	settleAfter = 5*time.Second + briefTime + 5*time.Second
)

// The service runs as several processes, a NATS server, an edge and two dispatchers, which are killed with
// kill -9 and paused at random, dispatchers also for longer than the ack wait, with open claims, so that they
// wake up to find that the other has their deliveries. Users continue as people do: they reload, and press
// again. Counted at a real receiver: never more than one POST; what users and integrators were told is true;
// nothing is stuck.
//
// Other tests run at the same time: a yardstick distinguishes a POST that was late because its process was
// stopped from one whose process waited for the processor.
//
// docs/EVIDENCE.md has the command of a long run.
func TestChaos(t *testing.T) {
	prove.Only(t, "chaos", "one pause is longer than the ack wait of 30 s")
	t.Parallel()
	if *chaosSessions < 1 || *chaosFor < time.Second {
		t.Fatalf("-chaos %d -chaos-for %s: at least one session and one second", *chaosSessions, *chaosFor)
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to repeat these faults: -chaos %d -chaos-for %s -chaos-seed %d", *chaosSessions, *chaosFor, seed)
	begin := time.Now()
	f := newDeployment(t)
	c := &crowd{
		base: f.edge.base(), key: f.key, counter: f.counter, yardstick: newYardstick(t), log: history.New(),
	}
	w := c.witness()
	w.within += edgePause
	w.meter(t, 4, func(args ...string) (string, error) { return f.edge.command(t, args...) })
	d := &demon{f: f, rng: rand.New(rand.NewPCG(seed, 1))}
	ctx, cancel := context.WithTimeout(t.Context(), *chaosFor+walkAfter)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	wg.Go(func() { c.walk(ctx, rand.New(rand.NewPCG(seed, 2)), *chaosSessions, *chaosFor) })
	witnessing, enough := context.WithTimeout(ctx, *chaosFor)
	defer enough()
	wg.Go(func() { w.walk(witnessing) })
	if err := d.torment(ctx, time.Now().Add(*chaosFor)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for _, v := range f.dispatchers {
		v.ask(ctx)
	}
	got := c.judge(t)
	t.Logf("figures: seed %d, %.0f s: %s; %s", seed, time.Since(begin).Seconds(), got, d.report())
	if got.broken() {
		t.Errorf("broken promises: %s", got)
	}
	// A process may be paused between its last check of the clock and the write, which nothing can prevent;
	// but only there.
	if got.tooLate > d.long {
		t.Errorf("%d POSTs came after others might settle their claims, in %d long stops", got.tooLate,
			d.long)
	}
	if err := f.fell(); err != nil {
		t.Error(err)
	}
	// The faults are random, and the machine decides what falls into them: that says nothing of the service.
	if late := d.lateOwners(); late < d.long || d.long == 0 && *chaosFor >= minForLongStop {
		t.Logf("figures: %d owners woke up too late in %d long stops: this run has proved little", late,
			d.long)
	}
}

// way is what a user does.
type way struct {
	name    string
	oneIn   int
	buttons []string
	reads   string // the last page's heading; empty: the user leaves without an end
	state   string // of the session then
}

var ways = []way{
	{name: "leaves the page open", oneIn: 30, state: "pending"},
	{name: "leaves at the provider", oneIn: 30, buttons: []string{"default"}, state: "pending"},
	{name: "declines on our page", oneIn: 30, buttons: []string{"decline"}, reads: "You were not verified",
		state: "failed"},
	{name: "declines at the provider", oneIn: 20, buttons: []string{"default", "decline"},
		reads: "You were not verified", state: "failed"},
	{name: "signs in", oneIn: 1, buttons: []string{"default", "sign-in"}, reads: "You are verified",
		state: "verified"},
}

func chooseWay(rng *rand.Rand) way {
	i := slices.IndexFunc(ways, func(w way) bool { return rng.IntN(w.oneIn) == 0 })
	return ways[i] // the last one always matches
}

// person is one user of a session.
type person struct {
	way
	user    string        // their name on the integrator's side, the same for nobody else
	browser *demo.Browser // from the first try on
	session demo.Started
	told    bool          // read the last page
	seen    *history.Part // what was seen of the session; nil: not recorded
}

// crowd is all users, and their integrator.
type crowd struct {
	base    string // {base_url} of the service
	key     string
	counter *counter
	// until, if it is set, is closed when no more users are needed: until then more than the given number
	// arrive.
	until chan struct{}
	// yardstick, if there is one, excuses POSTs that came too late because the machine was slow.
	yardstick *yardstick
	log       *history.Log // if set, what all parties see is recorded, and checked

	mu     sync.Mutex
	people []*person // whose init was acknowledged
}

// walk runs a number of users, evenly spread over the time, and more at this pace while they are expected.
func (c *crowd) walk(ctx context.Context, rng *rand.Rand, users int, over time.Duration) {
	arrivals := make(chan *person)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(arrivals)
	for range chaosUsers {
		wg.Go(func() {
			for p := range arrivals {
				c.send(ctx, p)
			}
		})
	}
	tick := time.NewTicker(over / time.Duration(users))
	defer tick.Stop()
	for i := 0; i < users || c.expected(); i++ {
		p := &person{way: chooseWay(rng), user: "sailor " + strconv.Itoa(i)}
		select {
		case arrivals <- p:
		case <-ctx.Done():
			return
		}
		<-tick.C
	}
}

// expected reports whether more users than the given number are needed.
func (c *crowd) expected() bool {
	if c.until == nil {
		return false
	}
	select {
	case <-c.until:
		return false
	default:
		return true
	}
}

// patience is how long people wait before they press again.
func patience() time.Duration { return 100*time.Millisecond + rand.N(300*time.Millisecond) }

// send starts a session for a user and lets them try until they have read how it ended.
func (c *crowd) send(ctx context.Context, p *person) {
	i := &demo.Integrator{Base: c.base, APIKey: c.key}
	for {
		seen := c.log.Session(p.user)
		start := seen.Start()
		s, err := i.StartFor(ctx, p.user, c.counter.url)
		if err == nil {
			start.Saw(s.ID())
			seen.Expires(s.ExpiresAt)
			p.session, p.seen = s, seen
			break
		}
		if !pass(ctx, patience()) {
			return
		}
	}
	c.mu.Lock()
	c.people = append(c.people, p)
	c.mu.Unlock()
	for !p.try(ctx) {
		if !pass(ctx, patience()) {
			return
		}
	}
}

// try goes through the pages as far as the service allows, starting from the link, and reports whether the
// user is done.
func (p *person) try(ctx context.Context) bool {
	if p.browser == nil {
		// and the same one at every try: another would wait for the first to give up
		p.browser = demo.NewBrowser()
	}
	b := p.browser
	var end *history.Call
	if p.reads != "" {
		end = p.seen.End(p.state)
	}
	at, err := b.Open(ctx, p.session.VerifyURL)
	for _, button := range p.buttons {
		if err != nil || p.reads != "" && at.Title() == p.reads {
			break
		}
		at, err = b.Press(ctx, at, button)
	}
	if err != nil || at.Status != http.StatusOK {
		return false
	}
	if p.told = p.reads != "" && at.Title() == p.reads; p.told {
		end.Saw(p.state)
	}
	return p.told || p.reads == ""
}

// verdict is a session as its integrator reads it.
type verdict struct {
	ID       string
	State    string
	Delivery struct {
		State    string
		Attempts []struct {
			Class     string
			ClaimedAt time.Time `json:"claimed_at"`
		}
	}
}

// open reports whether the delivery has not ended.
func (v verdict) open() bool { return v.Delivery.State == "due" || v.Delivery.State == "claimed" }

// toll has the counts of one run.
type toll struct {
	sessions, delivered, unknown, unfinished                      int
	duplicates, lost, stuck, toldFalsely, unasked, wrong, tooLate int
	settledForOthers                                              int
}

func (tl *toll) broken() bool {
	return tl.duplicates+tl.lost+tl.stuck+tl.toldFalsely+tl.unasked+tl.wrong > 0
}

func (tl *toll) String() string {
	return fmt.Sprintf("%d sessions: %d delivered, %d unknown, %d never finished by their user; %d "+
		"duplicates, %d lost, %d stuck, "+
		"%d told falsely, %d POSTs unasked, %d wrong bodies or ends, %d POSTs after others might "+
		"settle; %d claims settled for a vanished owner",
		tl.sessions, tl.delivered, tl.unknown, tl.unfinished, tl.duplicates, tl.lost, tl.stuck,
		tl.toldFalsely, tl.unasked, tl.wrong, tl.tooLate,
		tl.settledForOthers)
}

// judge reads every session once its delivery has ended, or at the deadline, and compares it with what was
// reported and received.
func (c *crowd) judge(t *testing.T) *toll {
	ctx, cancel := context.WithTimeout(t.Context(), judgeAfter)
	defer cancel()
	got := &toll{sessions: len(c.people)}
	verdicts, there := make([]verdict, len(c.people)), make([]bool, len(c.people))
	atOnce(len(c.people), readersAtOnce, func(i int) { verdicts[i], there[i] = c.settled(ctx, c.people[i]) })
	known := 0
	for i, p := range c.people {
		v, ok := verdicts[i], there[i]
		if !ok && p.lapsed() {
			got.unfinished++
			continue
		}
		if !ok {
			got.lost++ // its init was acknowledged
			t.Errorf("the acknowledged session of %s is gone", p.user)
			continue
		}
		posts := c.counter.of(v.ID)
		known += len(posts)
		got.count(t, p, v, posts)
		got.late(t, v, posts, c.yardstick)
	}
	got.unasked += c.counter.total() - known
	c.log.Check(t, os.TempDir())
	return got
}

// lapsed reports whether the session was not completed in time. It may be forgotten then: no promise depends
// on the timeline, which distinguishes an expired session from one that never existed.
func (p *person) lapsed() bool { return p.reads == "" && time.Now().After(p.session.ExpiresAt) }

// count judges one session.
func (tl *toll) count(t *testing.T, p *person, v verdict, posts []post) {
	complain := func(n *int, what string) {
		*n++
		t.Errorf("%s: %s who %s: session %s is %s, delivery %s, %d POSTs, attempts %+v", what, p.user, p.name,
			v.ID, v.State, v.Delivery.State,
			len(posts), v.Delivery.Attempts)
	}
	if len(posts) > 1 {
		complain(&tl.duplicates, "a duplicate")
	}
	if len(posts) > len(v.Delivery.Attempts) {
		complain(&tl.unasked, "a POST without a claim")
	}
	if v.State != p.state && (v.State != "expired" || !p.lapsed()) {
		if p.told {
			complain(&tl.toldFalsely, "told falsely")
		} else {
			complain(&tl.wrong, "another end than the user's")
		}
	}
	switch {
	case v.State == "pending", v.State == "expired":
		tl.unfinished++
	case v.open():
		complain(&tl.stuck, "stuck")
	case v.Delivery.State == "delivered" && len(posts) == 0:
		complain(&tl.toldFalsely, "delivered to nobody")
	case v.Delivery.State == "delivered":
		tl.delivered++
	case v.Delivery.State == "unknown":
		tl.unknown++
	default:
		complain(&tl.lost, "lost")
	}
	for _, a := range v.Delivery.Attempts {
		if a.Class == "crash" {
			tl.settledForOthers++
		}
	}
	for _, post := range posts {
		if !p.wrote(post.body) {
			complain(&tl.wrong, "a wrong body: "+string(post.body))
		}
	}
}

// late counts the POSTs of a session that arrived when others might already settle its claim.
func (tl *toll) late(t *testing.T, v verdict, posts []post, y *yardstick) {
	n := len(v.Delivery.Attempts)
	if n == 0 {
		return
	}
	claimed := v.Delivery.Attempts[n-1].ClaimedAt
	for _, post := range posts {
		if !post.at.After(claimed.Add(settleAfter)) {
			continue
		}
		waited := y.waited(claimed, post.at)
		t.Logf("session %s: claims %+v, a POST at %s; meanwhile a process that was not stopped waited %s",
			v.ID, v.Delivery.Attempts, post.at.UTC(), waited)
		if waited < starved {
			tl.tooLate++
		}
	}
}

// wrote reports whether a callback is this user's.
func (p *person) wrote(body []byte) bool {
	var members struct {
		PlatformUserID string `json:"platform_user_id"`
		Verified       bool
	}
	err := json.Unmarshal(body, &members)
	return err == nil && members.PlatformUserID == p.user && members.Verified == (p.state == "verified")
}

// settled reads a session until its delivery or ctx has ended. It returns false if the session does not exist
// any more.
func (c *crowd) settled(ctx context.Context, p *person) (verdict, bool) {
	for {
		var v verdict
		read := p.seen.Read()
		status, body := c.read(context.WithoutCancel(ctx), p.session.Session)
		if status == http.StatusNotFound {
			read.Saw("")
			return v, false
		}
		told := status == http.StatusOK && json.Unmarshal(body, &v) == nil
		if told {
			read.Saw(v.State)
		}
		if told && !v.open() || !pass(ctx, 50*time.Millisecond) {
			return v, true
		}
	}
}

func (c *crowd) read(ctx context.Context, session string) (status int, body []byte) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/sessions/"+session, nil)
	if err != nil {
		return 0, nil
	}
	q.Header.Set("Authorization", "Bearer "+c.key)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: demo.BrowserTimeout}
	response, err := client.Do(q)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	body, _ = io.ReadAll(response.Body)
	return response.StatusCode, body
}
