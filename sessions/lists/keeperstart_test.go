package lists_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

// many starts sessions that are never completed.
func (r rig) many(t *testing.T, n int) {
	t.Helper()
	var starting sync.WaitGroup
	for w := range 64 {
		starting.Go(func() {
			for i := w; i < n; i += 64 {
				r.start(t, account, fmt.Sprint("user_", i))
			}
		})
	}
	starting.Wait()
}

// A search that starts while the keeper reads the account, and rests between two pages, ends that rest, and
// reads nothing that the keeper has read.
func TestSearchContinuesFromTheKeeper(t *testing.T) {
	t.Parallel()
	const all = 3000 // three pages
	r := keep(t, 1000)
	r.many(t, all)
	r.keeper.Rest(1 << 30)
	received := func() int { return int(r.conn.NC.Stats().InMsgs) }
	ctx, cancel := context.WithCancel(t.Context())
	passed := make(chan error)
	before := received()
	go func() { passed <- r.keeper.Pass(ctx) }()
	defer func() { cancel(); <-passed }()
	natstest.Await(t, "the keeper has read a page", func() bool { return received()-before >= 1024 })
	search, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	found, err := r.store.List(search, lists.Query{Account: account, Text: "user_77", Limit: 20})
	if err != nil || len(found.Sessions) != 11 {
		t.Fatalf("%d sessions, %v", len(found.Sessions), err)
	}
	if n := received() - before; n > all+500 { // 64 samples, and six reads of each session that is shown
		t.Errorf("keeper and search together took %d messages for %d sessions", n, all)
	}
	if n := r.store.Rows(account); n != all {
		t.Errorf("%d sessions are in memory", n)
	}
}

// The keeper does not read again what a search has read.
func TestKeeperContinuesFromASearch(t *testing.T) {
	t.Parallel()
	r := keep(t, 300)
	r.many(t, 600)
	r.find(t, lists.Query{Text: "nobody"})
	before := r.conn.NC.Stats().InMsgs
	if err := r.keeper.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.conn.NC.Stats().InMsgs - before; n > 200 || !r.keeper.Keeps(account) {
		t.Errorf("the keeper took %d messages, and keeps the account: %t", n, r.keeper.Keeps(account))
	}
}

