package accountstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/naming"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/topology"
)

// last checks the newest record of an account's log.
func (h harness) last(t *testing.T, id, what string, detail ...string) {
	t.Helper()
	records := h.all(t, id, 100)
	r := records[len(records)-1]
	text := fmt.Sprint(r.Detail)
	for _, d := range detail {
		if !strings.Contains(text, d) {
			t.Errorf("the record says %s %s, not %q", r.What, text, d)
		}
	}
	if r.What != what {
		t.Errorf("the record says %s %s, want %s", r.What, text, what)
	}
}

// A name that looks like another's or is reserved cannot be taken, neither by creating an account nor by
// renaming one; an operator can grant it, and the log records that.
func TestNamesThatDeceive(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, other := h.account(t, "Harbor Guild", ada), h.account(t, "Other")
	for _, name := range []string{
		"harbor guild", "Harb0r Guild", "HarborGuild", "Hаrbor Guild", "Discord", "Dіscоrd", "verifyd " +
			"support",
		"a\u202eb", "Κ-Works",
	} {
		for what, err := range map[string]error{
			"made":    err2(h.store.CreateAccount(t.Context(), ada.Actor(), name, ada)),
			"renamed": err2(h.store.RenameAccount(t.Context(), operator, other.ID, name, false)),
		} {
			if !isInput(err) && !errors.Is(err, account.ErrAccountExists) {
				t.Errorf("%q is %s: %v", name, what, err)
			}
		}
	}
	if a, err := h.store.RenameAccount(t.Context(), operator, a.ID, "HARBOR GUILD", false); err != nil ||
		a.Name != "HARBOR GUILD" {
		t.Errorf("its own name in capitals: %q, %v", a.Name, err)
	}
	if err := err2(h.store.RenameAccount(t.Context(), ada.Actor(), a.ID, "Discord", true)); !errors.Is(err,
		access.ErrNotAllowed) {
		t.Errorf("an owner grants a name: %v", err)
	}
	granted, err := h.store.GrantAccount(t.Context(), operator, "Discord")
	if err != nil || !granted.Granted {
		t.Fatalf("granted: %+v, %v", granted, err)
	}
	h.last(t, granted.ID, audit.AccountCreated, "granted:yes")
	if err := err2(h.store.GrantAccount(t.Context(), operator, "Harb0r Guild")); !isInput(err) {
		t.Errorf("granted is what another account is called: %v", err)
	}
	o, err := h.store.RenameAccount(t.Context(), operator, other.ID, "Steam", true)
	if err != nil || !o.Granted {
		t.Errorf("renamed: %+v, %v", o, err)
	}
	h.last(t, other.ID, audit.AccountRenamed, "granted:yes", "to:Steam")
}

// Existing accounts with such names keep working, and are reported to operators until they grant the name.
func TestDoubtsAreReported(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild")
	old := func(name string) string {
		id := account.IDOf(name)
		data, err := json.Marshal(map[string]any{"v": 2, "name": name, "created_at": time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, h.conn, topology.BucketSubject(topology.BucketAccounts, id), data)
		return id
	}
	alike, reserved := old("Harbоr Guild"), old("Steam")
	told := func(want ...string) {
		t.Helper()
		doubts, err := accountstore.Doubts(t.Context(), h.conn)
		text := fmt.Sprint(doubts)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not say %q", text, w)
			}
		}
		if err != nil || len(want) == 0 && len(doubts) > 0 {
			t.Errorf("doubts: %s, %v", text, err)
		}
	}
	told(alike, reserved, "looks like", a.ID, "is reserved", "Cyrillic")
	for id, name := range map[string]string{alike: "Pier Guild", reserved: "Steam"} {
		if err := err2(h.store.RenameAccount(t.Context(), operator, id, name, name == "Steam")); err != nil {
			t.Fatal(err)
		}
	}
	h.last(t, reserved, audit.NameGranted)
	told()
}

