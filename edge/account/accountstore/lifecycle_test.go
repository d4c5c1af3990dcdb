package accountstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// A disabled account's keys are refused by all edges, its members cannot change anything, and its outstanding
// callbacks are signed. Enabling restores everything. A build without disabling does not read the record, and
// so accepts no key.
func TestDisabledAccount(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a", ada)
	secret, k := h.key(t, a, account.KeyOptions{})
	token, _, err := h.store.CreateInvite(t.Context(), operator, a.ID, access.RoleViewer, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat changes nothing
		if a, err = h.store.Disable(t.Context(), operator, a.ID, ""); err != nil || a.InService() {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	natstest.Await(t, "the key is refused", func() bool {
		return errors.Is(second(h.mirror.Lookup(secret)), account.ErrDisabled)
	})
	if secrets, ok := h.mirror.SigningSecrets(a.ID); !ok || len(secrets) != 2 { // and the private key
		t.Errorf("it signs with %d secrets", len(secrets))
	}
	if _, data := entryOf(t, h, topology.BucketAccounts,
		topology.BucketSubject(topology.BucketAccounts, a.ID), ""); !strings.Contains(string(data), `"v":3`) {
		t.Errorf("an older build reads it: %s", data)
	}
	for what, err := range map[string]error{
		"a member's key":    fourth(h.store.CreateKey(t.Context(), ada.Actor(), a.ID, account.KeyOptions{})),
		"a member's look":   err2(h.store.RevealSecrets(t.Context(), ada.Actor(), a.ID)),
		"an invite":         err2(h.store.AcceptInvite(t.Context(), token, bob)),
		"a member's enable": err2(h.store.Enable(t.Context(), ada.Actor(), a.ID)),
	} {
		if !errors.Is(err, account.ErrDisabled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := h.store.RevokeKey(t.Context(), operator, "", k.ID); err != nil {
		t.Errorf("the operator revokes a key: %v", err)
	}
	another, _, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Enable(t.Context(), operator, a.ID); err != nil {
		t.Fatal(err)
	}
	h.known(t, another)
	if _, data := entryOf(t, h, topology.BucketAccounts,
		topology.BucketSubject(topology.BucketAccounts, a.ID), ""); !strings.Contains(string(data), `"v":2`) {
		t.Errorf("an older build does not read it: %s", data)
	}
	if _, err := h.store.Disable(t.Context(), ada.Actor(), a.ID, ""); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Errorf("a member disables: %v", err)
	}
	if got := whats(h.all(t, a.ID, 10)); !strings.Contains(got,
		"account.disabled key.revoked key.created account.enabled") {
		t.Errorf("the log: %s", got)
	}
}

func whats(records []audit.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, r.What)
	}
	return strings.Join(all, " ")
}

// With an account its keys, members, invites and login links are removed, on all edges; its outstanding
// callbacks are signed as long as outcomes are kept, and then its secrets are removed from the store. Its
// name is free, and the next account with it gets another id, and nothing of the old one.
func TestDeletedAccount(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	secret, k := h.key(t, a, account.KeyOptions{})
	rolled, _, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h.known(t, rolled)
	token, _, err := h.store.CreateInvite(t.Context(), ada.Actor(), a.ID, access.RoleOwner, "")
	if err != nil {
		t.Fatal(err)
	}
	link, l, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.DeleteAccount(t.Context(), ada.Actor(), a.ID, false); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Fatalf("a member deletes: %v", err)
	}
	for _, dry := range []bool{true, false} {
		d, err := h.store.DeleteAccount(t.Context(), operator, a.ID, dry)
		if err != nil || d.Keys != 2 || d.Members != 1 || d.Invites != 1 || d.Links != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	natstest.Await(t, "both keys are refused", func() bool {
		return errors.Is(second(h.mirror.Lookup(secret)), account.ErrRevokedKey) &&
			errors.Is(second(h.mirror.Lookup(rolled)), account.ErrRevokedKey)
	})
	natstest.Await(t, "it is listed nowhere", func() bool { // accounts are followed apart from keys
		found, _ := h.mirror.Accounts("", "", 10)
		return len(found) == 0 && len(h.mirror.AccountsOf("dev", "ada")) == 0
	})
	for what, err := range map[string]error{
		"the account": err2(h.store.Account(t.Context(), a.ID)),
		"its name":    err2(h.store.AccountByName(t.Context(), a.Name)),
		"its id":      err2(h.store.AccountByName(t.Context(), a.ID)),
		"a key":       fourth(h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})),
		"the quota":   h.store.SetQuota(t.Context(), operator, a.ID, 1),
	} {
		if !errors.Is(err, account.ErrNoAccount) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := err2(h.store.AcceptInvite(t.Context(), token, bob)); !errors.Is(err, account.ErrNoInvite) {
		t.Errorf("the invite: %v", err)
	}
	if err := err2(h.store.RedeemLoginLink(t.Context(), link)); !errors.Is(err, grant.ErrNoLink) {
		t.Errorf("the login link: %v", err)
	}
	for _, k := range h.stored(t) {
		if k.RevokedAt.IsZero() {
			t.Errorf("%s is not revoked", k.ID)
		}
	}
	if got := whats(h.all(t, a.ID, 10)); !strings.HasSuffix(got,
		"account.deleted key.revoked key.revoked login_link.revoked") {
		t.Errorf("the log: %s", got)
	}
	if d, err := h.store.DeleteAccount(t.Context(), operator, a.ID, false); err != nil || d.Keys != 0 ||
		d.Links != 0 || d.Account.DeletedAt.IsZero() {
		t.Errorf("a repeat: %+v, %v", d, err)
	}

	if n := h.versions(t, topology.BucketSubject(topology.BucketAccounts, a.ID)); n != 1 {
		t.Errorf("%d versions of the record are there, with its members and secrets", n)
	}

	again, err := h.store.GrantAccount(t.Context(), operator, "Harbor Guild") // it is kept by other means
	if err != nil || again.ID == a.ID {
		t.Fatalf("the name is taken anew as %s: %v", again.ID, err)
	}
	if found, err := h.store.AccountByName(t.Context(), "Harbor Guild"); err != nil || found.ID != again.ID {
		t.Errorf("the name leads to %s: %v", found.ID, err)
	}
	if _, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild"); !errors.Is(err,
		account.ErrAccountExists) {
		t.Errorf("and once more: %v", err)
	}
	h.signsUntilOutcomesAreGone(t, a, l.ID)
}

