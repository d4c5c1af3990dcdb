package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

// ids lists a page's sessions.
func ids(p lists.Page) (out []sessions.ID) {
	for _, v := range p.Sessions {
		out = append(out, v.ID)
	}
	return out
}

// walkList reads a list to its end.
func (h fixture) walkList(t *testing.T, q lists.Query) (all []sessions.ID, pages int) {
	t.Helper()
	for pages = 1; ; pages++ {
		p, err := h.store.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Sessions) > q.Limit {
			t.Fatalf("a page of %d has %d", q.Limit, len(p.Sessions))
		}
		all = append(all, ids(p)...)
		if q.Cursor = p.Next; q.Cursor == "" || pages > 10_000 {
			return all, pages
		}
	}
}

// Pages of any size give each session of the account once, newest first, and none of another account's.
func TestListReturnsEachSessionOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	var want []sessions.ID
	for i := range 90 {
		r := request
		r.Account = []string{"acc_a", "acc_b", "acc_b"}[i%3]
		s, _, err := h.store.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Account == "acc_a" {
			want = append(want, s.ID)
		}
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 7, 29, 30, 31, 500} {
		got, pages := h.walkList(t, lists.Query{Account: "acc_a", Limit: limit})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("pages of %d: %d sessions, want %d", limit, len(got), len(want))
		}
		if most := len(want)/limit + 1; pages > most+1 {
			t.Errorf("pages of %d: %d pages", limit, pages)
		}
	}
	if got, _ := h.walkList(t, lists.Query{Account: "acc_none", Limit: 5}); len(got) != 0 {
		t.Errorf("an account without sessions has %d", len(got))
	}
}

// A cursor of another account, of any record or of none, leads to no session but the account's own.
func TestCursorStaysInItsAccount(t *testing.T) {
	t.Parallel()
	h := start(t)
	account := map[sessions.ID]string{}
	var cursors []string
	for i := range 12 {
		r := request
		r.Account = []string{"acc_a", "acc_b"}[i%2]
		s, _, err := h.store.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		account[s.ID] = r.Account
	}
	for _, of := range []string{"acc_a", "acc_b"} {
		for q := (lists.Query{Account: of, Limit: 1}); ; {
			p, err := h.store.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if q.Cursor = p.Next; q.Cursor == "" {
				break
			}
			cursors = append(cursors, q.Cursor)
		}
	}
	first, last := "04"+strings.Repeat("0", 13), "07"+strings.Repeat("v", 12)+"o"
	cursors = append(cursors, first, last)
	if len(cursors) < 10 {
		t.Fatalf("%d cursors", len(cursors))
	}
	for _, c := range cursors {
		for _, of := range []string{"acc_a", "acc_b"} {
			p, err := h.store.List(t.Context(), lists.Query{Account: of, Limit: 500, Cursor: c})
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			for _, id := range ids(p) {
				if account[id] != of {
					t.Errorf("%s gives %s a session of %s", c, of, account[id])
				}
			}
		}
	}
}

