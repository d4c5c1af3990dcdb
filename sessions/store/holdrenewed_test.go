package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

// A verified user keeps the identity, however a later session of theirs ends: otherwise they could lend it to
// others by declining in one window what they complete in another.
func TestABindingOutlastsALaterSessionOfItsUser(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, fixture, sessions.ID){
		"declined": func(t *testing.T, h fixture, id sessions.ID) {
			h.complete(t, id, sessions.Failed, sessions.Declined)
		},
		"expired": func(_ *testing.T, h fixture, _ sessions.ID) {
			h.clock.Advance(sessions.Lifetime + 2*time.Minute)
		},
	} {
		for order, verifyFirst := range map[string]bool{
			"verified before": true, "verified meanwhile": false,
		} {
			t.Run(name+", "+order, func(t *testing.T) {
				h := start(t)
				st := h.holder(t, h.key)
				good, later := h.hold(t, "a"), h.hold(t, "a")
				verify := func() { h.complete(t, good.Session, sessions.Verified, sessions.NoReason) }
				if err := st.HoldIdentity(t.Context(), good); err != nil {
					t.Fatal(err)
				}
				if verifyFirst {
					verify()
				}
				if err := st.HoldIdentity(t.Context(), later); err != nil {
					t.Fatal(err)
				}
				if !verifyFirst {
					verify()
				}
				lose(t, h, later.Session)
				if err := st.HoldIdentity(t.Context(), h.hold(t, "b")); !errors.Is(err,
					store.ErrIdentityHeld) {
					t.Errorf("another user got the identity: %v", err)
				}
			})
		}
	}
}

// However many sessions of its user end without a verification, a hold lapses with the last of them.
func TestABindingOfManyLapsedSessionsLapses(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	var ids []sessions.ID
	for range 6 {
		hold := h.hold(t, "a")
		if err := st.HoldIdentity(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, hold.Session)
	}
	other := h.hold(t, "b")
	for _, id := range ids {
		if err := st.HoldIdentity(t.Context(), other); !errors.Is(err, store.ErrIdentityHeld) {
			t.Fatalf("before the last has ended: %v", err)
		}
		h.complete(t, id, sessions.Failed, sessions.Declined)
	}
	if err := st.HoldIdentity(t.Context(), other); err != nil {
		t.Errorf("after the last has ended: %v", err)
	}
}

// lastHold returns the newest message about an identity: what holds it, or that it is free.
func (h fixture) lastHold(t *testing.T) *jetstream.RawStreamMsg {
	t.Helper()
	stream := topology.BucketStream(topology.BucketIdentities)
	_, last, err := h.conn.Bounds(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.conn.Next(t.Context(), stream, ">", last)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A sign-in that read its session before that ended, and its user was erased, holds no identity.
func TestNothingIsHeldAfterTheErasure(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	late := h.hold(t, "planted-user")
	h.complete(t, late.Session, sessions.Canceled, sessions.CanceledReason)
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil || e.Sessions != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := st.HoldIdentity(t.Context(), late); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("it holds an identity: %v", err)
	}
	if m := h.lastHold(t); !natsconf.IsMarker(m.Header) {
		t.Errorf("the identity is held: %s", m.Data)
	}
	if err := st.HoldIdentity(t.Context(), h.hold(t, "another")); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// The hold of another session of the user, which that erasure left, outlasts such a sign-in.
func TestHoldOfAnOpenSessionOutlastsTheErasureOfAnother(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	late, open := h.hold(t, "planted-user"), h.hold(t, "planted-user")
	if err := st.HoldIdentity(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	h.complete(t, late.Session, sessions.Canceled, sessions.CanceledReason)
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil || e.Sessions != 1 ||
		e.Open != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := st.HoldIdentity(t.Context(), late); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("late: %v", err)
	}
	if err := st.HoldIdentity(t.Context(), h.hold(t, "another")); !errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("another user: %v", err)
	}
}

// A hold that is stored while its user is being erased, after the erasure has read the holds, goes, too.
func TestHoldOfTheMomentOfItsErasureGoes(t *testing.T) {
	t.Parallel()
	h := start(t)
	holder := h.holder(t, h.key)
	hold := h.hold(t, "planted-user")
	if err := holder.HoldIdentity(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	h.complete(t, hold.Session, sessions.Canceled, sessions.CanceledReason)
	again := false
	st := newStoreAt(t, h, func() time.Time { // the clock is read for the note that a session is erased
		if !again && natsconf.IsMarker(h.lastHold(t).Header) {
			again = true
			if err := holder.HoldIdentity(t.Context(), hold); err != nil {
				t.Error(err)
			}
		}
		return h.clock.Now()
	})
	e, err := st.Erase(t.Context(), anybody("planted-user"), false)
	if err != nil || !again || e.Identities != 2 {
		t.Errorf("held again %t: %+v, %v", again, e, err)
	}
	if m := h.lastHold(t); !natsconf.IsMarker(m.Header) {
		t.Errorf("the identity is held: %s", m.Data)
	}
}