// signsUntilOutcomesAreGone checks what is left of a deleted account until its end.
func (h harness) signsUntilOutcomesAreGone(t *testing.T, a account.Account, link string) {
	t.Helper()
	subject := topology.BucketSubject(topology.BucketAccounts, a.ID)
	if secrets, ok := h.mirror.SigningSecrets(a.ID); !ok || len(secrets) != 2 ||
		secrets[0] != a.Secrets[0].Value {
		t.Errorf("it does not sign what it owes: %d secrets", len(secrets))
	}
	h.at(time.Now().Add(topology.DefaultKeepResults + 2*time.Hour))
	if secrets, _ := h.mirror.SigningSecrets(a.ID); len(secrets) != 0 {
		t.Errorf("it signs forever: %d secrets", len(secrets))
	}
	if err := h.store.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, data := entryOf(t, h, topology.BucketAccounts, subject, "")
	if n := h.versions(t, subject); n != 1 || strings.Contains(string(data), "sealed") ||
		strings.Contains(string(data), "ada") {
		t.Errorf("%d versions: %s", n, data)
	}
	if links, err := h.store.LoginLinks(t.Context(), a.ID); err != nil || len(links) != 0 {
		t.Errorf("%s: %+v, %v", link, links, err)
	}
}

// versions counts the messages that are kept on a subject.
func (h harness) versions(t *testing.T, subject string) uint64 {
	t.Helper()
	s, err := h.conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketAccounts))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects[subject]
}

