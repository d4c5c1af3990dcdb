package store_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/store"
)

// holder is a store whose process may hold identities.
func (h fixture) holder(t *testing.T, key secretbox.Key) *store.Store {
	t.Helper()
	return store.New(store.Config{
		Conn: h.conn, Key: key, Now: h.clock.Now,
		Pending:     natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, h.conn, topology.StreamCompletions),
		Identities:  natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketIdentities)),
	})
}

func (h fixture) hold(t *testing.T, by string) store.IdentityHold {
	t.Helper()
	r := request
	r.PlatformUserID = by
	s, _, err := h.store.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return store.IdentityHold{Identity: "planted-identity", User: by, Session: s.ID, For: time.Hour}
}

func TestIdentityIsBoundToOneUser(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	first, again, other := h.hold(t, "planted-user"), h.hold(t, "planted-user"), h.hold(t, "another")
	elsewhere := other
	elsewhere.Identity = "another identity"
	for i, c := range []struct {
		hold store.IdentityHold
		want error
	}{{first, nil}, {first, nil}, {again, nil}, {other, store.ErrIdentityHeld}, {elsewhere, nil},
		{again, nil}} {
		if err := st.HoldIdentity(t.Context(), c.hold); !errors.Is(err, c.want) {
			t.Errorf("hold %d: %v, want %v", i, err, c.want)
		}
	}
	h.complete(t, again.Session, sessions.Verified, sessions.NoReason)
	if err := st.HoldIdentity(t.Context(), other); !errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("after the verification: %v", err)
	}
}

// A hold whose session was not verified is void, whatever ended the session.
func TestABindingLapsesWithItsSession(t *testing.T) {
	for name, end := range map[string]func(*testing.T, fixture, sessions.ID){
		"declined": func(t *testing.T, h fixture, id sessions.ID) {
			h.complete(t, id, sessions.Failed, sessions.Declined)
		},
		"canceled": func(t *testing.T, h fixture, id sessions.ID) {
			h.complete(t, id, sessions.Canceled, sessions.CanceledReason)
		},
		"expired": func(_ *testing.T, h fixture, _ sessions.ID) {
			h.clock.Advance(sessions.Lifetime + 2*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			st := h.holder(t, h.key)
			first := h.hold(t, "a")
			if err := st.HoldIdentity(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			end(t, h, first.Session)
			next := h.hold(t, "b")
			if err := st.HoldIdentity(t.Context(), next); err != nil {
				t.Errorf("the identity is still held: %v", err)
			}
			if err := st.HoldIdentity(t.Context(), h.hold(t, "a")); !errors.Is(err,
				store.ErrIdentityHeld) {
				t.Errorf("the new hold does not stand: %v", err)
			}
		})
	}
}

// In the moment of its expiry a session may still be verified.
func TestABindingOutlastsTheExpiryByAMoment(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	if err := st.HoldIdentity(t.Context(), h.hold(t, "a")); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(sessions.Lifetime + time.Second)
	if err := st.HoldIdentity(t.Context(), h.hold(t, "b")); !errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("err = %v", err)
	}
}

func (h fixture) complete(t *testing.T, id sessions.ID, state sessions.State, reason sessions.Reason) {
	t.Helper()
	s, err := h.store.ReadOpen(natstest.Patient(t), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Complete(natstest.Patient(t), s,
		sessions.Outcome{State: state, Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

// Of many users with one identity, on many edges concurrently, one wins.
func TestBindingRaces(t *testing.T) {
	t.Parallel()
	h := start(t)
	edges := []*store.Store{h.holder(t, h.key), h.holder(t, h.key)}
	var holds []store.IdentityHold
	for _, by := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		holds = append(holds, h.hold(t, by))
	}
	var won atomic.Int32
	var all sync.WaitGroup
	for i, hold := range holds {
		all.Go(func() {
			switch err := edges[i%len(edges)].HoldIdentity(t.Context(), hold); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrIdentityHeld):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d users hold one identity", won.Load())
	}
}

// The store reveals neither user nor identity, and forgets in time; another key yields other hashes.
func TestBindingsAreHashesWithALifeOfTheirOwn(t *testing.T) {
	t.Parallel()
	h := start(t)
	hold := h.hold(t, "planted-user")
	if err := h.holder(t, h.key).HoldIdentity(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	if err := h.holder(t, secretbox.NewKey()).HoldIdentity(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	stream := topology.BucketStream(topology.BucketIdentities)
	first, last, err := h.conn.Bounds(t.Context(), stream)
	if err != nil || last-first != 1 {
		t.Fatalf("holds %d to %d, %v; want two: another key's is another", first, last, err)
	}
	m, err := h.conn.Next(t.Context(), stream, ">", first)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{m.Subject, string(m.Data)} {
		if strings.Contains(text, "planted") {
			t.Errorf("the store tells %q", text)
		}
	}
	if life := m.Header.Get("Nats-TTL"); life != "1h0m0s" {
		t.Errorf("life %q", life)
	}
}

func TestRuleIsPartOfTheOutcome(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	o := sessions.Outcome{
		State: sessions.Failed, Reason: sessions.Refused, Rule: failure.RuleAccountAge, Network: "github",
	}
	if _, err := h.store.Complete(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	if v, err := h.store.Read(t.Context(), s.ID); err != nil || v.Outcome != o {
		t.Errorf("outcome %+v, %v", v.Outcome, err)
	}
}

// An identity takes one of an account's slots for each user, in order of arrival, and the same one again; a
// slot whose session was not verified is free.
func TestIdentityIsBoundToFewUsers(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	slots := func(b store.IdentityHold) []store.IdentityHold {
		two := []store.IdentityHold{b, b}
		two[1].Identity += ", second slot"
		return two
	}
	ann, bob, cid := h.hold(t, "ann"), h.hold(t, "bob"), h.hold(t, "cid")
	for i, c := range []struct {
		of   store.IdentityHold
		want error
	}{{ann, nil}, {ann, nil}, {bob, nil}, {cid, store.ErrIdentityHeld}, {bob, nil}, {ann, nil}} {
		if err := st.HoldSlot(t.Context(), slots(c.of)); !errors.Is(err, c.want) {
			t.Errorf("hold %d: %v, want %v", i, err, c.want)
		}
	}
	h.complete(t, ann.Session, sessions.Failed, sessions.Declined)
	h.complete(t, bob.Session, sessions.Verified, sessions.NoReason)
	if err := st.HoldSlot(t.Context(), slots(h.hold(t, "bob"))); err != nil {
		t.Errorf("bob again: %v", err)
	}
	if err := st.HoldSlot(t.Context(), slots(cid)); err != nil {
		t.Errorf("ann's slot is not free, or bob took it: %v", err)
	}
	if err := st.HoldSlot(t.Context(), slots(h.hold(t, "ann"))); !errors.Is(err,
		store.ErrIdentityHeld) {
		t.Errorf("a third: %v", err)
	}
}
