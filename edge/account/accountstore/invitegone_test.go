package accountstore_test

import (
	"errors"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
)

// A member who loses the right to invite cannot return with an invite made before.
func TestInvitesGoWithTheRightToInvite(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(h harness, id string) error{
		"removed": func(h harness, id string) error {
			return err2(h.store.RemoveMember(t.Context(), ada.Actor(), id, "dev", "bob"))
		},
		"another role": func(h harness, id string) error {
			return err2(h.store.SetRole(t.Context(), ada.Actor(), id, "dev", "bob", access.RoleDeveloper))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			a := h.account(t, "a", ada)
			bob := account.Member{Network: "dev", Subject: "bob", Name: "Ada", Role: access.RoleOwner}
			if err := err2(h.store.AddMember(t.Context(), ada.Actor(), a.ID, bob)); err != nil {
				t.Fatal(err)
			}
			his, _, err := h.store.CreateInvite(t.Context(), bob.Actor(), a.ID, access.RoleOwner, "")
			if err != nil {
				t.Fatal(err)
			}
			hers, _, err := h.store.CreateInvite(t.Context(), ada.Actor(), a.ID, access.RoleViewer, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := lose(h, a.ID); err != nil {
				t.Fatal(err)
			}
			again := account.Member{Network: "dev", Subject: "bob's other login"}
			if err := err2(h.store.AcceptInvite(t.Context(), his, again)); !errors.Is(err,
				account.ErrNoInvite) {
				t.Errorf("an invite of who may not invite any more: %v", err)
			}
			if err := err2(h.store.AcceptInvite(t.Context(), hers, cleo)); err != nil {
				t.Errorf("another's invite: %v", err)
			}
		})
	}
}