// In a store that an older build made, which keeps five revisions, none of those that are kept has members.
func TestDeletedAccountInAnOlderStore(t *testing.T) {
	t.Parallel()
	h := start(t)
	natstest.Outdate(t, h.conn)
	a := h.account(t, "Harbor Guild", ada)
	for _, name := range []string{"Pier Guild", "Quay Guild", "Dock Guild"} {
		if err := err2(h.store.RenameAccount(t.Context(), operator, a.ID, name, false)); err != nil {
			t.Fatal(err)
		}
	}
	if err := err2(h.store.DeleteAccount(t.Context(), operator, a.ID, false)); err != nil {
		t.Fatal(err)
	}
	stream, subject := topology.BucketStream(topology.BucketAccounts),
		topology.BucketSubject(topology.BucketAccounts, a.ID)
	from := uint64(1)
	for range h.versions(t, subject) {
		m, err := h.conn.Next(t.Context(), stream, subject, from)
		if err != nil || strings.Contains(string(m.Data), `"Ada"`) {
			t.Errorf("%s, %v", m.Data, err)
		}
		from = m.Sequence + 1
	}
}

// An older copy of its record does not bring a deleted account back.
func TestDeletedAccountCannotComeBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	secret, _ := h.key(t, a, account.KeyOptions{})
	subject, before := entryOf(t, h, topology.BucketAccounts,
		topology.BucketSubject(topology.BucketAccounts, a.ID), "")
	if _, err := h.store.DeleteAccount(t.Context(), operator, a.ID, false); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "it is gone", func() bool {
		a, _ := h.mirror.Account(a.ID)
		return !a.DeletedAt.IsZero() && errors.Is(second(h.mirror.Lookup(secret)), account.ErrRevokedKey)
	})
	natstest.Publish(t, h.conn, subject, before)
	h.account(t, "marker") // seen after the copy, so that was seen
	if a, _ := h.mirror.Account(a.ID); a.DeletedAt.IsZero() {
		t.Error("an old copy brought it back")
	}
}

