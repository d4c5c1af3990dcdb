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

// binder is a store whose process may bind identities.
func (h fixture) binder(t *testing.T, key secretbox.Key) *store.Store {
	t.Helper()
	return store.New(store.Config{
		Conn: h.conn, Key: key, Now: h.clock.Now,
		Pending:     natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, h.conn, topology.StreamCompletions),
		Identities:  natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketIdentities)),
	})
}

func (h fixture) binding(t *testing.T, by string) store.IdentityBinding {
	t.Helper()
	r := request
	r.PlatformUserID = by
	s, _, err := h.store.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return store.IdentityBinding{Identity: "planted-identity", User: by, Session: s.ID, For: time.Hour}
}

func TestIdentityIsBoundToOneUser(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.binder(t, h.key)
	first, again, other := h.binding(t, "planted-user"), h.binding(t, "planted-user"), h.binding(t, "another")
	elsewhere := other
	elsewhere.Identity = "another identity"
	for i, c := range []struct {
		hold store.IdentityBinding
		want error
	}{{first, nil}, {first, nil}, {again, nil}, {other, store.ErrIdentityBound}, {elsewhere, nil},
		{again, nil}} {
		if err := st.BindIdentity(t.Context(), c.hold); !errors.Is(err, c.want) {
			t.Errorf("hold %d: %v, want %v", i, err, c.want)
		}
	}
	h.complete(t, again.Session, sessions.Verified, sessions.NoReason)
	if err := st.BindIdentity(t.Context(), other); !errors.Is(err, store.ErrIdentityBound) {
		t.Errorf("after the verification: %v", err)
	}
}

// A binding whose session was not verified is void, whatever ended the session.
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
			st := h.binder(t, h.key)
			first := h.binding(t, "a")
			if err := st.BindIdentity(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			end(t, h, first.Session)
			next := h.binding(t, "b")
			if err := st.BindIdentity(t.Context(), next); err != nil {
				t.Errorf("the identity is still held: %v", err)
			}
			if err := st.BindIdentity(t.Context(), h.binding(t, "a")); !errors.Is(err,
				store.ErrIdentityBound) {
				t.Errorf("the new hold does not stand: %v", err)
			}
		})
	}
}

// In the moment of its expiry a session may still be verified.
func TestABindingOutlastsTheExpiryByAMoment(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.binder(t, h.key)
	if err := st.BindIdentity(t.Context(), h.binding(t, "a")); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(sessions.Lifetime + time.Second)
	if err := st.BindIdentity(t.Context(), h.binding(t, "b")); !errors.Is(err, store.ErrIdentityBound) {
		t.Errorf("err = %v", err)
	}
}

func (h fixture) complete(t *testing.T, id sessions.ID, state sessions.State, reason sessions.Reason) {
	t.Helper()
	s, err := h.store.ReadOpen(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Complete(t.Context(), s,
		sessions.Outcome{State: state, Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

// Of many users with one identity, on many edges concurrently, one wins.
func TestBindingRaces(t *testing.T) {
	t.Parallel()
	h := start(t)
	edges := []*store.Store{h.binder(t, h.key), h.binder(t, h.key)}
	var holds []store.IdentityBinding
	for _, by := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		holds = append(holds, h.binding(t, by))
	}
	var won atomic.Int32
	var all sync.WaitGroup
	for i, hold := range holds {
		all.Go(func() {
			switch err := edges[i%len(edges)].BindIdentity(t.Context(), hold); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrIdentityBound):
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
	hold := h.binding(t, "planted-user")
	if err := h.binder(t, h.key).BindIdentity(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	if err := h.binder(t, secretbox.NewKey()).BindIdentity(t.Context(), hold); err != nil {
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
	st := h.binder(t, h.key)
	slots := func(b store.IdentityBinding) []store.IdentityBinding {
		two := []store.IdentityBinding{b, b}
		two[1].Identity += ", second slot"
		return two
	}
	ann, bob, cid := h.binding(t, "ann"), h.binding(t, "bob"), h.binding(t, "cid")
	for i, c := range []struct {
		of   store.IdentityBinding
		want error
	}{{ann, nil}, {ann, nil}, {bob, nil}, {cid, store.ErrIdentityBound}, {bob, nil}, {ann, nil}} {
		if err := st.BindSlot(t.Context(), slots(c.of)); !errors.Is(err, c.want) {
			t.Errorf("binding %d: %v, want %v", i, err, c.want)
		}
	}
	h.complete(t, ann.Session, sessions.Failed, sessions.Declined)
	h.complete(t, bob.Session, sessions.Verified, sessions.NoReason)
	if err := st.BindSlot(t.Context(), slots(h.binding(t, "bob"))); err != nil {
		t.Errorf("bob again: %v", err)
	}
	if err := st.BindSlot(t.Context(), slots(cid)); err != nil {
		t.Errorf("ann's slot is not free, or bob took it: %v", err)
	}
	if err := st.BindSlot(t.Context(), slots(h.binding(t, "ann"))); !errors.Is(err,
		store.ErrIdentityBound) {
		t.Errorf("a third: %v", err)
	}
}
