package accountstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// link creates a login link into an account and returns the actor who uses it.
func (h harness) link(t *testing.T, a account.Account, role access.Role) grant.Link {
	t.Helper()
	_, l, err := h.store.LoginLink(natstest.Patient(t), operator, a.ID, role)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (h harness) invite(t *testing.T, by access.Actor, a account.Account) (token string, i account.Invite) {
	t.Helper()
	token, i, err := h.store.CreateInvite(natstest.Patient(t), by, a.ID, access.RoleOwner, "")
	if err != nil {
		t.Fatal(err)
	}
	return token, i
}

// An invite that was made under a login link lets nobody in once the link was revoked, or its time is over;
// others stay valid.
func TestInvitesGoWithTheirLoginLink(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	revoked, over := h.link(t, a, access.RoleOwner), h.link(t, a, access.RoleOwner)
	theirs, i := h.invite(t, revoked.Actor(), a)
	late, _ := h.invite(t, over.Actor(), a)
	hers, _ := h.invite(t, ada.Actor(), a)
	if end := revoked.ExpiresAt.Add(topology.LoginTTL); !i.ExpiresAt.Equal(end) {
		t.Errorf("the invite ends at %s, the link at %s", i.ExpiresAt, end)
	}
	if _, got, err := h.store.Invite(t.Context(), theirs); err != nil || got.ID != i.ID {
		t.Errorf("while the link holds: %+v, %v", got, err)
	}
	if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, revoked.ID); err != nil {
		t.Fatal(err)
	}
	stranger := account.Member{Network: "dev", Subject: "mallory"}
	if err := err3(h.store.Invite(t.Context(), theirs)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("shown after the revocation: %v", err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), theirs, stranger)); !errors.Is(err,
		account.ErrNoInvite) {
		t.Errorf("accepted after the revocation: %v", err)
	}
	if now, err := h.store.Account(t.Context(), a.ID); err != nil || len(now.Invites) != 2 {
		t.Errorf("%d invites are listed, want the two that still hold: %v", len(now.Invites), err)
	}
	h.at(over.ExpiresAt.Add(topology.LoginTTL))
	if err := err2(h.store.AcceptInvite(t.Context(), late, stranger)); !errors.Is(err,
		account.ErrInviteExpired) {
		t.Errorf("accepted after the link's time: %v", err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), hers, cleo)); err != nil {
		t.Errorf("a member's invite: %v", err)
	}
}

// An invite that was made with an operator token lets nobody in once the token was revoked, or has expired.
// An expired token can be revoked. Invites of builds that did not record the token are read.
func TestInvitesGoWithTheirOperatorToken(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	until := time.Now().Add(time.Hour)
	token := func() access.Actor {
		t.Helper()
		_, g, err := h.store.CreateToken(t.Context(), operator, "deploy",
			[]grant.Scope{grant.MembersWrite}, until)
		if err != nil {
			t.Fatal(err)
		}
		return access.OperatorToken(g.Token, g.Name)
	}
	revoked, expired := token(), token()
	theirs, _ := h.invite(t, revoked, a)
	late, i := h.invite(t, expired, a)
	if !i.ExpiresAt.Equal(until.Truncate(time.Millisecond)) {
		t.Errorf("the invite ends at %s, the token at %s", i.ExpiresAt, until)
	}
	if err := err3(h.store.Invite(t.Context(), theirs)); err != nil {
		t.Errorf("while the token holds: %v", err)
	}
	if err := h.store.RevokeToken(t.Context(), operator, revoked.ID); err != nil {
		t.Fatal(err)
	}
	if err := err3(h.store.Invite(t.Context(), theirs)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("shown after the revocation: %v", err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), theirs, cleo)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("accepted after the revocation: %v", err)
	}
	h.at(until.Add(time.Minute))
	if err := err3(h.store.CreateInvite(t.Context(), expired, a.ID, access.RoleViewer, "")); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Errorf("an expired token invites: %v", err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), late, cleo)); !errors.Is(err, account.ErrInviteExpired) {
		t.Errorf("an expired token's invite: %v", err)
	}
	if err := h.store.RevokeToken(t.Context(), operator, expired.ID); err != nil {
		t.Errorf("the expired token is revoked: %v", err)
	}
	h.at(time.Time{}) // before its time is over: it is revoked all the same
	for _, of := range []access.Actor{revoked, expired} {
		g, err := h.store.TokenGrant(t.Context(), of.ID)
		if again := h.store.RevokeToken(t.Context(), operator, of.ID); err != nil ||
			g.State(time.Now()) != grant.TokenRevoked || !errors.Is(again, grant.ErrNoToken) {
			t.Errorf("%s is %s, %v; revoked again: %v", of, g.State(time.Now()), err, again)
		}
	}
	if err := err2(h.store.AcceptInvite(t.Context(), late, cleo)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("the invite of the token that had expired: %v", err)
	}
	b := h.account(t, "b", ada)
	older, _ := h.invite(t, token(), b)
	h.rewriteInvite(t, b, func(invite map[string]any) { delete(invite, "by_subject") })
	if err := err2(h.store.AcceptInvite(t.Context(), older, cleo)); err != nil {
		t.Errorf("an older build's invite: %v", err)
	}
}

