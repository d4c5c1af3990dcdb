package lists_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

const account = "acc_a"

var (
	verified = sessions.Outcome{State: sessions.Verified, Network: "default"}
	declined = sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined, Network: "default"}
)

// rig is a store, and two processes that use it: one searches and runs the keeper, the other writes.
type rig struct {
	conn          *natsconf.Conn
	offset        *atomic.Int64 // of the clock
	open          func() *store.Store
	store, writer *store.Store
	keeper        *lists.Keeper
}

// keep returns a rig whose keeper keeps accounts with at least from sessions.
func keep(t *testing.T, from int) rig {
	t.Helper()
	r := rig{conn: natstest.Start(t), offset: &atomic.Int64{}}
	key := secretbox.NewKey()
	r.open = func() *store.Store {
		return store.New(store.Config{
			Conn: r.conn, Key: key,
			Now: func() time.Time {
				return time.Now().Add(time.Duration(r.offset.Load()))
			},
			Pending:     natstest.Writer(t, r.conn, topology.BucketStream(topology.BucketSessions)),
			Completions: natstest.Writer(t, r.conn, topology.StreamCompletions),
		})
	}
	r.store, r.writer = r.open(), r.open()
	r.keeper = lists.NewTestKeeper(r.store.Lists, from)
	return r
}

func (r rig) start(t *testing.T, account, user string) sessions.Session {
	t.Helper()
	s, _, err := r.writer.Create(t.Context(), sessions.Request{
		Account: account, Key: "key_k", Platform: "discord", PlatformUserID: user, GuildID: "118",
		CallbackURL: "https://hooks.harbor.example/verify",
	})
	if err != nil {
		t.Error(err)
	}
	return s
}

func (r rig) complete(t *testing.T, s sessions.Session, o sessions.Outcome) {
	t.Helper()
	if _, err := r.writer.Complete(t.Context(), s, o); err != nil {
		t.Error(err)
	}
}

func (r rig) erase(t *testing.T, user string) {
	t.Helper()
	e, err := r.writer.Erase(t.Context(), erasure.Person{
		Account: account, PlatformUserID: user,
		HoldUsersOf: func(s sessions.Session) []string { return []string{s.PlatformUserID} },
	}, false)
	if err != nil || e.Sessions != 1 {
		t.Fatalf("erased %+v, %v", e, err)
	}
}

// fill starts sessions of users user_0, user_1 and so on, and completes all but every tenth.
func (r rig) fill(t *testing.T, account string, n int) (all []sessions.Session) {
	t.Helper()
	all = make([]sessions.Session, n)
	var starting sync.WaitGroup
	for w := range 16 {
		starting.Go(func() {
			for i := w; i < n; i += 16 {
				if all[i] = r.start(t, account, fmt.Sprint("user_", i)); i%10 != 0 {
					r.complete(t, all[i], verified)
				}
			}
		})
	}
	starting.Wait()
	return all
}

// find returns the sorted ids of all sessions that a search finds.
func (r rig) find(t *testing.T, q lists.Query) (found []sessions.ID) {
	t.Helper()
	q.Account, q.Limit = account, 100
	for {
		p, err := r.store.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Sessions {
			found = append(found, v.ID)
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			slices.Sort(found)
			return found
		}
	}
}

