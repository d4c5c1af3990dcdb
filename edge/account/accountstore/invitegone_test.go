package accountstore_test

import (
	"errors"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
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

// makers are those whose right to invite ends without a write to the account, and how it ends.
var makers = map[string]func(t *testing.T, h harness, a account.Account) (by access.Actor, end func() error){
	"an operator": func(t *testing.T, h harness, _ account.Account) (access.Actor, func() error) {
		const subject = "olga:1" // a colon ends the network's namespace, not the subject
		if _, err := h.store.GrantOperator(t.Context(), operator, "dev", subject); err != nil {
			t.Fatal(err)
		}
		return access.OperatorWith("dev", subject, "Olga"), func() error {
			return h.store.RevokeOperator(t.Context(), operator, "dev", subject)
		}
	},
	"an operator's login link": func(t *testing.T, h harness, _ account.Account) (access.Actor,
		func() error) {
		_, l, err := h.store.OperatorLink(t.Context(), operator)
		if err != nil {
			t.Fatal(err)
		}
		return l.Actor(), func() error { return h.store.RevokeOperatorLink(t.Context(), operator, l.ID) }
	},
	"a token, in an invite for a week": func(t *testing.T, h harness, a account.Account) (access.Actor,
		func() error) {
		until := time.Now().Add(time.Hour)
		_, g, err := h.store.CreateToken(t.Context(), operator, "deploy",
			[]grant.Scope{grant.MembersWrite}, until)
		if err != nil {
			t.Fatal(err)
		}
		return access.OperatorToken(g.Token, g.Name), func() error {
			h.rewriteInvite(t, a, func(invite map[string]any) {
				invite["expires_at"] = until.Add(account.InviteLifetime)
			})
			h.at(until)
			return nil
		}
	},
	"a member who is not there": func(t *testing.T, h harness, a account.Account) (access.Actor,
		func() error) {
		return secondOwner(t, h, a), func() error {
			h.rewrite(t, a, "members", func(all []any) []any { return all[:1] })
			return nil
		}
	},
	"a member with another role": func(t *testing.T, h harness, a account.Account) (access.Actor,
		func() error) {
		return secondOwner(t, h, a), func() error {
			h.rewrite(t, a, "members", func(all []any) []any {
				all[1].(map[string]any)["role"] = access.RoleDeveloper
				return all
			})
			return nil
		}
	},
}

// secondOwner adds a second owner to an account.
func secondOwner(t *testing.T, h harness, a account.Account) access.Actor {
	t.Helper()
	owner := account.Member{Network: "dev", Subject: "operator:dev:olga", Role: access.RoleOwner}
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, owner); err != nil {
		t.Fatal(err)
	}
	return owner.Actor()
}

// An invite is judged by its maker at each use, whatever the account's record holds: it lets somebody in
// while the maker may invite, and nobody after that. No list shows it any more, and it takes nobody's place.
func TestInvitesAreJudgedByTheirMaker(t *testing.T) {
	t.Parallel()
	for name, of := range makers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			a := h.account(t, "a", ada)
			by, end := of(t, h, a)
			theirs, _ := h.invite(t, by, a)
			hers, i := h.invite(t, ada.Actor(), a)
			open := func(want int) {
				t.Helper()
				now, err := h.store.Account(t.Context(), a.ID)
				all := h.store.OpenInvites(t.Context(), now)
				if err != nil || len(all) != want || all[want-1].ID != i.ID {
					t.Errorf("the open invites are %+v, want %d: %v", all, want, err)
				}
			}
			if err := err3(h.store.Invite(t.Context(), theirs)); err != nil {
				t.Errorf("while the maker may: %v", err)
			}
			open(2)
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if err := err3(h.store.Invite(t.Context(), theirs)); !errors.Is(err, account.ErrNoInvite) {
				t.Errorf("shown: %v", err)
			}
			stranger := account.Member{Network: "dev", Subject: "mallory"}
			if err := err2(h.store.AcceptInvite(t.Context(), theirs, stranger)); !errors.Is(err,
				account.ErrNoInvite) {
				t.Errorf("accepted: %v", err)
			}
			open(1)
			if err := err2(h.store.AcceptInvite(t.Context(), hers, cleo)); err != nil {
				t.Errorf("another's invite: %v", err)
			}
			h.invite(t, operator, a)
			if now, err := h.store.Account(t.Context(), a.ID); err != nil || len(now.Invites) != 1 {
				t.Errorf("stored are %+v, %v; want the newest alone", now.Invites, err)
			}
		})
	}
}
