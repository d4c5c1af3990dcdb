package store_test

import (
	"errors"
	"testing"
	"time"

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