// messages returns how many messages a search receives.
func (r rig) messages(t *testing.T, q lists.Query) int {
	t.Helper()
	q.Account, q.Limit = account, 5
	before := r.conn.NC.Stats().InMsgs
	if _, err := r.store.List(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return int(r.conn.NC.Stats().InMsgs - before)
}

func (r rig) awaitKept(t *testing.T) {
	t.Helper()
	natstest.Await(t, "the account is kept", func() bool { return r.keeper.Keeps(account) })
}

// nextPass makes the keeper do all its work, which includes the search for large accounts, until is reports
// true.
func (r rig) nextPass(t *testing.T, what string, is func() bool) {
	t.Helper()
	natstest.Await(t, what, func() bool {
		r.offset.Add(int64(time.Minute))
		return is()
	})
}

// The first search of an account with many sessions reads no records and no outcomes. A small account is not
// kept.
func TestKeeperReadsBeforeTheFirstSearch(t *testing.T) {
	t.Parallel()
	r := keep(t, 300)
	r.fill(t, account, 400)
	r.fill(t, "acc_small", 100)
	stop := natstest.Serve(t, r.keeper)
	r.awaitKept(t)
	stop() // it uses the same connection
	for name, q := range map[string]lists.Query{
		"text":    {Text: "nobody"},
		"reason":  {Reasons: []sessions.Reason{sessions.Unconfirmed}},
		"network": {Networks: []string{"another"}},
		"state":   {States: []sessions.State{sessions.Canceled}},
	} {
		if n := r.messages(t, q); n > 20 {
			t.Errorf("%s: a first search took %d messages", name, n)
		}
	}
	if r.keeper.Keeps("acc_small") || r.store.Rows("acc_small") > 0 {
		t.Error("a small account is kept")
	}
	if n := r.store.Rows(account); n != 400 {
		t.Errorf("%d sessions are kept", n)
	}
}

// Memory alone answers no search: a session that another process stored a moment ago is found, a session
// whose user was erased is not, and the keeper forgets that user.
func TestKeptIsNeverOlderThanTheStore(t *testing.T) {
	t.Parallel()
	r := keep(t, 50)
	r.fill(t, account, 60)
	gone, other := r.start(t, account, "gone"), r.start(t, account, "other")
	for _, s := range []sessions.Session{gone, other} {
		r.complete(t, s, sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason})
	}
	natstest.Serve(t, r.keeper)
	r.awaitKept(t)
	late := r.start(t, account, "late")
	if got := r.find(t, lists.Query{Text: "late"}); !slices.Equal(got, []sessions.ID{late.ID}) {
		t.Errorf("started a moment ago: %v", got)
	}
	r.complete(t, late, declined)
	refused := lists.Query{Reasons: []sessions.Reason{sessions.Declined}}
	if got := r.find(t, refused); !slices.Equal(got, []sessions.ID{late.ID}) {
		t.Errorf("declined a moment ago: %v", got)
	}
	r.offset.Add(int64(sessions.Lifetime + time.Minute)) // until then an erasure treats it as open
	r.erase(t, "gone")
	for name, q := range map[string]lists.Query{
		"text": {Text: "gone"}, "user": {PlatformUserID: "gone"}, "id": {ID: gone.ID},
	} {
		if got := r.find(t, q); len(got) > 0 {
			t.Errorf("%s finds an erased user's session", name)
		}
	}
	r.erase(t, "other")
	r.nextPass(t, "the erased are forgotten without a search", func() bool {
		return r.store.Rows(account) == 61
	})
}