// An owner renames, within bounds; the old name is reserved for the account for 90 days, and free then, even
// if the account's entry has it.
func TestOwnerRenames(t *testing.T) {
	t.Parallel()
	h := start(t)
	eve := account.Member{Network: "example", Subject: "eve", Role: access.RoleDeveloper}
	a, other := h.account(t, "Harbor Guild", ada), h.account(t, "Other")
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, eve); err != nil {
		t.Fatal(err)
	}
	rename := func(by access.Actor, id, name string) error {
		return err2(h.store.RenameAccount(t.Context(), by, id, name, false))
	}
	if err := rename(eve.Actor(), a.ID, "Mine"); !errors.Is(err, access.ErrNotAllowed) {
		t.Errorf("a developer renames: %v", err)
	}
	if err := err2(h.store.SetVerified(t.Context(), operator, a.ID, "Harbor Guild", true)); err != nil {
		t.Fatal(err)
	}
	if err := rename(ada.Actor(), a.ID, "Pier Guild"); err != nil {
		t.Fatal(err)
	}
	h.last(t, a.ID, audit.AccountRenamed, "from:Harbor Guild", "kept_until:", "verified_lost:yes")
	if now, err := h.store.Account(t.Context(), a.ID); err != nil || !now.VerifiedAt.IsZero() {
		t.Errorf("the mark went with the name: %v, %v", now.VerifiedAt, err)
	}
	began := time.Now()
	for _, name := range []string{"Harbor Guild", "HarborGuild", "Harb0r Guild"} {
		if err := rename(operator, other.ID, name); !errors.Is(err, account.ErrAccountExists) ||
			!strings.Contains(err.Error(), "nobody else can take it until 20") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"Harbor Guild", "Pier Guild", "B Guild", "C Guild", "D Guild", "E Guild"} {
		if err := rename(ada.Actor(), a.ID, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := rename(ada.Actor(), a.ID, "F Guild"); !isInput(err) {
		t.Errorf("one more than are kept: %v", err)
	}
	if err := rename(ada.Actor(), a.ID, "Pier Guild"); err != nil {
		t.Errorf("its own, taken back: %v", err)
	}

	h.at(began.Add(naming.Kept - time.Minute))
	if err := rename(operator, other.ID, "Harbor Guild"); !errors.Is(err, account.ErrAccountExists) {
		t.Errorf("before its end: %v", err)
	}
	h.at(began.Add(naming.Kept + time.Minute))
	if err := rename(operator, other.ID, "Harbor Guild"); err != nil {
		t.Fatalf("after its end: %v", err)
	}
	for name, want := range map[string]string{"Harbor Guild": other.ID, "Pier Guild": a.ID} {
		if found, err := h.store.AccountByName(t.Context(), name); err != nil || found.ID != want {
			t.Errorf("%q leads to %s: %v", name, found.ID, err)
		}
	}
	if err := rename(ada.Actor(), a.ID, "Harbor Guild"); !errors.Is(err, account.ErrAccountExists) {
		t.Errorf("what another has by now is taken back: %v", err)
	}
	if err := err2(h.store.Account(t.Context(), a.ID)); err != nil {
		t.Errorf("the account whose name went: %v", err)
	}
	if err := rename(operator, other.ID, "Other"); err != nil {
		t.Error(err)
	}
	h.at(began.Add(2*naming.Kept + time.Hour))
	if err := rename(ada.Actor(), a.ID, "Harbor Guild"); err != nil {
		t.Errorf("free again, for whom it was made: %v", err)
	}
	if found, err := h.store.AccountByName(t.Context(), "Harbor Guild"); err != nil || found.ID != a.ID {
		t.Errorf("it leads to %s: %v", found.ID, err)
	}
}

// To rename an account to the name that it has changes nothing, and grants nothing; a name that it had before
// is its own to take back, though it would be refused to others.
func TestOwnNameIsNotRefused(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	if a, err := h.store.RenameAccount(t.Context(), ada.Actor(), a.ID, "Harbor Guild", false); err != nil ||
		a.Granted {
		t.Errorf("the name that it has: %+v, %v", a, err)
	}
	h.last(t, a.ID, audit.AccountCreated)
	granted, err := h.store.GrantAccount(t.Context(), operator, "Steam")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Steam", "Pier Guild", "Steam"} {
		if err := err2(h.store.RenameAccount(t.Context(), operator, granted.ID, name, false)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.last(t, granted.ID, audit.AccountRenamed, "from:Pier Guild", "to:Steam")
}

// A name that an older build changed has no recorded end: it stays reserved for its account.
func TestOldNamesWithoutAnEndAreKept(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, other := h.account(t, "Harbor Guild"), h.account(t, "Other")
	if err := err2(h.store.RenameAccount(t.Context(), operator, a.ID, "Pier Guild", false)); err != nil {
		t.Fatal(err)
	}
	subject := topology.BucketSubject(topology.BucketAccounts, a.ID)
	m, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketAccounts), subject)
	var stored map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(m.Data, &stored)
	}
	delete(stored, "former")
	data, merr := json.Marshal(stored)
	if err = errors.Join(err, merr); err != nil {
		t.Fatal(err)
	}
	natstest.Publish(t, h.conn, subject, data)
	h.at(time.Now().Add(10 * naming.Kept))
	err = err2(h.store.RenameAccount(t.Context(), operator, other.ID, "Harbor Guild", false))
	if !errors.Is(err, account.ErrAccountExists) || !strings.Contains(err.Error(), "while that account "+
		"exists") {
		t.Errorf("it is free: %v", err)
	}
}

