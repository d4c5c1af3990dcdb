package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/lists"
	"verifyd/sessions/records"
)

func (h fixture) createAs(t *testing.T, user, group string) sessions.Session {
	t.Helper()
	r := request
	r.PlatformUserID, r.GuildID = user, group
	s, _, err := h.store.Create(natstest.Patient(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// While sessions are started and completed, the pages of a search have each session that existed when it
// began once, and no later one.
func TestSearchPagesStandWhileSessionsCome(t *testing.T) {
	t.Parallel()
	h := start(t)
	var want []sessions.ID
	for i := range 600 {
		s := h.createAs(t, fmt.Sprintf("Sailor_%d", i), "118")
		if i%3 == 0 {
			want = append(want, s.ID)
			if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Reverse(want)
	q := lists.Query{
		Account: request.Account, Text: "sailor_", Networks: []string{"default"}, Limit: 7,
	}
	var got []sessions.ID
	for page := 0; ; page++ {
		p, err := h.store.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(p)...)
		if q.Cursor = p.Next; q.Cursor == "" {
			break
		}
		s := h.createAs(t, fmt.Sprintf("sailor_late_%d", page), "118")
		if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
			t.Fatal(err)
		}
		if page%5 == 0 { // another user reads the newest
			if _, err := h.store.List(t.Context(),
				lists.Query{Account: request.Account, Limit: 3}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d sessions, want %d, in their order", len(got), len(want))
	}
}

// A search does not rely on memory: new outcomes are seen, as are erased users, and sessions of another
// process.
func TestSearchSeesWhatCameSince(t *testing.T) {
	t.Parallel()
	h := start(t)
	other := newStore(t, h)
	open, gone := h.createAs(t, "open", ""), h.createAs(t, "gone", "")
	find := func(q lists.Query) []sessions.ID {
		t.Helper()
		q.Account = request.Account
		if q.Limit == 0 {
			q.Limit = 5
		}
		got, _ := h.walkList(t, q)
		return got
	}
	verifiedNow := lists.Query{States: []sessions.State{sessions.Verified}}
	pendingNow := lists.Query{States: []sessions.State{sessions.Pending}}
	if got := find(verifiedNow); len(got) != 0 {
		t.Errorf("verified at first: %v", got)
	}
	if got := find(pendingNow); len(got) != 2 {
		t.Errorf("pending at first: %v", got)
	}
	if _, err := other.Complete(t.Context(), open, verified); err != nil {
		t.Fatal(err)
	}
	if got := find(verifiedNow); !slices.Equal(got, []sessions.ID{open.ID}) {
		t.Errorf("verified: %v, want %v", got, open.ID)
	}
	if got := find(pendingNow); !slices.Equal(got, []sessions.ID{gone.ID}) {
		t.Errorf("pending: %v, want %v", got, gone.ID)
	}
	if got := find(lists.Query{Text: "gone"}); !slices.Equal(got, []sessions.ID{gone.ID}) {
		t.Errorf("before the erasure: %v", got)
	}
	if _, err := other.Complete(t.Context(), gone, sessions.Outcome{
		State: sessions.Canceled, Reason: sessions.CanceledReason,
	}); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(sessions.Lifetime + time.Second) // until then an erasure considers it open
	if e, err := other.Erase(t.Context(), anybody("gone"), false); err != nil || e.Sessions != 1 {
		t.Fatalf("erased %+v, %v", e, err)
	}
	for name, q := range map[string]lists.Query{
		"text": {Text: "gone"}, "user": {PlatformUserID: "gone"}, "id": {ID: gone.ID},
		"canceled": {States: []sessions.State{sessions.Canceled}}, "any": {Keys: []string{"key_none"}},
	} {
		if got := find(q); len(got) != 0 {
			t.Errorf("%s finds %v, whose user was erased", name, got)
		}
	}
	r := request
	r.PlatformUserID = "of another edge"
	late, _, err := other.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := find(lists.Query{Text: "of another"}); !slices.Equal(got, []sessions.ID{late.ID}) {
		t.Errorf("another process's session: %v", got)
	}
	h.clock.Advance(sessions.Lifetime + 2*records.ClockSkew)
	if got := find(lists.Query{Reasons: []sessions.Reason{sessions.ExpiredReason}}); !slices.Equal(got,
		[]sessions.ID{late.ID}) {
		t.Errorf("expired: %v, want %v", got, late.ID)
	}
}

// A named session is looked up directly, whatever else the store holds, and only in its own account.
func TestNamedSessionsAreLookedUp(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, token := h.create(t)
	for range 1200 {
		h.create(t)
	}
	if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	for _, held := range []string{
		string(s.ID), token.Reveal(), "cb_" + string(s.ID), "cbtest_" + string(s.ID),
	} {
		id, text := lists.Seek(" " + held + "\n")
		if held == token.Reveal() && text != "" {
			t.Error("a token is compared with texts")
		}
		before := h.conn.NC.Stats().InMsgs
		p, err := h.store.List(t.Context(),
			lists.Query{Account: request.Account, ID: id, Text: text, Limit: 20})
		if err != nil || !slices.Equal(ids(p), []sessions.ID{s.ID}) || p.Next != "" {
			t.Errorf("%d sessions, next %q, %v", len(p.Sessions), p.Next, err)
		}
		most := uint64(10)
		if natstest.OnCluster() { // what is not there is read again once the leader is known to be followed
			most = 20
		}
		if read := h.conn.NC.Stats().InMsgs - before; read > most {
			t.Errorf("%d messages were read for one session", read)
		}
		if p, err := h.store.List(t.Context(),
			lists.Query{Account: "acc_b", ID: id, Text: text, Limit: 20}); err != nil || len(p.Sessions) > 0 {
			t.Errorf("another account finds %v, %v", ids(p), err)
		}
	}
}

// A search that runs out of time returns how far it has come, and continues from there to the same sessions.
func TestSearchEndsWithItsTimeAndContinues(t *testing.T) {
	t.Parallel()
	h := start(t)
	var starting sync.WaitGroup
	for w := range 30 {
		starting.Go(func() {
			for range 100 {
				h.createAs(t, fmt.Sprintf("sailor_%d", w), "")
			}
		})
	}
	starting.Wait()
	q := lists.Query{Account: request.Account, Text: "sailor_7", Limit: 100}
	want, _ := h.walkList(t, q)
	if len(want) != 100 {
		t.Fatalf("%d sessions", len(want))
	}
	h.store = newStore(t, h)
	// the clock is read for each session on the page
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	cut := newStoreAt(t, h, func() time.Time {
		if looks++; looks == 40 {
			cancel()
		}
		return h.clock.Now()
	})
	p, err := cut.List(ctx, q)
	if err != nil || len(p.Sessions) == 0 || len(p.Sessions) >= 100 || p.Next == "" || p.Back.IsZero() {
		t.Fatalf("%d sessions, next %q, back to %s, %v", len(p.Sessions), p.Next, p.Back, err)
	}
	q.Cursor = p.Next
	rest, _ := h.walkList(t, q)
	if got := append(ids(p), rest...); !slices.Equal(got, want) {
		t.Errorf("%d and then %d sessions, want %d", len(p.Sessions), len(rest), len(want))
	}
}

// The outcomes of many are read together, those of few one by one, and both are right.
func TestOutcomesAreReadEitherWay(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := request
	r.Account = "acc_few"
	few, _, err := h.store.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	refused := sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Network: "other"}
	if _, err := h.store.Complete(t.Context(), few, refused); err != nil {
		t.Fatal(err)
	}
	var many []sessions.ID
	for i := range 200 {
		s, _ := h.create(t)
		o := verified
		if i%50 == 0 {
			o, many = refused, append(many, s.ID)
		}
		if _, err := h.store.Complete(t.Context(), s, o); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(many)
	for account, want := range map[string][]sessions.ID{"acc_few": {few.ID}, request.Account: many} {
		for range 2 {
			got, _ := h.walkList(t, lists.Query{
				Account: account, Reasons: []sessions.Reason{sessions.Refused}, Networks: []string{"other"},
				Limit: 3,
			})
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", account, got, want)
			}
		}
	}
	if _, last, err := h.conn.Bounds(t.Context(), topology.StreamCompletions); err != nil || last != 201 {
		t.Errorf("%d facts, %v", last, err)
	}
}

// If somebody may search soon, what a search looks through is read before: the search itself reads little.
func TestSearchIsReadAhead(t *testing.T) {
	t.Parallel()
	h := start(t)
	const all = 200
	for i := range all {
		h.createAs(t, fmt.Sprint("user", i), "")
	}
	received := func() uint64 { return h.conn.NC.Stats().InMsgs }
	natstest.Serve(t, lists.NewAhead(h.store.Lists))
	before := received()
	h.store.Expect(request.Account)
	natstest.Await(t, "the records are read", func() bool { return received() >= before+all })
	for range 2 { // the first waits for what is read
		before = received()
		got, _ := h.walkList(t, lists.Query{Account: request.Account, Text: "nobody", Limit: 5})
		if n := received() - before; len(got) > 0 || n > all/4 {
			t.Errorf("a search finds %v with %d messages, want nothing and few", got, n)
		}
	}
}
