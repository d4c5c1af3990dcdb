package lists_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

const account = "acc_a"

var (
	verified = sessions.Outcome{State: sessions.Verified, Network: "default"}
	declined = sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined, Network: "default"}
)

// rig is a store, and two processes that use it: one searches, the other writes.
type rig struct {
	conn          *natsconf.Conn
	offset        *atomic.Int64 // of the clock
	open          func() *store.Store
	store, writer *store.Store
}

func newRig(t *testing.T) rig {
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

// readAll does what an Ahead does with the account.
func (r rig) readAll(t *testing.T) {
	t.Helper()
	if err := r.store.ReadAll(t.Context(), account); err != nil {
		t.Fatal(err)
	}
}

// A search of an account with many sessions, of which it can read only some in its time, says how many it has
// read, and what it has not read is read on. Then searches read no records and no outcomes.
func TestLargeAccountIsReadOn(t *testing.T) {
	t.Parallel()
	const all = 1500
	r := newRig(t)
	r.store.Hurry(100)
	r.fill(t, account, all)
	r.fill(t, "acc_small", 50)
	nobody := lists.Query{Account: account, Text: "nobody", Limit: 5}
	p, err := r.store.List(t.Context(), nobody)
	if err != nil || len(p.Sessions) > 0 || p.Next == "" || p.Back.IsZero() || p.Reading == nil {
		t.Fatalf("the first search: %+v, %v", p, err)
	}
	if read := *p.Reading; read.Read < 100 || read.Read >= all || read.Of != all || read.Left <= 0 {
		t.Errorf("the first search: %+v", read)
	}
	natstest.Serve(t, lists.NewAhead(r.store.Lists))
	natstest.Await(t, "all is read", func() bool { return r.store.Rows(account) == all })
	natstest.Await(t, "a search has looked through all", func() bool {
		p, err = r.store.List(t.Context(), nobody)
		return err == nil && p.Next == "" && p.Reading == nil
	})
	if p, err := r.store.List(t.Context(), lists.Query{
		Account: "acc_small", Text: "nobody", Limit: 5,
	}); err != nil || p.Next != "" || p.Reading != nil {
		t.Errorf("a search of a small account: %+v, %v", p, err)
	}
}

// After an account was read, no search reads its records or outcomes again.
func TestSearchesReadNothingAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill(t, account, 400)
	r.fill(t, "acc_small", 100)
	r.readAll(t)
	for name, q := range map[string]lists.Query{
		"text":    {Text: "nobody"},
		"reason":  {Reasons: []sessions.Reason{sessions.Unconfirmed}},
		"network": {Networks: []string{"another"}},
		"state":   {States: []sessions.State{sessions.Canceled}},
	} {
		if n := r.messages(t, q); n > 20 {
			t.Errorf("%s: a search took %d messages", name, n)
		}
	}
	if n := r.store.Rows(account); n != 400 || r.store.Rows("acc_small") > 0 {
		t.Errorf("%d sessions are in memory, and %d of an account that nobody searches", n,
			r.store.Rows("acc_small"))
	}
}

// Pages of a search whose time is over again and again have each session once.
func TestSearchGoesOnWhereItsTimeWasOver(t *testing.T) {
	t.Parallel()
	const all = 3000
	r := newRig(t)
	r.store.Hurry(100)
	r.many(t, all)
	if got := r.find(t, lists.Query{Text: "user_"}); len(got) != all || len(slices.Compact(got)) != all {
		t.Errorf("%d sessions, want %d", len(got), all)
	}
}

