package accountstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/natsconf/natstest"
)

var (
	ada  = account.Member{Network: "dev", Subject: "ada", Name: "Ada", Role: access.RoleOwner}
	bob  = account.Member{Network: "dev", Subject: "bob", Name: "Bob", Role: access.RoleDeveloper}
	cleo = account.Member{Network: "dev", Subject: "cleo", Name: "Cleo", Role: access.RoleViewer}
)

func err2[T any](_ T, err error) error         { return err }
func err3[T, U any](_ T, _ U, err error) error { return err }

// The store refuses what the role does not include, by the stored account, whatever the caller claims.
func TestStoreRefusesWhatTheRoleMayNot(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	for _, m := range []account.Member{bob, cleo} {
		if _, err := h.store.AddMember(t.Context(), ada.Actor(), a.ID, m); err != nil {
			t.Fatal(err)
		}
	}
	_, k := h.key(t, a, account.KeyOptions{})
	// the same subject of another network
	stranger := account.Member{Network: "other", Subject: "ada", Role: access.RoleOwner}.Actor()
	// the role that a caller claims is ignored
	liar := cleo.Actor()
	liar.Role = access.RoleOwner
	boss := ada.Actor()
	boss.Role = access.RoleOwner
	for what, do := range map[string]func(access.Actor) error{
		"d create a key": func(by access.Actor) error {
			return fourth(h.store.CreateKey(t.Context(), by, a.ID, account.KeyOptions{}))
		},
		"d roll a key": func(by access.Actor) error {
			return fourth(h.store.RollKey(t.Context(), by, a.ID, k.ID, time.Hour))
		},
		"d revoke a key": func(by access.Actor) error {
			return third(h.store.RevokeKey(t.Context(), by, a.ID, k.ID))
		},
		"d reveal the secrets": func(by access.Actor) error {
			return err2(h.store.RevealSecrets(t.Context(), by, a.ID))
		},
		"d rotate the secret": func(by access.Actor) error {
			return err2(h.store.RotateSecret(t.Context(), by, a.ID, 0))
		},
		"d end the rotation": func(by access.Actor) error {
			return err2(h.store.EndRotation(t.Context(), by, a.ID))
		},
		"o add a member": func(by access.Actor) error {
			return err2(h.store.AddMember(t.Context(), by, a.ID, account.Member{
				Network: "n", Subject: "me", Role: access.RoleOwner,
			}))
		},
		"o raise oneself": func(by access.Actor) error {
			return err2(h.store.SetRole(t.Context(), by, a.ID, "dev", "cleo", access.RoleOwner))
		},
		"o remove another": func(by access.Actor) error {
			return err2(h.store.RemoveMember(t.Context(), by, a.ID, "dev", "ada"))
		},
		"o invite": func(by access.Actor) error {
			return err3(h.store.CreateInvite(t.Context(), by, a.ID, access.RoleOwner, ""))
		},
		"o withdraw": func(by access.Actor) error {
			return err2(h.store.WithdrawInvite(t.Context(), by, a.ID, "inv_x"))
		},
		"- set the quota": func(by access.Actor) error {
			return h.store.SetQuota(t.Context(), by, a.ID, 1<<40)
		},
		"- make login link": func(by access.Actor) error {
			return err3(h.store.LoginLink(t.Context(), by, a.ID, access.RoleOwner))
		},
	} {
		refused := []access.Actor{
			stranger, liar, k.Actor(), {}, cleo.Actor(), {
				Kind: access.ActorLink, ID: "link_x", Role: access.RoleViewer,
			},
		}
		switch what[:1] {
		case "o":
			refused = append(refused, bob.Actor(), access.Actor{
				Kind: access.ActorLink, ID: "link_x", Role: access.RoleDeveloper,
			})
		case "-":
			refused = append(refused, bob.Actor(), boss, access.Actor{
				Kind: access.ActorLink, ID: "link_x", Role: access.RoleOwner,
			})
		}
		for _, by := range refused {
			if err := do(by); !errors.Is(err, access.ErrNotAllowed) {
				t.Errorf("%s, by %s: %v", what, by, err)
			}
		}
	}
	got, _ := h.store.AccountByName(t.Context(), "a")
	if len(got.Members) != 3 || len(got.Invites) != 0 || got.Quota != 0 || len(got.Secrets) != 1 ||
		got.Secrets[0].Value != a.Secrets[0].Value {
		t.Errorf("after all refusals: %+v", got)
	}
}