// A renamed account keeps everything, under the same id. A former name of an account, even of a deleted one,
// cannot be taken until it is forgotten.
func TestRenamedAccount(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	secret, _ := h.key(t, a, account.KeyOptions{})
	other := h.account(t, "Other")
	rename := func(id, name string, want error) {
		t.Helper()
		if _, err := h.store.RenameAccount(t.Context(), operator, id, name, false); !errors.Is(err, want) {
			t.Errorf("%s becomes %q: %v, want %v", id, name, err, want)
		}
	}
	leads := func(name, want string) {
		t.Helper()
		found, err := h.store.AccountByName(t.Context(), name)
		if found.ID != want || (want == "") != errors.Is(err, account.ErrNoAccount) {
			t.Errorf("%q leads to %q: %v, want %q", name, found.ID, err, want)
		}
	}
	rename(a.ID, "Other", account.ErrAccountExists)
	rename(a.ID, "Pier Guild", nil)
	rename(a.ID, "Pier Guild", nil)
	natstest.Await(t, "the name is mirrored", func() bool {
		n, _ := h.mirror.Name(a.ID)
		return n == "Pier Guild"
	})
	if p, err := h.mirror.Lookup(secret); err != nil || p.Account.ID != a.ID || len(p.Account.Members) != 1 {
		t.Errorf("its key: %+v, %v", p, err)
	}
	leads("Pier Guild", a.ID)
	leads("Harbor Guild", "")
	if err := err2(h.store.AccountByName(t.Context(), "Harbor Guild")); !strings.Contains(err.Error(),
		`"Pier Guild"`) {
		t.Errorf("the old name: %v", err)
	}
	rename(other.ID, "Harbor Guild", account.ErrAccountExists)
	if _, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild"); !errors.Is(err,
		account.ErrAccountExists) {
		t.Errorf("making one of the old name: %v", err)
	}
	rename(a.ID, "Quay Guild", nil)
	rename(other.ID, "Pier Guild", account.ErrAccountExists)
	rename(a.ID, "Pier Guild", nil)
	rename(a.ID, "Harbor Guild", nil)
	leads("Harbor Guild", a.ID)
	rename(a.ID, "Pier Guild", nil)
	for _, bad := range []string{"", " ", a.ID, "Discord"} {
		if _, err := h.store.RenameAccount(t.Context(), operator, a.ID, bad, false); !isInput(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := h.store.DeleteAccount(t.Context(), operator, a.ID, false); err != nil {
		t.Fatal(err)
	}
	if secrets, ok := h.mirror.SigningSecrets(a.ID); !ok || len(secrets) != 2 {
		t.Errorf("the deleted one signs with %d secrets", len(secrets))
	}
	rename(other.ID, "Pier Guild", account.ErrAccountExists) // until it is forgotten
	h.at(time.Now().Add(naming.Kept + time.Hour))
	rename(other.ID, "Pier Guild", nil)
	leads("Pier Guild", other.ID)
	fresh, err := h.store.CreateAccount(t.Context(), operator, "Quay Guild")
	if err != nil {
		t.Fatal(err)
	}
	leads("Quay Guild", fresh.ID)
	rename(other.ID, "Harbor Guild", nil) // over what is left of the one that was created with it
	leads("Harbor Guild", other.ID)
	if err := h.store.Repair(t.Context()); err != nil {
		t.Error(err)
	}
}

func isInput(err error) bool { _, ok := errors.AsType[*input.Error](err); return ok }

// Of many concurrent requests for one name, on several edges, by creating an account or renaming one, one
// succeeds.
func TestOneTakesAName(t *testing.T) {
	t.Parallel()
	h := start(t)
	gone := h.account(t, "Taken before")
	if _, err := h.store.DeleteAccount(t.Context(), operator, gone.ID, false); err != nil {
		t.Fatal(err)
	}
	h.at(time.Now().Add(naming.Kept + time.Hour))
	edges := h.edges(t)
	var ids []string
	for i := range 4 {
		ids = append(ids, h.account(t, fmt.Sprintf("Account %d", i)).ID)
	}
	for _, name := range []string{"Never taken", "Taken before"} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var holders []string
		took := func(a account.Account, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				holders = append(holders, a.ID)
			} else if !errors.Is(err, account.ErrAccountExists) {
				t.Errorf("%q: %v", name, err)
			}
		}
		for i := range 4 {
			wg.Go(func() { took(edges[i].RenameAccount(t.Context(), operator, ids[i], name, false)) })
			wg.Go(func() { took(edges[i].CreateAccount(t.Context(), operator, name)) })
		}
		wg.Wait()
		found, err := h.store.AccountByName(t.Context(), name)
		if len(holders) != 1 || err != nil || found.ID != holders[0] {
			t.Errorf("%q is taken by %v, and leads to %s: %v", name, holders, found.ID, err)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return len(holders) == 1 && id == holders[0] })
		for len(ids) < 4 {
			ids = append(ids, h.account(t, "More for "+name).ID)
		}
	}
}

// The error for a name that no account has lists those that may have been meant.
func TestNearestNames(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, name := range []string{"Harbor Guild", "Harbor Guild West", "Pier", "港のギルド"} {
		h.account(t, name)
	}
	for name, want := range map[string]string{
		"Harbour Guild": `there is "Harbor Guild"`,
		"harbor guild":  `there is "Harbor Guild", "Harbor Guild West"`, "per": `there is "Pier"`,
		"港ギルド": `there is "港のギルド"`,
	} {
		if err := err2(h.store.AccountByName(t.Context(), name)); err == nil ||
			!strings.Contains(err.Error(), want) || !errors.Is(err, account.ErrNoAccount) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if err := err2(h.store.AccountByName(t.Context(), "Something else")); err == nil ||
		strings.Contains(err.Error(), "there is") {
		t.Errorf("far from all: %v", err)
	}
}

// The creator of an account is the one in the log.
func TestMadeBy(t *testing.T) {
	t.Parallel()
	h := start(t)
	for want, create := range map[access.ActorKind]func(context.Context) (account.Account, error){
		access.ActorOperator: func(ctx context.Context) (account.Account, error) {
			return h.store.CreateAccount(ctx, operator, "a")
		},
		access.ActorMember: func(ctx context.Context) (account.Account, error) {
			return h.store.CreateAccount(ctx, ada.Actor(), "b", ada)
		},
	} {
		a, err := create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if by, at, known, err := h.store.MadeBy(t.Context(), a.ID); err != nil || !known || by.Kind != want ||
			at.IsZero() {
			t.Errorf("made by %+v, %t, %v", by, known, err)
		}
	}
}