// The facts of a delivery are not taken for the outcome of its session, which would then be read from the
// session itself, however the outcomes are read.
func TestDeliveriesAreNoOutcomes(t *testing.T) {
	t.Parallel()
	r := keep(t, 20)
	r.fill(t, account, 40)
	declinedOf := func(user string) sessions.ID {
		t.Helper()
		s := r.start(t, account, user)
		r.complete(t, s, declined)
		c := facts.Claim{Session: s.ID, Number: 1, At: time.Now()}
		if err := r.writer.Claim(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	var want []sessions.ID
	find := func(when string) {
		t.Helper()
		slices.Sort(want)
		got := r.find(t, lists.Query{Reasons: []sessions.Reason{sessions.Declined}})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are declined, want %v", when, got, want)
		}
	}
	if err := r.keeper.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round, n := range []int{8, 30} {
		for i := range n {
			want = append(want, declinedOf(fmt.Sprint("kept_", round, "_", i)))
		}
		if err := r.keeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		find("kept")
		if n := r.messages(t, lists.Query{Reasons: []sessions.Reason{sessions.Unconfirmed}}); n > 15 {
			t.Errorf("a search for a reason that is not there took %d messages", n)
		}
		want = append(want, declinedOf(fmt.Sprint("searched_", round)))
		find("searched")
	}
}

// If reading an account fails, the next pass reads it, and not a pass a minute later.
func TestKeeperTriesAgain(t *testing.T) {
	t.Parallel()
	r := keep(t, 1000)
	r.many(t, 1100) // two pages
	r.keeper.Rest(1 << 30)
	ctx, fail := context.WithCancel(t.Context())
	defer fail()
	failed := make(chan error)
	before := r.conn.NC.Stats().InMsgs
	go func() { failed <- r.keeper.Pass(ctx) }()
	natstest.Await(t, "a page is read", func() bool { return r.conn.NC.Stats().InMsgs-before >= 1024 })
	fail()
	if err := <-failed; err == nil {
		t.Fatal("no failure")
	}
	r.keeper.Rest(0)
	if err := r.keeper.Pass(t.Context()); err != nil || !r.keeper.Keeps(account) {
		t.Errorf("after a failure the account is kept: %t, %v", r.keeper.Keeps(account), err)
	}
}

// If reading outcomes fails on the way, the next pass continues from there.
func TestKeeperContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	const all = 1500 // two pages of outcomes
	r := keep(t, 1000)
	r.keeper.AtOnce(all)
	r.many(t, all)
	if err := r.keeper.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := lists.Query{Account: account, Limit: all}
	p, err := r.writer.List(t.Context(), q)
	if err != nil || len(p.Sessions) != all {
		t.Fatalf("%d sessions, %v", len(p.Sessions), err)
	}
	var ending sync.WaitGroup
	for some := range slices.Chunk(p.Sessions, 50) {
		ending.Go(func() {
			for _, v := range some {
				r.complete(t, v.Session, verified)
			}
		})
	}
	ending.Wait()
	received := func() int { return int(r.conn.NC.Stats().InMsgs) }
	catchUp, err := r.keeper.Goal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.keeper.Rest(1 << 30)
	ctx, fail := context.WithCancel(t.Context())
	defer fail()
	failed := make(chan error)
	before := received()
	go func() { failed <- catchUp(ctx) }()
	natstest.Await(t, "a page of outcomes is read", func() bool { return received()-before >= 1024 })
	fail()
	if err := <-failed; err == nil {
		t.Fatal("no failure")
	}
	r.keeper.Rest(0)
	before = received()
	if err := catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := received() - before; n > all-1024+100 {
		t.Errorf("after a failure it took %d messages", n)
	}
	before = received()
	if got := r.find(t, lists.Query{States: []sessions.State{sessions.Pending}}); len(got) > 0 {
		t.Errorf("%d are pending", len(got))
	}
	if n := received() - before; n > 15 {
		t.Errorf("a search for a state that is not there took %d messages", n)
	}
}

// The keeper uses half a core at most until it has read what was stored at its start, but not for long, and
// then a twentieth. It rests for seconds at most, since its work may have been to wait for a search.
func TestKeeperIsQuickAtItsStart(t *testing.T) {
	t.Parallel()
	r := keep(t, 20)
	r.fill(t, account, 40)
	k := lists.NewKeeper(r.store.Lists, zerolog.Nop())
	for _, at := range []struct{ since, worked, rests time.Duration }{
		{0, time.Second, time.Second},
		{2 * time.Minute, time.Second, time.Second},
		{time.Hour, 100 * time.Millisecond, 1900 * time.Millisecond},
		{time.Hour, 10 * time.Second, 5 * time.Second},
	} {
		if got := k.Rests(at.worked, at.since); got != at.rests {
			t.Errorf("%s after its start it rests %s after %s of work, want %s", at.since, got, at.worked,
				at.rests)
		}
	}
	r.keeper.Rest(3)
	stop := natstest.Serve(t, r.keeper)
	r.awaitKept(t)
	stop()
	if got := r.keeper.Rests(time.Second, 0); got != 3*time.Second {
		t.Errorf("once it has read what was stored, it rests %s after a second's work", got)
	}
}

// log collects what a keeper logs.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// A failure of the keeper to read is logged, but not that it is stopped.
func TestKeeperLogsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	r := keep(t, 20)
	const failed = "cannot be kept"
	out := &log{}
	r.keeper.Log(zerolog.New(out))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := r.keeper.Serve(stopped); err == nil || out.has(failed) {
		t.Errorf("the end is logged, or none: %v", err)
	}
	r.conn.Close()
	natstest.Serve(t, r.keeper)
	natstest.Await(t, "a line in the log", func() bool { return out.has(failed) })
}
