package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

// anybody is the person with this name in all sessions and holds of the tests' account.
func anybody(user string) erasure.Person {
	return erasure.Person{
		Account: request.Account, PlatformUserID: user,
		HoldUsersOf: func(s sessions.Session) []string { return []string{s.PlatformUserID} },
	}
}

// An identity that stood for an erased user may stand for another; holds of others stay. A session of
// the erased user is unknown, can never be completed again, and is in no list.
func TestErase(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	gone, stays := h.hold(t, "planted-user"), h.hold(t, "another")
	stays.Identity = "another identity"
	for _, hold := range []store.IdentityHold{gone, stays} {
		if err := st.HoldIdentity(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
	}
	read, err := st.ReadOpen(t.Context(), gone.Session)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil || e.Open != 1 ||
		e.Sessions+e.Identities != 0 {
		t.Errorf("while it can be completed: %+v, %v", e, err)
	}
	h.complete(t, gone.Session, sessions.Canceled, sessions.CanceledReason) // nothing is to be delivered
	h.clock.Advance(sessions.Lifetime + time.Second)
	want := erasure.Erasure{Sessions: 1, Outcomes: 1, Identities: 1}
	for _, dry := range []bool{true, false} {
		if e, err := st.Erase(t.Context(), anybody("planted-user"), dry); err != nil || e != want {
			t.Errorf("dry %t: %+v, %v", dry, e, err)
		}
	}
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil ||
		e != (erasure.Erasure{}) {
		t.Errorf("a second time: %+v, %v", e, err)
	}
	if _, err := st.Read(t.Context(), gone.Session); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	if _, err := st.ReadOpen(t.Context(), gone.Session); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read to be completed: %v", err)
	}
	if c, err := st.Complete(t.Context(), read, verified); !errors.Is(err, sessions.ErrExpired) ||
		c != (sessions.Completion{}) {
		t.Errorf("complete as it was read before: %+v, %v", c, err)
	}
	if _, err := st.Resend(t.Context(), gone.Session, "somebody"); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("resend: %v", err)
	}
	page, err := st.List(t.Context(), lists.Query{Account: request.Account, Limit: 10})
	if err != nil || len(page.Sessions) != 1 || page.Sessions[0].ID != stays.Session {
		t.Errorf("list: %+v, %v", page.Sessions, err)
	}
	erased, err := st.Erased(t.Context())
	if err != nil || len(erased) != 1 || !erased[gone.Session] {
		t.Errorf("erased: %v, %v", erased, err)
	}
	next := h.hold(t, "next")
	if err := st.HoldIdentity(t.Context(), next); err != nil {
		t.Errorf("the identity is still held: %v", err)
	}
	next.Identity = stays.Identity
	if err := st.HoldIdentity(t.Context(), next); !errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("another's identity: %v", err)
	}
}