// rewriteInvite stores an account with its first invite as another build would have written it.
func (h harness) rewriteInvite(t *testing.T, a account.Account, edit func(map[string]any)) {
	t.Helper()
	h.rewrite(t, a, "invites", func(all []any) []any {
		invite, _ := all[0].(map[string]any)
		edit(invite)
		return all
	})
}

// rewrite stores an account with a list in its record as another build would have written it.
func (h harness) rewrite(t *testing.T, a account.Account, list string, edit func([]any) []any) {
	t.Helper()
	subject, data := entryOf(t, h, topology.BucketAccounts,
		topology.BucketSubject(topology.BucketAccounts, a.ID), "")
	var r map[string]any
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	all, _ := r[list].([]any)
	r[list] = edit(all)
	data, _ = json.Marshal(r)
	natstest.Publish(t, h.conn, subject, data)
}

// The previous build wrote the link only into By, gave its invites a week, and left them in the account. They
// let nobody in either.
func TestInvitesOfOlderBuildsGoWithTheirLoginLink(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	l := h.link(t, a, access.RoleOwner)
	token, i := h.invite(t, l.Actor(), a)
	h.rewriteInvite(t, a, func(invite map[string]any) {
		delete(invite, "by_subject")
		invite["expires_at"] = i.CreatedAt.Add(account.InviteLifetime)
	})
	if now, err := h.store.Account(t.Context(), a.ID); err != nil ||
		now.Invites[0].ExpiresAt.After(l.ExpiresAt.Add(topology.LoginTTL+time.Minute)) {
		t.Errorf("%+v, %v: it ends after the link", now.Invites, err)
	}
	if _, _, err := h.store.Invite(t.Context(), token); err != nil {
		t.Errorf("while the link holds: %v", err)
	}
	if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, l.ID); err != nil {
		t.Fatal(err)
	}
	if now, err := h.store.Account(t.Context(), a.ID); err != nil || len(now.Invites) != 0 {
		t.Errorf("%+v, %v: the invite is still there", now.Invites, err)
	}
	if err := err2(h.store.AcceptInvite(t.Context(), token, cleo)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("accepted: %v", err)
	}
}

// The death of a process between the two writes of a revocation leaves the invite in the account, where it is
// worthless.
func TestInviteIsVoidBeforeItIsTakenOut(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	l := h.link(t, a, access.RoleOwner)
	token, _ := h.invite(t, l.Actor(), a)
	subject, data := entryOf(t, h, topology.BucketAccounts,
		topology.BucketSubject(topology.BucketAccounts, a.ID), "")
	if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, l.ID); err != nil {
		t.Fatal(err)
	}
	natstest.Publish(t, h.conn, subject, data) // as it was before
	if err := err2(h.store.AcceptInvite(t.Context(), token, cleo)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("accepted: %v", err)
	}
	if err := err3(h.store.Invite(t.Context(), token)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("shown: %v", err)
	}
}