func TestTheLastOwnerStays(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	if err := err2(h.store.RemoveMember(t.Context(), ada.Actor(), a.ID, "dev", "ada")); !errors.Is(err,
		account.ErrLastOwner) {
		t.Errorf("leaving as the last owner: %v", err)
	}
	if err := err2(h.store.SetRole(t.Context(), operator, a.ID, "dev", "ada",
		access.RoleViewer)); !errors.Is(err, account.ErrLastOwner) {
		t.Errorf("demoting the last owner: %v", err)
	}
	if err := err2(h.store.AddMember(t.Context(), ada.Actor(), a.ID, bob)); err != nil {
		t.Fatal(err)
	}
	if err := err2(h.store.AddMember(t.Context(), ada.Actor(), a.ID, bob)); !errors.Is(err,
		account.ErrAlreadyMember) {
		t.Errorf("adding twice: %v", err)
	}
	if err := err2(h.store.SetRole(t.Context(), ada.Actor(), a.ID, "dev", "bob",
		access.RoleOwner)); err != nil {
		t.Fatal(err)
	}
	// Two owners leave at once, on two edges: one stays.
	edges := h.edges(t)
	for range 10 {
		wins := race(t, 2, func(i int) error {
			m := []account.Member{ada, bob}[i]
			return err2(edges[i].RemoveMember(t.Context(), m.Actor(), a.ID, m.Network, m.Subject))
		}, account.ErrLastOwner)
		got, err := h.store.AccountByName(t.Context(), "a")
		if err != nil || wins != 1 || len(got.Members) != 1 || got.Members[0].Role != access.RoleOwner {
			t.Fatalf("%d left, %+v stay, %v", wins, got.Members, err)
		}
		gone := ada
		if got.Members[0].Subject == "ada" {
			gone = bob
		}
		gone.Role = access.RoleOwner
		if err := err2(h.store.AddMember(t.Context(), operator, a.ID, gone)); err != nil {
			t.Fatal(err)
		}
	}
}

// An account that an operator made has no owner; that is no reason to refuse other changes.
func TestAccountWithoutOwner(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	for _, do := range []func() (account.Account, error){
		func() (account.Account, error) { return h.store.AddMember(t.Context(), operator, a.ID, bob) },
		func() (account.Account, error) {
			return h.store.SetRole(t.Context(), operator, a.ID, "dev", "bob", access.RoleViewer)
		},
		func() (account.Account, error) {
			return h.store.SetRole(t.Context(), operator, a.ID, "dev", "bob", access.RoleViewer)
		},
		func() (account.Account, error) {
			return h.store.RemoveMember(t.Context(), bob.Actor(), a.ID, "dev", "bob")
		},
	} {
		if _, err := do(); err != nil {
			t.Error(err)
		}
	}
	if err := err2(h.store.RemoveMember(t.Context(), operator, a.ID, "dev", "bob")); !errors.Is(err,
		account.ErrNoMember) {
		t.Errorf("removing nobody: %v", err)
	}
	if err := err2(h.store.SetRole(t.Context(), operator, a.ID, "dev", "bob",
		access.RoleOwner)); !errors.Is(err, account.ErrNoMember) {
		t.Errorf("a role for nobody: %v", err)
	}
}

func TestAccountsOfAMember(t *testing.T) {
	t.Parallel()
	h := start(t)
	b, a := h.account(t, "b", ada), h.account(t, "a", ada)
	h.account(t, "c", bob)
	natstest.Await(t, "both accounts", func() bool { return len(h.mirror.AccountsOf("dev", "ada")) == 2 })
	if of := h.mirror.AccountsOf("dev", "ada"); of[0].ID != a.ID || of[1].ID != b.ID {
		t.Errorf("accounts: %+v", of)
	}
	if len(h.mirror.AccountsOf("other", "ada")) != 0 {
		t.Error("the same subject of another network is somebody else")
	}
	if err := err2(h.store.AddMember(t.Context(), operator, b.ID, account.Member{
		Network: "dev", Subject: "bob", Role: access.RoleOwner,
	})); err != nil {
		t.Fatal(err)
	}
	if err := err2(h.store.RemoveMember(t.Context(), ada.Actor(), b.ID, "dev", "ada")); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "one account is left", func() bool {
		return len(h.mirror.AccountsOf("dev", "ada")) == 1
	})
}

