package accountstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

func startStore(t *testing.T) *Store {
	t.Helper()
	s, err := New(t.Context(), natstest.Start(t), secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dieAfter makes a change as Store.change does, up to the moment at which its record would be written.
func dieAfter(t *testing.T, s *Store, id string, quota int64) {
	t.Helper()
	a, e, err := s.account(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	a.Quota = quota
	if a.Last, err = s.log.Draft(t.Context(), audit.Record{
		Account: id, Who: access.Operator("dead"), What: audit.QuotaSet,
		Detail: map[string]string{"to": fmt.Sprint(quota)},
	}); err != nil {
		t.Fatal(err)
	}
	data, err := a.Encode(s.box)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.put(t.Context(), topology.BucketAccounts, id, data, e.Revision); err != nil {
		t.Fatal(err)
	}
}

// A process that dies between a change and its record leaves the record in the changed entry; the next change
// writes both.
func TestRecordOfAChangeWhoseMakerDied(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	dieAfter(t, s, a.ID, 7)
	for i := range 3 { // others take the number that the record was drafted with
		if err := s.Note(t.Context(), access.Operator(""), a.ID, "test.note", fmt.Sprint(i),
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.RotateSecret(t.Context(), access.Operator(""), a.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RotateSecret(t.Context(), access.Operator(""), a.ID, 0); err != nil { // and not once more
		t.Fatal(err)
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		audit.SecretRotated, audit.SecretRotated, audit.QuotaSet, "test.note", "test.note", "test.note",
		audit.AccountCreated,
	}
	if len(page.Records) != len(want) {
		t.Fatalf("the log: %+v", page.Records)
	}
	for i, r := range page.Records {
		if r.What != want[i] || r.Number != int64(len(want)-i) || r.What == audit.QuotaSet &&
			r.Who.Name != "dead" {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

// dieRevoking is dieAfter for a key.
func dieRevoking(t *testing.T, s *Store, id string) {
	t.Helper()
	k, err := s.find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	k.RevokedAt = s.log.Instant()
	if k.Last, err = s.log.Draft(t.Context(), audit.Record{
		Account: k.Account, Who: access.Operator("dead"), What: audit.KeyWasRevoked, On: id,
	}); err != nil {
		t.Fatal(err)
	}
	data, err := k.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.put(t.Context(), topology.BucketKeys, k.entry.Key, data, k.entry.Revision); err != nil {
		t.Fatal(err)
	}
}

// The same for a key, also when the next one finds nothing left to change; and at the start of a service, for
// what nobody changes again.
func TestRecordOfAKeyWhoseMakerDied(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	for what, repair := range map[string]func(id string) error{
		"a repeat": func(id string) error {
			_, err := s.RevokeKey(t.Context(), access.Operator(""), a.ID, id)
			return err
		},
		"a start": func(string) error { return s.Repair(t.Context()) },
	} {
		_, k, err := s.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		dieRevoking(t, s, k.ID)
		before, err := s.log.Last(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to do
			if err := repair(k.ID); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.Audit(t.Context(), a.ID, "", 0)
		if err != nil || page.Records[0].What != audit.KeyWasRevoked || page.Records[0].On != k.ID ||
			page.Records[0].Number != before+1 {
			t.Errorf("%s: the log: %+v, %v", what, page.Records, err)
		}
	}
}

// A revocation takes effect before the log is written: it cannot wait for it.
func TestTakingBackDoesNotWaitForItsRecord(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, l, err := s.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.conn.JS.Stream(t.Context(), topology.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	full := stream.CachedInfo().Config
	full.MaxMsgs, full.Discard = int64(stream.CachedInfo().State.Msgs), jetstream.DiscardNew
	if _, err := s.conn.JS.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeLoginLink(t.Context(), access.Operator(""), a.ID, l.ID); !errors.Is(err,
		natsconf.ErrUncertain) {
		t.Errorf("without its record: %v", err)
	}
	if g, err := s.LoginLinkGrant(t.Context(), a.ID, l.ID); !errors.Is(err, grant.ErrNoLink) {
		t.Errorf("it gives %+v still: %v", g, err)
	}
	full.MaxMsgs = -1
	if _, err := s.conn.JS.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if err := s.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil || page.Records[0].What != audit.LinkRevoked || page.Records[0].On != l.ID {
		t.Errorf("the log: %+v, %v", page.Records, err)
	}
}

// While the audit log does not answer, whatever takes a right away is done at once, and nothing else is. When
// the log answers again it gets each record once, before that of the next change.
func TestTakingAwayWaitsForNoLog(t *testing.T) {
	t.Parallel()
	s, ada, a := startOwned(t)
	bob := account.Member{Network: "example", Subject: "bob", Role: access.RoleOwner}
	_, err := s.AddMember(t.Context(), ada.Actor(), a.ID, bob)
	_, k, kerr := s.CreateKey(t.Context(), ada.Actor(), a.ID, account.KeyOptions{})
	_, l, lerr := s.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
	derr := s.conn.JS.DeleteStream(t.Context(), topology.StreamAudit)
	if err := errors.Join(err, kerr, lerr, derr); err != nil {
		t.Fatal(err)
	}
	if err := s.SetQuota(t.Context(), access.Operator(""), a.ID, 7); !errors.Is(err,
		natsconf.ErrUnavailable) {
		t.Errorf("a change that takes nothing away: %v", err)
	}
	role := func() access.Role {
		now, err := s.Account(t.Context(), a.ID)
		if err != nil {
			t.Error(err)
		}
		m, _ := now.Member(bob.Network, bob.Subject)
		return m.Role
	}
	for _, step := range []struct {
		what string
		take func(context.Context) error
		gone func() bool
	}{
		{audit.KeyWasRevoked, func(ctx context.Context) error {
			_, err := s.RevokeKey(ctx, ada.Actor(), a.ID, k.ID)
			return err
		}, func() bool {
			now, err := s.find(t.Context(), k.ID)
			return err == nil && !now.RevokedAt.IsZero()
		}},
		{audit.RoleChanged, func(ctx context.Context) error {
			_, err := s.SetRole(ctx, ada.Actor(), a.ID, bob.Network, bob.Subject, access.RoleViewer)
			return err
		}, func() bool { return role() == access.RoleViewer }},
		{audit.MemberRemoved, func(ctx context.Context) error {
			_, err := s.RemoveMember(ctx, ada.Actor(), a.ID, bob.Network, bob.Subject)
			return err
		}, func() bool { return role() == "" }},
		{audit.LinkRevoked, func(ctx context.Context) error {
			return s.RevokeLoginLink(ctx, access.Operator(""), a.ID, l.ID)
		}, func() bool {
			_, err := s.LoginLinkGrant(t.Context(), a.ID, l.ID)
			return errors.Is(err, grant.ErrNoLink)
		}},
		{audit.AccountDisabled, func(ctx context.Context) error {
			_, err := s.Disable(ctx, access.Operator(""), a.ID, "")
			return err
		}, func() bool {
			now, err := s.Account(t.Context(), a.ID)
			return err == nil && !now.InService()
		}},
	} {
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- step.take(ctx) }()
		natstest.Await(t, step.what, step.gone)
		leave()
		if err := natstest.Receive(t, "the end of "+step.what, ended); !errors.Is(err,
			natsconf.ErrUncertain) {
			t.Errorf("%s without a record: %v", step.what, err)
		}
	}
	natstest.Ensure(t, s.conn)
	if _, err := s.Enable(t.Context(), access.Operator(""), a.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for _, r := range slices.Backward(page.Records) {
		log = append(log, r.What)
		if len(r.Later) > 0 {
			t.Errorf("the log holds %+v in %s", r.Later, r.What)
		}
	}
	want := []string{ // what was there before has left with the stream, but what the entries hold
		audit.MemberAdded, audit.RoleChanged, audit.MemberRemoved, audit.AccountDisabled,
		audit.AccountEnabled, audit.KeyCreated, audit.KeyWasRevoked, audit.LinkRevoked,
	}
	if !slices.Equal(log, want) {
		t.Errorf("the log has %q, want %q", log, want)
	}
	if e, err := entry.Get(t.Context(), s.conn, topology.BucketAccounts, a.ID); err != nil ||
		strings.Contains(string(e.Value), `"later"`) {
		t.Errorf("the account still holds what is in the log: %s, %v", e.Value, err)
	}
}

// And for an account, at the start.
func TestRepairOfAnAccount(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	dieAfter(t, s, a.ID, 7)
	for range 2 {
		if err := s.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil || len(page.Records) != 2 || page.Records[0].What != audit.QuotaSet {
		t.Errorf("the log: %+v, %v", page.Records, err)
	}
}

// Records of the previous version are read, found by id, changed, and written in the new version.
func TestRecordsOfVersion1(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := account.IDOf("Old Guild")
	var sealed [][]byte
	for _, v := range []string{"whsec_new", "whsec_old"} {
		sealed = append(sealed, s.box.Seal([]byte(v), id))
	}
	put := func(bucket, entry string, record map[string]any) {
		t.Helper()
		data, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, s.conn, topology.BucketSubject(bucket, entry), data)
	}
	put(topology.BucketAccounts, id, map[string]any{
		"v": 1, "name": "Old Guild", "quota": 5, "created_at": created, "secrets": sealed,
	})
	secret := secrets.NewKey(false)
	d, _, err := secrets.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	put(topology.BucketKeys, d.EntryV1(), map[string]any{
		"v": 1, "account": id, "last4": secret[len(secret)-4:], "policy": sessions.PolicyOnce,
		"created_at": created,
	})

	a, err := s.AccountByName(t.Context(), "Old Guild")
	if err != nil || a.Quota != 5 || len(a.Signing(time.Now())) != 2 || a.Secrets[0].Value != "whsec_new" ||
		!a.Secrets[1].CreatedAt.Equal(created) {
		t.Errorf("account: %+v, %v", a, err)
	}
	for _, name := range []string{secret, d.ID()} {
		k, err := s.find(t.Context(), name)
		if err != nil || k.Account != id || k.entry.Key != d.EntryV1() {
			t.Errorf("key by %q: %+v, %v", name[:4], k.Key, err)
		}
	}
	_, next, err := s.RollKey(t.Context(), access.Operator(""), id, d.ID(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetQuota(t.Context(), access.Operator(""), id, 6); err != nil {
		t.Fatal(err)
	}
	a, err = s.AccountByName(t.Context(), "Old Guild")
	if err != nil || a.Quota != 6 || len(a.Secrets) != 2 {
		t.Errorf("account after a change: %+v, %v", a, err)
	}
	if keys, err := s.Keys(t.Context()); err != nil || len(keys) != 2 || keys[0].ReplacedBy != next.ID {
		t.Errorf("both keys, the old one as replaced by %s: %+v, %v", next.ID, keys, err)
	}
	if _, err := s.RevokeKey(t.Context(), access.Operator(""), "", secret); err != nil {
		t.Errorf("revoking it by the key itself: %v", err)
	}
	put(topology.BucketAccounts, account.IDOf("Next Guild"), map[string]any{
		"v": 5, "name": "Next Guild",
	})
	if _, err := s.AccountByName(t.Context(), "Next Guild"); err == nil || errors.Is(err,
		account.ErrNoAccount) {
		t.Errorf("a record of a newer version: %v", err)
	}
}

// unseal makes the record of an account one that does not open under this master key.
func unseal(t *testing.T, s *Store, id string) {
	t.Helper()
	e, err := entry.Get(t.Context(), s.conn, topology.BucketAccounts, id)
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(e.Value, &r); err != nil {
		t.Fatal(err)
	}
	r["signing_secrets"] = []any{map[string]any{"sealed": []byte("x"), "created_at": time.Now()}}
	data, err := json.Marshal(r)
	if err == nil {
		err = s.put(t.Context(), topology.BucketAccounts, id, data, e.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An account whose record does not open, and a key's entry that holds something else, are reported. They keep
// no other account from its end, and no record from the log.
func TestUnreadableAccountKeepsNoOtherFromItsEnd(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	var ids []string
	for _, name := range []string{"broken", "due", "behind"} {
		a, err := s.CreateAccount(t.Context(), access.Operator(""), name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	broken, due, behind := ids[0], ids[1], ids[2]
	_, k, err := s.CreateKey(t.Context(), access.Operator(""), due, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.put(t.Context(), topology.BucketKeys, "planted", []byte("planted"), 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{broken, due} { // in the order in which they are listed
		if _, err := s.AskDeletion(t.Context(), access.Operator(""), id); err != nil {
			t.Fatal(err)
		}
		if id == broken {
			unseal(t, s, id)
		}
	}
	dieAfter(t, s, behind, 7)
	s.Now = func() time.Time { return time.Now().Add(account.DeleteGrace + time.Minute) }
	var unreadable error
	s.ReportUnreadable(func(err error) { unreadable = errors.Join(unreadable, err) })
	err = errors.Join(s.Repair(t.Context()), unreadable)
	for _, want := range []string{"delete account " + broken, "planted"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported: %v", want, err)
		}
	}
	if _, err := s.Deleted(t.Context(), due); err != nil {
		t.Errorf("the account that was due: %v", err)
	}
	if keys, _ := s.Keys(t.Context()); len(keys) != 1 || keys[0].ID != k.ID || keys[0].RevokedAt.IsZero() {
		t.Errorf("its keys: %+v", keys)
	}
	page, err := s.Audit(t.Context(), behind, "", 0)
	if err != nil || page.Records[0].What != audit.QuotaSet {
		t.Errorf("the log of the other: %+v, %v", page.Records, err)
	}
}

// A key that a newer build has written keeps neither the other keys of its account from their end, nor the
// login links. One of another account does not matter.
func TestNewerKeyKeepsNothingElseFromItsEnd(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	b, berr := s.CreateAccount(t.Context(), access.Operator(""), "b")
	_, _, lerr := s.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
	if err := errors.Join(err, berr, lerr); err != nil {
		t.Fatal(err)
	}
	const others = 8 // several: they are read in any order
	var keys []account.Key
	for i := range 2 + others {
		_, k, err := s.CreateKey(t.Context(), access.Operator(""), []string{a.ID, b.ID, a.ID}[min(i, 2)],
			account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	newer, elsewhere := keys[0].ID, keys[1].ID
	for _, id := range []string{newer, elsewhere} {
		found, err := s.find(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, s.conn, topology.BucketSubject(topology.BucketKeys, found.entry.Key),
			[]byte(strings.Replace(string(found.entry.Value), `"v":2`, `"v":99`, 1)))
	}
	d, err := s.DeleteAccount(t.Context(), access.Operator(""), a.ID, false)
	if !errors.Is(err, natsconf.ErrNewer) || !strings.Contains(err.Error(), newer) ||
		strings.Contains(err.Error(), elsewhere) || d.Keys != others || d.Links != 1 {
		t.Errorf("%d keys and %d links have ended: %v; want %d and 1, and %s named", d.Keys, d.Links, err,
			others, newer)
	}
	for _, k := range keys[2:] {
		if now, err := s.find(t.Context(), k.ID); err != nil || now.RevokedAt.IsZero() {
			t.Errorf("another key: %+v, %v", now.Key, err)
		}
	}
	if links, err := s.LoginLinks(t.Context(), a.ID); err != nil || len(links) != 0 {
		t.Errorf("the links: %+v, %v", links, err)
	}
}

// An account that others change all the time keeps no other one from its end: the store answers. An entry
// without a name that can be read is reported.
func TestContendedAccountKeepsNoOtherFromItsEnd(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	var ids []string
	for i := range 9 { // the first is contended; the others are several, since they are read in any order
		a, err := s.CreateAccount(t.Context(), access.Operator(""), fmt.Sprint("due ", i))
		if err == nil {
			_, err = s.AskDeletion(t.Context(), access.Operator(""), a.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	const planted = "acc_aaaaaaaaaaaaaaaaaaaa"
	e, err := entry.Get(t.Context(), s.conn, topology.BucketAccounts, ids[0])
	if err == nil {
		err = s.put(t.Context(), topology.BucketAccounts, planted, []byte("planted"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Now = func() time.Time { // which a change asks for between its read and its write
		natstest.Publish(t, s.conn, topology.BucketSubject(topology.BucketAccounts, ids[0]), e.Value)
		return time.Now().Add(account.DeleteGrace + time.Minute)
	}
	var unreadable []string
	s.ReportUnreadable(func(err error) { unreadable = append(unreadable, err.Error()) })
	if err := s.EndDue(t.Context()); !errors.Is(err, natsconf.ErrUnavailable) ||
		!strings.Contains(err.Error(), ids[0]) {
		t.Errorf("the contended account: %v", err)
	}
	for _, id := range ids[1:] {
		if _, err := s.Deleted(t.Context(), id); err != nil {
			t.Errorf("an account that was due: %v", err)
		}
	}
	if len(unreadable) != 1 || !strings.Contains(unreadable[0], planted) {
		t.Errorf("reported are %q, want %s", unreadable, planted)
	}
}

// Records that a newer build has written in the log keep nobody from a change, whatever their form: the next
// number follows theirs, and the record of a change whose maker has died comes after them, once.
func TestNewerAuditRecordsKeepNothingFromChange(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, k, err := s.CreateKey(t.Context(), access.Operator(""), a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dieAfter(t, s, a.ID, 7) // as number 3, which others take
	newer := func(n int, record string) {
		natstest.Publish(t, s.conn, fmt.Sprintf("audit.%s.%d", a.ID, n), []byte(record))
	}
	newer(3, `{"v":99,"id":"x","n":3}`)
	newer(4, `{"v":99,"id":["another shape"]}`)
	if _, err := s.RevokeKey(t.Context(), access.Operator(""), a.ID, k.ID); err != nil {
		t.Errorf("a revocation: %v", err)
	}
	for range 2 {
		if err := s.Repair(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := s.SetQuota(t.Context(), access.Operator(""), a.ID, 8); err != nil {
		t.Errorf("a change: %v", err)
	}
	for i, want := range []string{audit.KeyWasRevoked, audit.QuotaSet, audit.QuotaSet, ""} {
		m, err := s.conn.Last(t.Context(), topology.StreamAudit, fmt.Sprintf("audit.%s.%d", a.ID, i+5))
		if want == "" {
			if !errors.Is(err, natsconf.ErrNotFound) {
				t.Errorf("one record too many: %v, %v", m, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := audit.Decode(m.Data); err != nil || r.What != want || r.Number != int64(i+5) {
			t.Errorf("record %d is %+v, %v; want %s", i+5, r, err, want)
		}
	}
}