// What a login link may do is read from its grant at the write, whatever role the caller claims; what an
// operator may do, from theirs.
func TestLinksAndOperatorsAreJudgedAtTheWrite(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	viewer, owner := h.link(t, a, access.RoleViewer), h.link(t, a, access.RoleOwner)
	elsewhere := h.link(t, h.account(t, "b", ada), access.RoleOwner)
	changes := map[string]func(by access.Actor) error{
		"key": func(by access.Actor) error {
			return err3(h.store.CreateKey(t.Context(), by, a.ID, account.KeyOptions{}))
		},
		"invite": func(by access.Actor) error {
			return err3(h.store.CreateInvite(t.Context(), by, a.ID, access.RoleViewer, ""))
		},
		"member": func(by access.Actor) error {
			return err2(h.store.SetRole(t.Context(), by, a.ID, "dev", "ada", access.RoleOwner))
		},
		"secret": func(by access.Actor) error { return err2(h.store.RevealSecrets(t.Context(), by, a.ID)) },
	}
	forged := viewer.Actor()
	forged.Role = access.RoleOwner
	olga := access.OperatorWith("dev", "olga", "Olga")
	refused := map[string]access.Actor{
		"a viewer's link that says owner": forged, "another account's": elsewhere.Actor(),
		"no operator": olga,
	}
	try := func(want error, who map[string]access.Actor) {
		t.Helper()
		for name, by := range who {
			for what, change := range changes {
				if err := change(by); !errors.Is(err, want) {
					t.Errorf("%s, %s: %v, want %v", name, what, err, want)
				}
			}
		}
	}
	try(access.ErrNotAllowed, refused)
	if _, err := h.store.GrantOperator(t.Context(), operator, "dev", "olga"); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]access.Actor{"an owner's link": owner.Actor(), "an operator": olga}
	try(nil, allowed)
	if err := h.store.RevokeOperator(t.Context(), operator, "dev", "olga"); err != nil {
		t.Fatal(err)
	}
	if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, owner.ID); err != nil {
		t.Fatal(err)
	}
	try(access.ErrNotAllowed, allowed)
}

// What was made with a login link is read from the log: keys, members, whether a secret was seen; nothing of
// others.
func TestLinkWorkNamesWhatStays(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	others := h.link(t, a, access.RoleOwner)
	l := h.link(t, a, access.RoleOwner)
	_, hers := h.key(t, a, account.KeyOptions{Name: "hers"})
	_, first, err := h.store.CreateKey(t.Context(), l.Actor(), a.ID, account.KeyOptions{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	_, rolled, err := h.store.RollKey(t.Context(), l.Actor(), a.ID, hers.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.store.CreateKey(t.Context(), others.Actor(), a.ID, account.KeyOptions{}); err != nil {
		t.Fatal(err)
	}
	token, _ := h.invite(t, l.Actor(), a)
	if _, err := h.store.AcceptInvite(t.Context(), token, cleo); err != nil {
		t.Fatal(err)
	}
	if err := h.store.RevokeLoginLink(t.Context(), operator, a.ID, l.ID); err != nil {
		t.Fatal(err)
	}
	w, err := h.store.LinkWork(t.Context(), a.ID, l.ID)
	if err != nil || len(w.Keys) != 2 || w.Revealed || len(w.Members) != 1 ||
		w.Members[0].Subject != cleo.Subject {
		t.Fatalf("%+v, %v", w, err)
	}
	if ids := w.Keys[0].ID + " " + w.Keys[1].ID; !strings.Contains(ids, first.ID) ||
		!strings.Contains(ids, rolled.ID) {
		t.Errorf("the keys are %s, want %s and %s", ids, first.ID, rolled.ID)
	}
	if _, err := h.store.RemoveMember(t.Context(), operator, a.ID, cleo.Network, cleo.Subject); err != nil {
		t.Fatal(err)
	}
	if w, err := h.store.LinkWork(t.Context(), a.ID, l.ID); err != nil || len(w.Members) != 0 {
		t.Errorf("after the member was removed: %+v, %v", w.Members, err)
	}
	if _, err := h.store.LinkWork(t.Context(), "acc_nobody", l.ID); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("no account: %v", err)
	}
}