// Creating an account with a name in use does not lead into the existing account.
func TestNameThatIsTaken(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.account(t, "Harbor Guild", ada)
	edges := h.edges(t)
	wins := race(t, 8, func(i int) error {
		return err2(edges[i%4].CreateAccount(t.Context(), bob.Actor(), "New Guild", account.Member{
			Network: "dev", Subject: fmt.Sprint(i),
		}))
	}, account.ErrAccountExists)
	if wins != 1 {
		t.Errorf("%d made the same account", wins)
	}
	if err := err2(h.store.CreateAccount(t.Context(), bob.Actor(), "Harbor Guild", bob)); !errors.Is(err,
		account.ErrAccountExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	if got, _ := h.store.AccountByName(t.Context(), "Harbor Guild"); len(got.Members) != 1 ||
		got.Members[0].Subject != "ada" {
		t.Errorf("members: %+v", got.Members)
	}
}

func TestInvites(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	token, i, err := h.store.CreateInvite(t.Context(), ada.Actor(), a.ID, access.RoleDeveloper,
		"Bob in the office")
	if err != nil {
		t.Fatal(err)
	}
	if got, seen, err := h.store.Invite(t.Context(), token); err != nil || got.ID != a.ID ||
		seen.ID != i.ID || seen.By != "Ada" || seen.For != "Bob in the office" {
		t.Errorf("looking at the invite: %+v, %v", seen, err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), token, ada)); !errors.Is(err, account.ErrAlreadyMember) {
		t.Errorf("a member accepts: %v", err)
	}
	// Eight people with one link, at once.
	edges := h.edges(t)
	wins := race(t, 8, func(i int) error {
		return err2(edges[i%4].AcceptInvite(t.Context(), token, account.Member{
			Network: "dev", Subject: fmt.Sprint("guest", i), Role: access.RoleOwner,
		}))
	}, account.ErrNoInvite)
	got, _ := h.store.AccountByName(t.Context(), "a")
	if wins != 1 || len(got.Members) != 2 || got.Members[1].Role != access.RoleDeveloper ||
		len(got.Invites) != 0 {
		t.Errorf("%d got in: %+v, open: %+v", wins, got.Members, got.Invites)
	}
	for what, bad := range map[string]string{
		"used": token, "cut": token[:len(token)-1], "empty": "",
		"no account": strings.TrimPrefix(token, a.ID), "a star": "acc_*" + strings.TrimPrefix(token, a.ID),
		"another account": h.account(t, "b").ID + strings.TrimPrefix(token, a.ID),
		"unknown account": "acc_aaaaaaaaaaaaaaaaaaaa" + strings.TrimPrefix(token, a.ID),
	} {
		if err := err2(h.store.AcceptInvite(t.Context(), bad, cleo)); !errors.Is(err, account.ErrNoInvite) {
			t.Errorf("%s: %v", what, err)
		}
		if err := err3(h.store.Invite(t.Context(), bad)); !errors.Is(err, account.ErrNoInvite) {
			t.Errorf("looking at %s: %v", what, err)
		}
	}
}

func TestInvitesEnd(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	token, i, err := h.store.CreateInvite(t.Context(), ada.Actor(), a.ID, access.RoleViewer, "")
	if err != nil {
		t.Fatal(err)
	}
	h.at(i.ExpiresAt)
	if err := err2(h.store.AcceptInvite(t.Context(), token, bob)); !errors.Is(err, account.ErrInviteExpired) {
		t.Errorf("an expired invite: %v", err)
	}
	h.at(i.ExpiresAt.Add(-time.Millisecond))
	if _, err := h.store.WithdrawInvite(t.Context(), ada.Actor(), a.ID, i.ID); err != nil {
		t.Fatal(err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), token, bob)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("a withdrawn invite: %v", err)
	}
	if err := err2(h.store.WithdrawInvite(t.Context(), ada.Actor(), a.ID, i.ID)); !errors.Is(err,
		account.ErrNoInvite) {
		t.Errorf("withdrawing twice: %v", err)
	}
	for field, err := range map[string]error{
		"role":   err3(h.store.CreateInvite(t.Context(), ada.Actor(), a.ID, "king", "")),
		"for":    err3(h.store.CreateInvite(t.Context(), ada.Actor(), a.ID, access.RoleViewer, "a\nb")),
		"member": err2(h.store.AcceptInvite(t.Context(), token, account.Member{Network: "dev"})),
	} {
		if input, ok := errors.AsType[*input.Error](err); !ok || input.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// New identities can be distinguished by eye. Nothing is asked of one that is named to be removed: it may be
// stored from before.
func TestNewIdentitiesHideNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	for _, subject := range []string{"bob\x00", "bob\u200b", "bob\u2028", "bob\xff"} {
		m := bob
		m.Subject = subject
		for what, err := range map[string]error{
			"member": err2(h.store.AddMember(t.Context(), operator, a.ID, m)),
			"grant":  err2(h.store.GrantOperator(t.Context(), operator, m.Network, subject)),
		} {
			input, ok := errors.AsType[*input.Error](err)
			if !ok || !strings.Contains(input.Detail, "invisible") {
				t.Errorf("%s of %q: %v", what, subject, err)
			}
		}
		if err := err2(h.store.RemoveMember(t.Context(), operator, a.ID, m.Network, subject)); !errors.Is(err,
			account.ErrNoMember) {
			t.Errorf("removing %q: %v", subject, err)
		}
		if err := h.store.RevokeOperator(t.Context(), operator, m.Network, subject); !errors.Is(err,
			grant.ErrNoOperator) {
			t.Errorf("revoking %q: %v", subject, err)
		}
	}
}