// The few sessions of an account are found after many of others.
func TestListFindsWhatIsFarBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := request
	r.Account = "acc_rare"
	rare, _, err := h.store.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for range 1500 {
		h.create(t)
	}
	if p, err := h.store.List(t.Context(), lists.Query{Account: "acc_rare", Limit: 3}); err != nil ||
		!reflect.DeepEqual(ids(p), []sessions.ID{rare.ID}) || p.Next != "" {
		t.Errorf("list = %+v, %v", p, err)
	}
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	h := start(t)
	ended := map[string]sessions.ID{}
	for name, o := range map[string]sessions.Outcome{
		"pending": {}, "verified": verified, "failed": {State: sessions.Failed, Reason: sessions.Declined},
		"canceled": {State: sessions.Canceled, Reason: sessions.CanceledReason},
	} {
		r := request
		r.PlatformUserID, r.Test = name, name == "canceled"
		s, _, err := h.store.Create(t.Context(), r)
		if err == nil && o.State != "" {
			_, err = h.store.Complete(t.Context(), s, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		ended[name] = s.ID
	}
	yes, no := true, false
	now := h.clock.Now()
	for name, c := range map[string]struct {
		q    lists.Query
		want []string
	}{
		"all":      {lists.Query{}, []string{"canceled", "failed", "pending", "verified"}},
		"one user": {lists.Query{PlatformUserID: "failed"}, []string{"failed"}},
		"nobody":   {lists.Query{PlatformUserID: "fail"}, nil},
		"states": {
			lists.Query{States: []sessions.State{sessions.Verified, sessions.Pending}}, []string{
				"pending", "verified",
			},
		},
		"due": {
			lists.Query{Deliveries: []facts.DeliveryState{facts.DeliveryDue}}, []string{
				"failed", "verified",
			},
		},
		"test": {lists.Query{Test: &yes}, []string{"canceled"}},
		"live": {lists.Query{Test: &no}, []string{"failed", "pending", "verified"}},
		"since before": {
			lists.Query{Since: now.Add(-time.Hour)}, []string{"canceled", "failed", "pending", "verified"},
		},
		"since later":  {lists.Query{Since: now.Add(time.Second)}, nil},
		"until before": {lists.Query{Until: now.Add(-time.Hour)}, nil},
		"until later": {
			lists.Query{Until: now.Add(time.Hour)}, []string{"canceled", "failed", "pending", "verified"},
		},
		"expired, not yet": {lists.Query{States: []sessions.State{sessions.Expired}}, nil},
	} {
		c.q.Account, c.q.Limit = request.Account, 2
		got, _ := h.walkList(t, c.q)
		var want []sessions.ID
		for _, w := range c.want {
			want = append(want, ended[w])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d sessions, want %d", name, len(got), len(want))
		}
	}
	h.clock.Advance(time.Hour)
	if got, _ := h.walkList(t,
		lists.Query{Account: request.Account, States: []sessions.State{sessions.Expired},
			Limit: 9}); !slices.Equal(got, []sessions.ID{ended["pending"]}) {
		t.Errorf("expired: %v", got)
	}
}

// A caller with little time gets what was found until then, and can continue.
func TestListEndsWithItsTime(t *testing.T) {
	t.Parallel()
	h := start(t)
	for range 40 {
		h.create(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	h.store = newStoreAt(t, h, func() time.Time { // a pending session's expiry is checked once for each
		if looks++; looks == 12 {
			cancel()
		}
		return time.Now()
	})
	q := lists.Query{Account: request.Account, Limit: 100}
	p, err := h.store.List(ctx, q)
	if err != nil || len(p.Sessions) == 0 || len(p.Sessions) == 40 || p.Next == "" || p.Back.IsZero() {
		t.Fatalf("%d sessions, next %q, %v", len(p.Sessions), p.Next, err)
	}
	q.Cursor = p.Next
	rest, _ := h.walkList(t, q)
	if len(p.Sessions)+len(rest) != 40 {
		t.Errorf("%d and then %d sessions", len(p.Sessions), len(rest))
	}
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	h := start(t)
	for range 3 {
		h.create(t)
	}
	p, err := h.store.List(t.Context(), lists.Query{Account: request.Account, Limit: 1})
	if err != nil || p.Next == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, bad := range []string{
		"x", "0", fmt.Sprint(1 << 20), p.Next + "0", p.Next[1:], "\x00", p.Next[:len(p.Next)-1] + "Z",
	} {
		if _, err := h.store.List(t.Context(),
			lists.Query{Account: request.Account, Limit: 1, Cursor: bad}); !errors.Is(err,
			lists.ErrBadCursor) {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
}

// A busy time before a long quiet one is not read all at once, however far the windows have grown in the
// quiet one.
func TestListReadsABusyTimeInParts(t *testing.T) {
	t.Parallel()
	h := start(t)
	create := func(account string, n int) {
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				r := request
				r.Account = account
				for range n / 30 {
					if _, _, err := h.store.Create(t.Context(), r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	create("acc_a", 3000)
	create("acc_b", 2700)
	before := h.conn.NC.Stats().InMsgs
	p, err := h.store.List(t.Context(), lists.Query{Account: "acc_a", Limit: 1})
	if err != nil || len(p.Sessions) != 1 {
		t.Fatal(len(p.Sessions), err)
	}
	if read := h.conn.NC.Stats().InMsgs - before; read > 2000 {
		t.Errorf("%d messages were read for one session", read)
	}
	if all, _ := h.walkList(t, lists.Query{Account: "acc_a", Limit: 400}); len(all) != 3000 {
		t.Errorf("%d sessions in all", len(all))
	}
}

// One record that cannot be read hides no other.
func TestListContinuesAfterADamagedRecord(t *testing.T) {
	t.Parallel()
	h := start(t)
	older, _ := h.create(t)
	damaged := topology.BucketSubject(topology.BucketSessions, request.Account+"."+strings.Repeat("a", 32))
	natstest.Publish(t, h.conn, damaged, []byte(`{"v":1`))
	newer, _ := h.create(t)
	if got, _ := h.walkList(t, lists.Query{Account: request.Account, Limit: 9}); !slices.Equal(got,
		[]sessions.ID{newer.ID, older.ID}) {
		t.Errorf("list = %v", got)
	}
}