// While sessions start and end, while searches read ahead of the keeper, and after some sessions have
// expired, each search by outcome finds all sessions with that outcome, each once.
func TestKeptOutcomesAreThoseOfTheStore(t *testing.T) {
	t.Parallel()
	r := keep(t, 20)
	r.fill(t, account, 40)
	natstest.Serve(t, r.keeper)
	r.awaitKept(t)
	var mu sync.Mutex
	want := map[sessions.State][]sessions.ID{}
	note := func(s sessions.Session, state sessions.State) {
		mu.Lock()
		defer mu.Unlock()
		want[state] = append(want[state], s.ID)
	}
	var working sync.WaitGroup
	for w := range 8 {
		working.Go(func() {
			for i := range 60 {
				s := r.start(t, account, fmt.Sprintf("worker_%d_%d", w, i))
				switch i % 3 {
				case 0:
					r.complete(t, s, verified)
					note(s, sessions.Verified)
				case 1:
					r.complete(t, s, declined)
					note(s, sessions.Failed)
				default:
					note(s, sessions.Expired)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { working.Wait(); close(ended) }()
	for searching := true; searching; {
		for _, state := range []sessions.State{sessions.Verified, sessions.Pending} {
			r.find(t, lists.Query{States: []sessions.State{state}, Text: "worker_3"})
		}
		select {
		case <-ended:
			searching = false
		default:
		}
	}
	check := func(when string) {
		t.Helper()
		for state, ids := range want {
			slices.Sort(ids)
			q := lists.Query{States: []sessions.State{state}, Text: "worker_"}
			if got := r.find(t, q); !slices.Equal(got, ids) {
				t.Errorf("%s: %d are found as %s, want %d", when, len(got), state, len(ids))
			}
		}
	}
	r.offset.Add(int64(sessions.Lifetime + 2*time.Minute))
	check("at once")
	r.nextPass(t, "the keeper has seen that they expired", func() bool {
		return r.messages(t, lists.Query{States: []sessions.State{sessions.Expired}, Text: "worker_"}) < 100
	})
	check("later")
	r.store = r.open()
	r.keeper = lists.NewTestKeeper(r.store.Lists, 20)
	natstest.Serve(t, r.keeper)
	r.awaitKept(t)
	check("in a process that has begun since")
}

// An outcome is found even if it is stored after the keeper has looked for it. So is an outcome that a
// search did not have to read when it read further than the keeper. What has been read is not read again.
func TestOutcomesThatComeLaterAreFound(t *testing.T) {
	t.Parallel()
	r := keep(t, 20)
	do := func(step func(context.Context) error) {
		t.Helper()
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.fill(t, account, 40)
	do(r.keeper.Pass)
	open, late := r.start(t, account, "open"), r.start(t, account, "late")
	do(r.keeper.Pass)
	r.complete(t, late, verified)
	r.start(t, account, "another") // so that the pass has something to read
	do(r.keeper.Pass)
	found := func(user string, s sessions.Session) {
		t.Helper()
		q := lists.Query{Text: user, States: []sessions.State{sessions.Verified}}
		if got := r.find(t, q); !slices.Equal(got, []sessions.ID{s.ID}) {
			t.Errorf("%s: %v", user, got)
		}
	}
	found("late", late)
	unread := r.start(t, account, "unread")
	pending := lists.Query{Text: "open", States: []sessions.State{sessions.Pending}}
	r.find(t, pending)
	catchUp, err := r.keeper.Goal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.complete(t, unread, verified)
	if got := r.find(t, pending); !slices.Equal(got, []sessions.ID{open.ID}) {
		t.Errorf("pending: %v", got)
	}
	do(catchUp)
	found("unread", unread)
	for i := range 4 {
		r.fill(t, fmt.Sprint("acc_small_", i), 15)
	}
	do(r.keeper.Pass)
	before := r.conn.NC.Stats().InMsgs
	r.start(t, "acc_small_0", "one")
	do(r.keeper.Pass)
	if n := r.conn.NC.Stats().InMsgs - before; n > 30 {
		t.Errorf("a pass over one session took %d messages", n)
	}
}

// Sessions that were removed from memory, and read again by a search that did not need their outcomes, are
// still found by their outcomes.
func TestWhatIsReadAgainIsNotTakenForLookedUp(t *testing.T) {
	t.Parallel()
	r := keep(t, 20)
	r.fill(t, account, 200)
	do := func() {
		t.Helper()
		if err := r.keeper.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	do()
	r.keeper.Bound(12_000)
	r.find(t, lists.Query{Text: "nobody"})
	if n := r.store.Rows(account); n < 10 || n > 150 {
		t.Fatalf("%d sessions are left", n)
	}
	r.keeper.Bound(1 << 20)
	r.find(t, lists.Query{Text: "nobody"})
	r.complete(t, r.start(t, account, "more"), verified)
	do()
	if got := r.find(t, lists.Query{States: []sessions.State{sessions.Verified}}); len(got) != 181 {
		t.Errorf("%d are found as verified, want 181", len(got))
	}
}

// A keeper without room keeps nothing, or a part of what it should, and each search still finds what it
// must.
func TestSearchesAreRightWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]int{"for nothing": 1, "for a part": 30_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := keep(t, 300)
			all := r.fill(t, account, 600)
			r.keeper.Bound(bound)
			natstest.Serve(t, r.keeper)
			if bound > 1 {
				r.awaitKept(t)
			}
			for round := range 2 {
				r.start(t, account, fmt.Sprint("more_", round))
				for _, i := range []int{0, 1, 300, 599} {
					got := r.find(t, lists.Query{PlatformUserID: fmt.Sprint("user_", i)})
					if !slices.Equal(got, []sessions.ID{all[i].ID}) {
						t.Errorf("user_%d: %v", i, got)
					}
				}
				got := r.find(t, lists.Query{States: []sessions.State{sessions.Verified}})
				if len(got) != 540 {
					t.Errorf("%d verified", len(got))
				}
				if n := r.store.Rows(account); n > bound/72 {
					t.Errorf("%d sessions are in memory", n)
				}
			}
		})
	}
}

// Sessions that have aged out are forgotten, and an account with few sessions left is no longer kept.
func TestKeeperForgetsWhatHasAgedOut(t *testing.T) {
	t.Parallel()
	r := keep(t, 200)
	r.fill(t, account, 400)
	natstest.Serve(t, r.keeper)
	r.awaitKept(t)
	age := func(before uint64) {
		t.Helper()
		s, err := r.conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketSessions))
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSequence(before))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	age(101)
	r.nextPass(t, "they are forgotten", func() bool { return r.store.Rows(account) == 300 })
	if n := r.messages(t, lists.Query{Text: "nobody"}); n > 100 {
		t.Errorf("a search took %d messages", n)
	}
	if got := r.find(t, lists.Query{Text: "user_"}); len(got) != 300 {
		t.Errorf("%d sessions are found", len(got))
	}
	age(311)
	r.nextPass(t, "it is kept no longer", func() bool { return !r.keeper.Keeps(account) })
	if got := r.find(t, lists.Query{Text: "user_"}); len(got) != 90 {
		t.Errorf("%d sessions are found", len(got))
	}
}

// If very many sessions were stored at once, a search before the keeper has read them leaves the kept span
// unchanged.
func TestSearchFarAfterAKeptSpanLeavesIt(t *testing.T) {
	t.Parallel()
	if left, err := lists.PositionBehind(1 << 20); !left || err != nil {
		t.Errorf("left alone: %t, %v", left, err)
	}
}