// A member whom an older build admitted may have a subject that no form, shell or terminal carries as it is:
// they are named by their address. It names nobody else, and knowing it gives no right.
func TestEveryMemberIsNamedByAnAddress(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, b := h.account(t, "a", ada, cleo), h.account(t, "b")
	odd := account.Member{Network: "dev", Subject: "cleo\r\n\x00\u202ex", Role: access.RoleOwner}
	h.rewrite(t, a, "members", func(all []any) []any {
		all[1].(map[string]any)["subject"] = odd.Subject
		return all
	})
	address := odd.Identity().Address()
	elsewhere := access.Identity{Network: "other", Subject: odd.Subject}.Address()
	for what, got := range map[string]error{
		"another network's": err2(h.store.RemoveMember(t.Context(), operator, a.ID, "", elsewhere)),
		"a part":            err2(h.store.RemoveMember(t.Context(), operator, a.ID, "", address[:23])),
		"with a network":    err2(h.store.RemoveMember(t.Context(), operator, a.ID, "dev", address)),
		"of nobody": err2(h.store.MoveMember(t.Context(), operator, a.ID, b.ID, access.Addressed(elsewhere),
			"")),
	} {
		if !errors.Is(got, account.ErrNoMember) {
			t.Errorf("%s: %v, want %v", what, got, account.ErrNoMember)
		}
	}
	if _, err := h.store.SetRole(t.Context(), ada.Actor(), a.ID, "", address, access.RoleViewer); err != nil {
		t.Fatal(err)
	}
	adas := ada.Identity().Address()
	if err := err2(h.store.RemoveMember(t.Context(), odd.Actor(), a.ID, "", adas)); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Errorf("a viewer removes an owner: %v", err)
	}
	now, err := h.store.RemoveMember(t.Context(), odd.Actor(), a.ID, "", address)
	if err != nil || len(now.Members) != 1 {
		t.Errorf("they leave: %+v, %v", now.Members, err)
	}
	records := h.all(t, a.ID, 100)
	if r := records[len(records)-1]; r.What != audit.MemberRemoved || r.On != odd.Identity().String() {
		t.Errorf("the log names %q in %s", r.On, r.What)
	}
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, cleo); err != nil {
		t.Fatal(err)
	}
	m, err := h.store.MoveMember(t.Context(), operator, a.ID, b.ID, access.Addressed(adas), "")
	if !errors.Is(err, account.ErrLastOwner) {
		t.Errorf("the last owner moves: %+v, %v", m, err)
	}
	who := access.Addressed(cleo.Identity().Address())
	if m, err = h.store.MoveMember(t.Context(), operator, a.ID, b.ID, who, ""); err != nil ||
		m.Identity() != cleo.Identity() {
		t.Errorf("moved: %+v, %v", m, err)
	}
}

func TestAccountIsFull(t *testing.T) {
	t.Parallel()
	h := start(t)
	owners := make([]account.Member, 200)
	for i := range owners {
		owners[i] = account.Member{Network: "dev", Subject: fmt.Sprint(i), Name: strings.Repeat("ü\x00", 500)}
	}
	a := h.account(t, "a", owners...)
	if err := err3(h.store.CreateInvite(t.Context(), operator, a.ID, access.RoleViewer, "")); !errors.Is(err,
		account.ErrFull) {
		t.Errorf("an invite into a full account: %v", err)
	}
	if err := err2(h.store.AddMember(t.Context(), operator, a.ID, ada)); !errors.Is(err, account.ErrFull) {
		t.Errorf("a member for a full account: %v", err)
	}
	if name := a.Members[0].Name; len(name) > 128 || strings.Trim(name, "ü") != "" || name == "" {
		t.Errorf("name = %q", name)
	}
}