// While a large account is being read, a search waits for that no longer than it reads by itself, and says
// how much is read. A search of a small account waits.
func TestSearchDoesNotWaitForALargeAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill(t, account, 200)
	r.readAll(t)
	r.store.Hurry(200)
	release, err := r.store.Use(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	q := lists.Query{Account: account, Text: "user_7", Limit: 5}
	p, err := r.store.List(t.Context(), q)
	if err != nil || len(p.Sessions) > 0 || p.Next == "" || p.Reading == nil || p.Reading.Read != 200 ||
		p.Reading.Of != 200 {
		t.Errorf("in use: %+v, %v", p, err)
	}
	r.store.Hurry(201)
	found := make(chan error)
	go func() {
		p, err := r.store.List(t.Context(), q)
		if err == nil && (len(p.Sessions) != 5 || p.Reading != nil) {
			err = fmt.Errorf("%+v", p)
		}
		found <- err
	}()
	select {
	case err := <-found:
		t.Errorf("it did not wait: %v", err)
		release()
		return
	default:
	}
	release()
	if err := <-found; err != nil {
		t.Error("after the wait:", err)
	}
}

// Memory alone answers no search: a session that another process stored a moment ago is found, a session
// whose user was erased is not, and that user is in memory no longer.
func TestKeptIsNeverOlderThanTheStore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill(t, account, 60)
	gone, other := r.start(t, account, "gone"), r.start(t, account, "other")
	for _, s := range []sessions.Session{gone, other} {
		r.complete(t, s, sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason})
	}
	r.readAll(t)
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
	if n := r.store.Rows(account); n != 62 {
		t.Errorf("%d sessions are in memory", n)
	}
}

// While sessions start and end, while Ahead and searches read, and after some sessions have
// expired, each search by outcome finds all sessions with that outcome, each once.
func TestKeptOutcomesAreThoseOfTheStore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill(t, account, 40)
	natstest.Serve(t, lists.NewAhead(r.store.Lists))
	r.store.Expect(account)
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
	check("later")
	r.store = r.open()
	r.readAll(t)
	check("in a process that has begun since")
}

// Sessions that were removed from memory, and read again by a search that did not need their outcomes, are
// still found by their outcomes.
func TestWhatIsReadAgainIsNotTakenForLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill(t, account, 200)
	r.readAll(t)
	r.store.Bound(12_000)
	r.find(t, lists.Query{Text: "nobody"})
	if n := r.store.Rows(account); n < 10 || n > 150 {
		t.Fatalf("%d sessions are left", n)
	}
	r.store.Bound(1 << 20)
	r.find(t, lists.Query{Text: "nobody"})
	r.complete(t, r.start(t, account, "more"), verified)
	r.readAll(t)
	if got := r.find(t, lists.Query{States: []sessions.State{sessions.Verified}}); len(got) != 181 {
		t.Errorf("%d are found as verified, want 181", len(got))
	}
}

// If there is no room for an account, or for a part of it only, each search still finds what it must.
func TestSearchesAreRightWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]int{"for nothing": 1, "for a part": 30_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			all := r.fill(t, account, 600)
			r.store.Bound(bound)
			r.readAll(t)
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

// The facts of a delivery are not taken for the outcome of its session, which would then be read from the
// session itself, however the outcomes are read.
func TestDeliveriesAreNoOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.Hurry(1 << 20)
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
	r.readAll(t)
	for round, n := range []int{8, 30} {
		for i := range n {
			want = append(want, declinedOf(fmt.Sprint("kept_", round, "_", i)))
		}
		r.readAll(t)
		find("kept")
		if n := r.messages(t, lists.Query{Reasons: []sessions.Reason{sessions.Unconfirmed}}); n > 15 {
			t.Errorf("a search for a reason that is not there took %d messages", n)
		}
		want = append(want, declinedOf(fmt.Sprint("searched_", round)))
		find("searched")
	}
}

// If the stream of the records was made anew, what was read of the one before is no longer searched.
func TestStreamMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill(t, account, 60)
	r.readAll(t)
	s, err := r.conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketSessions))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.conn.JS.DeleteStream(t.Context(), s.CachedInfo().Config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := r.conn.JS.CreateStream(t.Context(), s.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	r.writer = r.open()
	late := r.start(t, account, "late")
	if got := r.find(t, lists.Query{Text: "late"}); !slices.Equal(got, []sessions.ID{late.ID}) {
		t.Errorf("found: %v, want %s", got, late.ID)
	}
}