// The mark is for a name that the operator has seen, and only operators set it.
func TestVerifiedMark(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	set := func(by access.Actor, name string, on bool) error {
		return err2(h.store.SetVerified(t.Context(), by, a.ID, name, on))
	}
	if err := set(ada.Actor(), "Harbor Guild", true); !errors.Is(err, access.ErrNotAllowed) {
		t.Errorf("an owner: %v", err)
	}
	if err := set(operator, "Pier Guild", true); !isInput(err) {
		t.Errorf("another name: %v", err)
	}
	if err := set(operator, "Harbor Guild", true); err != nil {
		t.Error(err)
	}
	h.last(t, a.ID, audit.NameVerified, "name:Harbor Guild")
	natstest.Await(t, "it is mirrored", func() bool {
		m, _ := h.mirror.Account(a.ID)
		return !m.VerifiedAt.IsZero()
	})
	if err := set(operator, "", false); err != nil {
		t.Error(err)
	}
	h.last(t, a.ID, audit.NameUnverified)
}

// An owner requests the deletion of an account and takes that back; an operator's disabling is independent,
// in either order. Older builds see a disabled account.
func TestDeletionIsRequestedAndWithdrawn(t *testing.T) {
	t.Parallel()
	h := start(t)
	eve := account.Member{Network: "example", Subject: "eve", Role: access.RoleDeveloper}
	a := h.account(t, "Harbor Guild", ada)
	secret, _ := h.key(t, a, account.KeyOptions{})
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, eve); err != nil {
		t.Fatal(err)
	}
	h.at(time.Now()) // all in one instant
	type step struct {
		what string
		err  error
		do   func() (account.Account, error)
	}
	ask := func(by access.Actor) func() (account.Account, error) {
		return func() (account.Account, error) { return h.store.AskDeletion(t.Context(), by, a.ID) }
	}
	restore := func(by access.Actor) func() (account.Account, error) {
		return func() (account.Account, error) { return h.store.Restore(t.Context(), by, a.ID) }
	}
	disable := func() (account.Account, error) {
		return h.store.Disable(t.Context(), operator, a.ID, "a "+
			"reason")
	}
	enable := func() (account.Account, error) { return h.store.Enable(t.Context(), operator, a.ID) }
	try := func(serves, asked bool, steps ...step) {
		t.Helper()
		for _, s := range steps {
			if err := err2(s.do()); !errors.Is(err, s.err) {
				t.Errorf("%s: %v, want %v", s.what, err, s.err)
			}
		}
		now, err := h.store.Account(t.Context(), a.ID)
		if err != nil || now.InService() != serves || now.DeleteAskedAt.IsZero() == asked {
			t.Errorf("it is %+v, %v", now, err)
		}
		want := error(nil)
		if !serves {
			want = account.ErrDisabled
		}
		natstest.Await(t, "its key is judged by it", func() bool {
			return errors.Is(err2(h.mirror.Lookup(secret)), want)
		})
	}
	try(false, true, step{"a developer asks", access.ErrNotAllowed, ask(eve.Actor())},
		step{"an owner asks", nil, ask(ada.Actor())}, step{"an operator " +
			"enables", accountstore.ErrDeletionAsked, enable},
		step{"a developer restores", access.ErrNotAllowed, restore(eve.Actor())})
	h.last(t, a.ID, audit.DeletionAsked, "at:")
	m, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketAccounts),
		topology.BucketSubject(topology.BucketAccounts, a.ID))
	var older struct {
		V          int       `json:"v"`
		DisabledAt time.Time `json:"disabled_at"`
	}
	if err = errors.Join(err, json.Unmarshal(m.Data, &older)); err != nil || older.V < 3 ||
		older.DisabledAt.IsZero() {
		t.Errorf("an older build reads %+v, %v", older, err)
	}
	try(true, false, step{"an owner restores", nil, restore(ada.Actor())})
	h.last(t, a.ID, audit.AccountRestored)

	try(false, true, step{"an owner asks", nil, ask(ada.Actor())}, step{"an operator disables", nil, disable},
		step{"an owner restores", account.ErrDisabled, restore(ada.Actor())})
	try(false, false, step{"an operator restores", nil, restore(operator)},
		step{"an owner asks", account.ErrDisabled, ask(ada.Actor())})
	try(false, true, step{"an operator asks", nil, ask(operator)}, step{"an operator enables", nil, enable})
	try(true, false, step{"an owner restores", nil, restore(ada.Actor())})
	try(false, false, step{"an operator disables", nil, disable})
	h.last(t, a.ID, audit.AccountDisabled, "reason:a reason")
	try(true, false, step{"an operator enables", nil, enable})
}