// A session that was delivered is erased within its ten minutes, and from then on is unknown to a process
// that remembers it. Its idempotency key starts another session.
func TestDeliveredSessionIsErasedAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	st, other := newStore(t, h), newStore(t, h)
	r, err := st.Reserve(t.Context(), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	planted := request
	planted.PlatformUserID = "planted-user"
	s, _, err := st.Commit(t.Context(), r, planted)
	if err != nil {
		t.Fatal(err)
	}
	for _, remembers := range []*store.Store{st, other} {
		if _, err := remembers.ReadByToken(t.Context(), r.Token); err != nil {
			t.Fatal(err)
		}
	}
	erase := func(when string, want erasure.Erasure) {
		t.Helper()
		if e, err := other.Erase(t.Context(), anybody("planted-user"), false); err != nil || e != want {
			t.Errorf("%s: %+v, %v", when, e, err)
		}
	}
	open := erasure.Erasure{Open: 1}
	erase("while it can be completed", open)
	h.complete(t, s.ID, sessions.Verified, sessions.NoReason)
	erase("while its callback is due", open)
	if err := h.store.Claim(t.Context(), facts.Claim{Session: s.ID, Number: 1}); err != nil {
		t.Fatal(err)
	}
	erase("while its callback is being sent", open)
	if _, err := h.store.StoreResult(t.Context(), facts.Result{
		Session: s.ID, Number: 1, Verdict: facts.VerdictDelivered, At: h.clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	erase("delivered", erasure.Erasure{Sessions: 1, Outcomes: 1})
	for name, reads := range map[string]*store.Store{
		"remembers it": st, "has erased it": other, "never knew it": newStore(t, h),
	} {
		if v, err := reads.ReadByToken(t.Context(), r.Token); !errors.Is(err, sessions.ErrNotFound) {
			t.Errorf("a process that %s reads %+v, %v", name, v, err)
		}
		if v, err := reads.Read(t.Context(), s.ID); !errors.Is(err, sessions.ErrNotFound) {
			t.Errorf("a process that %s reads all of it: %+v, %v", name, v, err)
		}
		if c, err := reads.Complete(t.Context(), s, verified); c != (sessions.Completion{}) ||
			!errors.Is(err, sessions.ErrExpired) && !errors.Is(err, sessions.ErrNotFound) {
			t.Errorf("a process that %s completes it: %+v, %v", name, c, err)
		}
		if _, err := reads.FindReserved(t.Context(), keyed("k")); !errors.Is(err, store.ErrNotStarted) {
			t.Errorf("a process that %s finds its idempotency key: %v", name, err)
		}
	}
	again, err := st.Reserve(t.Context(), keyed("k"))
	if err != nil || again.Session != nil || again.Token == r.Token {
		t.Fatalf("its idempotency key leads to %+v, %v", again, err)
	}
	if next, made, err := st.Commit(t.Context(), again, request); err != nil || !made || next.ID == s.ID {
		t.Errorf("a session with its idempotency key: %+v, %t, %v", next, made, err)
	}
}

// An erased user is no longer one of the users of an identity.
func TestErasedUserDoesNotCount(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	hold := func(user string) (store.IdentityHold, error) {
		b := h.hold(t, user)
		second := b
		second.Identity += ", second slot"
		return b, st.HoldSlot(t.Context(), []store.IdentityHold{b, second})
	}
	for _, user := range []string{"planted-user", "another"} {
		b, err := hold(user)
		if err != nil {
			t.Fatal(err)
		}
		h.complete(t, b.Session, sessions.Verified, sessions.NoReason)
		if err := h.store.Claim(t.Context(), facts.Claim{Session: b.Session, Number: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.store.StoreResult(t.Context(), facts.Result{
			Session: b.Session, Number: 1, Verdict: facts.VerdictDelivered, At: h.clock.Now(),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hold("next"); !errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("a third user: %v", err)
	}
	h.clock.Advance(sessions.Lifetime + time.Second)
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil || e.Identities != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := hold("next"); err != nil {
		t.Errorf("after the erasure: %v", err)
	}
	if _, err := hold("one more"); !errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("beside the one who stays: %v", err)
	}
}

// A list is composed of records from a server that may be behind the store's leader, and so may hold the
// record of an erased user. Here it has returned one before it is removed: no list shows it.
func TestListShowsNoUserErasedWhileItIsRead(t *testing.T) {
	t.Parallel()
	h := start(t)
	ended := func(user string) sessions.ID {
		t.Helper()
		r := request
		r.PlatformUserID = user
		s, _, err := h.store.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		h.complete(t, s.ID, sessions.Canceled, sessions.CanceledReason)
		return s.ID
	}
	erase := func(user string) {
		t.Helper()
		if e, err := h.store.Erase(t.Context(), anybody(user), false); err != nil || e.Sessions != 1 {
			t.Errorf("erase: %+v, %v", e, err)
		}
	}
	ended("an earlier one")
	gone := ended("planted-user")
	expired, _ := h.create(t)
	h.clock.Advance(sessions.Lifetime + time.Second)
	erase("an earlier one")
	once := sync.OnceFunc(func() { erase("planted-user") })
	// the clock is read for the newest session, when all records have been read
	st := newStoreAt(t, h, func() time.Time {
		once()
		return h.clock.Now()
	})
	page, err := st.List(t.Context(), lists.Query{Account: request.Account, Limit: 10})
	if err != nil || !slices.Equal(ids(page), []sessions.ID{expired.ID}) {
		t.Errorf("%s was erased, %s was not; the list: %v, %v", gone, expired.ID, ids(page), err)
	}
}

// A dry run reports what the erasure then finds, and the erasure finds everything that was stored until then:
// servers that are behind the store's leader do not change that.
func TestEraseCountsTheSameDry(t *testing.T) {
	t.Parallel()
	h := start(t)
	late := newStoreAt(t, h, func() time.Time { return h.clock.Now().Add(sessions.Lifetime + time.Second) })
	holder := h.holder(t, h.key)
	const users, canceled, expired = 12, 6, 3
	for user := range users {
		name := fmt.Sprint("user ", user)
		// whose callbacks are due: they stay, and with them the user's holds
		failed := user % 2 * 3
		held := h.hold(t, name) // one that expires, too
		held.Identity = name
		if err := holder.HoldIdentity(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		var writes sync.WaitGroup
		for i := range canceled + failed + expired {
			writes.Go(func() {
				r := request
				r.PlatformUserID = name
				s, _, err := h.store.Create(t.Context(), r)
				if err == nil && i < canceled {
					_, err = h.store.Complete(t.Context(), s, sessions.Outcome{
						State: sessions.Canceled, Reason: sessions.CanceledReason,
					})
				} else if err == nil && i < canceled+failed {
					_, err = h.store.Complete(t.Context(), s, sessions.Outcome{
						State: sessions.Failed, Reason: sessions.Declined,
					})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		writes.Wait()
		want := erasure.Erasure{Sessions: canceled + expired + 1, Outcomes: canceled, Open: failed}
		if failed == 0 {
			want.Identities = 1
		}
		for _, dry := range []bool{true, true, false} {
			if e, err := late.Erase(t.Context(), anybody(name), dry); err != nil || e != want {
				t.Errorf("%s, dry %t: %+v, %v; want %+v", name, dry, e, err, want)
			}
		}
		if e, err := late.Erase(t.Context(), anybody(name), true); err != nil || e != (erasure.Erasure{
			Open: failed,
		}) {
			t.Errorf("%s, afterwards: %+v, %v", name, e, err)
		}
	}
}

// A callback on its way to its receiver is not erased: the user's outcome would be lost.
func TestEraseLeavesWhatIsDue(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	h.complete(t, s.ID, sessions.Verified, sessions.NoReason)
	h.clock.Advance(sessions.Lifetime + time.Second)
	for _, settle := range []bool{false, true} {
		if settle {
			if err := h.store.Claim(t.Context(), facts.Claim{Session: s.ID, Number: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if e, err := h.store.Erase(t.Context(), anybody(s.PlatformUserID), false); err != nil ||
			e.Open != 1 || e.Sessions != 0 {
			t.Errorf("claimed %t: %+v, %v", settle, e, err)
		}
	}
	if _, err := h.store.StoreResult(t.Context(), facts.Result{
		Session: s.ID, Number: 1, Verdict: facts.VerdictDelivered,
	}); err != nil {
		t.Fatal(err)
	}
	if e, err := h.store.Erase(t.Context(), anybody(s.PlatformUserID), false); err != nil || e.Open != 0 ||
		e.Sessions != 1 {
		t.Errorf("delivered: %+v, %v", e, err)
	}
}

// While one session of a user is open, an identity that stands for them elsewhere is erased with the
// sessions that have ended there: when the open one is erased later, no record names it any more.
func TestEraseInOneGuildWhileAnotherIsOpen(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	person := anybody("user")
	person.HoldUsersOf = func(s sessions.Session) []string {
		return []string{s.PlatformUserID + " in " + s.GuildID}
	}
	hold := func(guild string) store.IdentityHold {
		r := request
		r.PlatformUserID, r.GuildID = "user", guild
		s, _, err := st.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		hold := store.IdentityHold{
			Identity: "identity in " + guild, User: "user in " + guild, Session: s.ID, For: time.Hour,
		}
		if err := st.HoldIdentity(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		return hold
	}
	hold("first")
	h.clock.Advance(sessions.Lifetime + time.Second)
	hold("second")
	if e, err := st.Erase(t.Context(), person, false); err != nil || e.Sessions != 1 || e.Open != 1 ||
		e.Identities != 1 {
		t.Errorf("one open: %+v, %v", e, err)
	}
	h.clock.Advance(sessions.Lifetime + time.Second)
	if e, err := st.Erase(t.Context(), person, false); err != nil || e.Sessions != 1 || e.Open != 0 ||
		e.Identities != 1 {
		t.Errorf("none open: %+v, %v", e, err)
	}
}

// ageRecord removes a session's record, as its age does, up to ten minutes before the outcome's.
func (h fixture) ageRecord(t *testing.T, id sessions.ID) {
	t.Helper()
	if err := h.conn.Purge(t.Context(), topology.BucketStream(topology.BucketSessions),
		topology.BucketSubject(topology.BucketSessions, "*."+string(id))); err != nil {
		t.Fatal(err)
	}
}

// A session whose record has aged out can be read while its outcome is stored. It is erased like any other.
func TestEraseFindsAnOutcomeWithoutItsRecord(t *testing.T) {
	h := start(t)
	st := h.holder(t, h.key)
	gone, stays := h.hold(t, "planted-user"), h.hold(t, "another")
	if err := st.HoldIdentity(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	for _, s := range []sessions.ID{gone.Session, stays.Session} {
		h.complete(t, s, sessions.Canceled, sessions.CanceledReason)
	}
	natstest.Publish(t, h.conn, "session.opened."+string(gone.Session), nil)
	h.clock.Advance(sessions.Lifetime + time.Second)
	h.ageRecord(t, gone.Session)
	h.ageRecord(t, stays.Session)
	if v, err := st.Read(t.Context(), gone.Session); err != nil || v.PlatformUserID != "planted-user" {
		t.Fatalf("before: %+v, %v", v, err)
	}
	want := erasure.Erasure{Sessions: 1, Outcomes: 1, Identities: 1}
	for _, dry := range []bool{true, false} {
		if e, err := st.Erase(t.Context(), anybody("planted-user"), dry); err != nil || e != want {
			t.Errorf("dry %t: %+v, %v", dry, e, err)
		}
	}
	if _, err := st.Read(t.Context(), gone.Session); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	if m, err := h.conn.Last(t.Context(), topology.StreamEvents,
		"session.*."+string(gone.Session)); !errors.Is(err, natsconf.ErrNotFound) {
		t.Errorf("an event of it: %v, %v", m, err)
	}
	if v, err := st.Read(t.Context(), stays.Session); err != nil || v.State != sessions.Canceled {
		t.Errorf("somebody else's: %+v, %v", v, err)
	}
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil ||
		e != (erasure.Erasure{}) {
		t.Errorf("a second time: %+v, %v", e, err)
	}
}

// An unreadable outcome may be the person's: if no record shows whose it is, nothing is erased.
func TestEraseRefusesAnOutcomeThatCannotBeRead(t *testing.T) {
	h := start(t)
	strange, _ := h.create(t)
	natstest.Publish(t, h.conn, "completion."+string(strange.ID),
		[]byte(`{"v":6}`))
	nobody := anybody("nobody")
	if _, err := h.store.Erase(t.Context(), nobody, false); err != nil {
		t.Errorf("its record tells whose it is: %v", err)
	}
	h.ageRecord(t, strange.ID)
	if _, err := h.store.Erase(t.Context(), nobody, false); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("nothing tells whose it is: %v", err)
	}
}