// A requested deletion is done at its time, once, by any edge; after a crash between its steps the next edge
// finishes it. The name is kept, and the log stays.
func TestDeletionIsDoneAtItsTime(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, spared := h.account(t, "Harbor Guild", ada), h.account(t, "Pier Guild", ada)
	_, k := h.key(t, a, account.KeyOptions{})
	began := time.Now()
	for _, id := range []string{a.ID, spared.ID} {
		if _, err := h.store.AskDeletion(t.Context(), ada.Actor(), id); err != nil {
			t.Fatal(err)
		}
	}
	edges := h.edges(t)
	h.at(began.Add(account.DeleteGrace - time.Minute))
	if err := h.store.EndDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := err2(h.store.Restore(t.Context(), ada.Actor(), spared.ID)); err != nil {
		t.Fatalf("a minute before: %v", err)
	}
	h.at(began.Add(account.DeleteGrace + time.Minute))
	var wg sync.WaitGroup
	for _, edge := range edges {
		wg.Go(func() {
			if err := edge.EndDue(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if gone, err := h.store.Deleted(t.Context(), a.ID); err != nil || len(gone.Members) > 0 {
		t.Errorf("what is left: %+v, %v", gone, err)
	}
	if err := err2(h.store.Account(t.Context(), spared.ID)); err != nil {
		t.Errorf("the one that was restored: %v", err)
	}
	keys, err := h.store.Keys(t.Context())
	if err != nil || len(keys) != 1 || keys[0].ID != k.ID || keys[0].RevokedAt.IsZero() {
		t.Errorf("keys: %+v, %v", keys, err)
	}
	deleted := 0
	for _, r := range h.all(t, a.ID, 100) {
		if r.What == audit.AccountDeleted {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("deleted %d times", deleted)
	}
	if err := err2(h.store.CreateAccount(t.Context(), operator, "Harbor Guild")); !errors.Is(err,
		account.ErrAccountExists) {
		t.Errorf("its name: %v", err)
	}
}

// A process that dies after the account is deleted leaves its keys; the next start revokes them. Before that
// they are not accepted.
func TestDeletionSurvivesACrash(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	secret, k := h.key(t, a, account.KeyOptions{})
	subject := topology.BucketSubject(topology.BucketKeys, ">")
	m, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketKeys), subject)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.DeleteAccount(t.Context(), operator, a.ID, false); err != nil {
		t.Fatal(err)
	}
	natstest.Publish(t, h.conn, m.Subject, m.Data) // as before it was revoked
	natstest.Await(t, "its key is refused", func() bool {
		return errors.Is(err2(h.mirror.Lookup(secret)), account.ErrRevokedKey)
	})
	if err := h.store.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := h.store.Keys(t.Context())
	if err != nil || len(keys) != 1 || keys[0].ID != k.ID || keys[0].RevokedAt.IsZero() {
		t.Errorf("keys: %+v, %v", keys, err)
	}
}

// A member moves from one account to another in one write, which both logs record.
func TestMemberIsMoved(t *testing.T) {
	t.Parallel()
	h := start(t)
	eve := account.Member{Network: "example", Subject: "eve", Name: "Eve", Role: access.RoleDeveloper}
	a, b := h.account(t, "Harbor Guild", ada), h.account(t, "Pier Guild", ada)
	if _, err := h.store.AddMember(t.Context(), operator, a.ID, eve); err != nil {
		t.Fatal(err)
	}
	move := func(by access.Actor, from, to string, who access.Identity, role access.Role) error {
		return err2(h.store.MoveMember(t.Context(), by, from, to, who, role))
	}
	for what, c := range map[string]struct{ got, want error }{
		"by an owner": {move(ada.Actor(), a.ID, b.ID, eve.Identity(), ""), access.ErrNotAllowed},
		"nobody": {move(operator, a.ID, b.ID, access.Identity{Network: "x", Subject: "y"}, ""),
			account.ErrNoMember},
		"the last owner": {move(operator, a.ID, b.ID, ada.Identity(), ""), account.ErrLastOwner},
		"to no account":  {move(operator, a.ID, account.NewID(), eve.Identity(), ""), account.ErrNoAccount},
		"who is there":   {move(operator, b.ID, a.ID, ada.Identity(), ""), account.ErrLastOwner},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	if err := move(operator, a.ID, a.ID, eve.Identity(), ""); !isInput(err) {
		t.Errorf("to where they are: %v", err)
	}
	if err := move(operator, a.ID, b.ID, eve.Identity(), "root"); !isInput(err) {
		t.Errorf("as nothing: %v", err)
	}
	if err := move(operator, a.ID, b.ID, eve.Identity(), ""); err != nil {
		t.Fatal(err)
	}
	h.last(t, a.ID, audit.MemberMovedOut, "to:"+b.ID, "role:developer")
	h.last(t, b.ID, audit.MemberMovedIn, "from:"+a.ID, "role:developer")
	if err := move(operator, b.ID, a.ID, eve.Identity(), access.RoleOwner); err != nil {
		t.Fatal(err)
	}
	back, err := h.store.Account(t.Context(), a.ID)
	if m, ok := back.Member("example", "eve"); err != nil || !ok ||
		m.Role != access.RoleOwner || m.Name != "Eve" {
		t.Errorf("%+v, %v", back.Members, err)
	}
	if err := move(operator, a.ID, b.ID, ada.Identity(), ""); !errors.Is(err, account.ErrAlreadyMember) {
		t.Errorf("who is there already: %v", err)
	}
	if left, _ := h.store.Account(t.Context(), b.ID); len(left.Members) != 1 {
		t.Errorf("%+v", left.Members)
	}
}

// An edge whose clock is days ahead deletes no account, even if it should believe that its time is over.
func TestWrongClockDeletesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	var ahead atomic.Int64
	ahead.Store(int64(8 * 24 * time.Hour))
	conn := natstest.ConnectTo(t, natstest.URL(t, dir), func(o *natsconf.ConnectOptions) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	edge, err := accountstore.New(t.Context(), conn, secretbox.NewKey())
	if err == nil {
		err = conn.Clock.Read(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := edge.EnsureAccount(t.Context(), operator, "Harbor Guild")
	if err == nil {
		_, err = edge.AskDeletion(t.Context(), operator, a.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, err = edge.Account(t.Context(), a.ID); err != nil || time.Since(a.DeleteAskedAt).Abs() > time.Hour {
		t.Errorf("asked at %s, %v", a.DeleteAskedAt, err)
	}
	edge.Now = func() time.Time { return time.Now().Add(8 * 24 * time.Hour) }
	if err := edge.EndDue(t.Context()); !errors.Is(err, storetime.ErrClock) {
		t.Errorf("on a wrong clock: %v", err)
	}
	if err := err2(edge.Account(t.Context(), a.ID)); err != nil {
		t.Errorf("on a wrong clock: %v", err)
	}
	ahead.Store(0)
	if err := edge.EndDue(t.Context()); err != nil {
		t.Error(err)
	}
	if err := err2(edge.Account(t.Context(), a.ID)); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("once it is set: %v", err)
	}
}
