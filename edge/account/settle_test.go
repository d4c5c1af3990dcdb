package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
)

func startStore(t *testing.T) *Store {
	t.Helper()
	s, err := NewStore(t.Context(), natstest.Start(t), secretbox.NewKey())
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
	if a.last, err = s.draft(t.Context(), Operator("dead"), id, QuotaSet, "", map[string]string{
		"to": fmt.Sprint(quota),
	}); err != nil {
		t.Fatal(err)
	}
	data, err := encodeAccount(a, s.box)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.put(t.Context(), s.accounts, id, data, e.Revision()); err != nil {
		t.Fatal(err)
	}
}

// Who dies between a change and its record leaves the record in what was changed; the next one who changes it
// writes both.
func TestRecordOfAChangeWhoseMakerDied(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	dieAfter(t, s, a.ID, 7)
	for i := range 3 { // others take the number that the record was drafted with
		if err := s.Note(t.Context(), Operator(""), a.ID, "test.note", fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.RotateSecret(t.Context(), Operator(""), a.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RotateSecret(t.Context(), Operator(""), a.ID, 0); err != nil { // and not once more
		t.Fatal(err)
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		SecretRotated, SecretRotated, QuotaSet, "test.note", "test.note", "test.note", AccountCreated,
	}
	if len(page.Records) != len(want) {
		t.Fatalf("the log: %+v", page.Records)
	}
	for i, r := range page.Records {
		if r.What != want[i] || r.Number != int64(len(want)-i) || r.What == QuotaSet && r.Who.Name != "dead" {
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
	k.RevokedAt = s.instant()
	if k.last, err = s.draft(t.Context(), Operator("dead"), k.Account, KeyWasRevoked, id, nil); err != nil {
		t.Fatal(err)
	}
	data, err := encodeKey(k.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.put(t.Context(), s.keys, k.entry, data, k.revision); err != nil {
		t.Fatal(err)
	}
}

// The same for a key, also when the next one finds nothing left to change; and at the start of a service, for
// what nobody changes again.
func TestRecordOfAKeyWhoseMakerDied(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	for what, settle := range map[string]func(id string) error{
		"a repeat": func(id string) error {
			_, err := s.RevokeKey(t.Context(), Operator(""), a.ID, id)
			return err
		},
		"a start": func(string) error { return s.Settle(t.Context()) },
	} {
		_, k, err := s.CreateKey(t.Context(), Operator(""), a.ID, KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		dieRevoking(t, s, k.ID)
		before, err := s.ledger.last(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to do
			if err := settle(k.ID); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.Audit(t.Context(), a.ID, "", 0)
		if err != nil || page.Records[0].What != KeyWasRevoked || page.Records[0].On != k.ID ||
			page.Records[0].Number != before+1 {
			t.Errorf("%s: the log: %+v, %v", what, page.Records, err)
		}
	}
}

// dieTakingBack is dieAfter for a grant.
func dieTakingBack(t *testing.T, s *Store, of Grant) {
	t.Helper()
	g, revision, err := s.grant(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	g.Ended = s.instant()
	if g.last, err = s.draft(t.Context(), Operator("dead"), g.log(), LinkRevoked, g.Holder(),
		nil); err != nil {
		t.Fatal(err)
	}
	if err := s.putGrant(t.Context(), g, revision); err != nil {
		t.Fatal(err)
	}
}

// The same for what a login link gives, which nobody has in the meantime: also when the next one finds
// nothing left to take back, when somebody is made an operator again, and at the start of a service.
func TestRecordOfAGrantWhoseMakerDied(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	link := func() Grant {
		t.Helper()
		_, l, err := s.LoginLink(t.Context(), Operator(""), a.ID, RoleOwner)
		if err != nil {
			t.Fatal(err)
		}
		return Grant{Link: l.ID, Account: a.ID}
	}
	olga, err := s.GrantOperator(t.Context(), Operator(""), "example", "olga")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		of     Grant
		settle func(Grant) error
		beside []string // what is in the log besides, after it
	}{
		"a repeat": {link(), func(g Grant) error {
			if err := s.RevokeLoginLink(t.Context(), Operator(""), a.ID, g.Link); !errors.Is(err, ErrNoLink) {
				return fmt.Errorf("it was there still: %w", err)
			}
			return nil
		}, nil},
		"a start": {link(), func(Grant) error { return s.Settle(t.Context()) }, nil},
		"a grant": {Grant{Network: olga.Network, Subject: olga.Subject}, func(g Grant) error {
			_, err := s.GrantOperator(t.Context(), Operator(""), g.Network, g.Subject)
			return err
		}, []string{OperatorGranted, OperatorGranted}},
	} {
		dieTakingBack(t, s, c.of)
		if is, err := s.granted(t.Context(), c.of); err != nil || is {
			t.Errorf("%s: it is in force: %t, %v", what, is, err)
		}
		before, err := s.ledger.last(t.Context(), c.of.log())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to settle
			if err := c.settle(c.of); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.Audit(t.Context(), c.of.log(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		want := append([]string{LinkRevoked}, c.beside...)
		var got []string
		for _, r := range slices.Backward(page.Records) {
			if r.Number > before {
				got = append(got, r.What)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: then the log tells %q, want %q", what, got, want)
		}
	}
}

// What was taken back is so before the log is asked: it cannot wait for it.
func TestTakingBackDoesNotWaitForItsRecord(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, l, err := s.LoginLink(t.Context(), Operator(""), a.ID, RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.conn.JS.Stream(t.Context(), natsconf.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	full := stream.CachedInfo().Config
	full.MaxMsgs, full.Discard = int64(stream.CachedInfo().State.Msgs), jetstream.DiscardNew
	if _, err := s.conn.JS.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeLoginLink(t.Context(), Operator(""), a.ID, l.ID); !errors.Is(err,
		natsconf.ErrUncertain) {
		t.Errorf("without its record: %v", err)
	}
	if g, err := s.LoginLinkGrant(t.Context(), a.ID, l.ID); !errors.Is(err, ErrNoLink) {
		t.Errorf("it gives %+v still: %v", g, err)
	}
	full.MaxMsgs = -1
	if _, err := s.conn.JS.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil || page.Records[0].What != LinkRevoked || page.Records[0].On != l.ID {
		t.Errorf("the log: %+v, %v", page.Records, err)
	}
}

// And for an account, at the start.
func TestSettleOfAnAccount(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	a, err := s.CreateAccount(t.Context(), Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	dieAfter(t, s, a.ID, 7)
	for range 2 {
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Audit(t.Context(), a.ID, "", 0)
	if err != nil || len(page.Records) != 2 || page.Records[0].What != QuotaSet {
		t.Errorf("the log: %+v, %v", page.Records, err)
	}
}

// Within the hour a use costs no entry in the list of what is to be written.
func TestUseWithinTheHourIsNotDue(t *testing.T) {
	u := NewUses(nil, zerolog.Nop())
	now := time.Now()
	for i, want := range []int{1, 0, 1} {
		u.RecordUse("key_a", now.Add([]time.Duration{0, useEvery - 1, useEvery}[i]))
		if len(u.due) != want {
			t.Errorf("use %d: %d are due, want %d", i+1, len(u.due), want)
		}
		clear(u.due)
	}
}

// Records of the version before are read, found by id, changed, and written in the new version.
func TestRecordsOfVersion1(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := idOf("Old Guild")
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
		if _, err := s.conn.JS.Publish(t.Context(), natsconf.BucketSubject(bucket, entry), data); err != nil {
			t.Fatal(err)
		}
	}
	put(natsconf.BucketAccounts, id, map[string]any{
		"v": 1, "name": "Old Guild", "quota": 5, "created_at": created, "secrets": sealed,
	})
	secret := newSecret(false)
	d, _, err := parseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	put(natsconf.BucketKeys, d.entryV1(), map[string]any{
		"v": 1, "account": id, "last4": secret[len(secret)-4:], "policy": sessions.PolicyOnce,
		"created_at": created,
	})

	a, err := s.AccountByName(t.Context(), "Old Guild")
	if err != nil || a.Quota != 5 || len(a.Signing(time.Now())) != 2 || a.Secrets[0].Value != "whsec_new" ||
		!a.Secrets[1].CreatedAt.Equal(created) {
		t.Errorf("account: %+v, %v", a, err)
	}
	for _, name := range []string{secret, d.id()} {
		k, err := s.find(t.Context(), name)
		if err != nil || k.Account != id || k.entry != d.entryV1() {
			t.Errorf("key by %q: %+v, %v", name[:4], k.Key, err)
		}
	}
	_, next, err := s.RollKey(t.Context(), Operator(""), id, d.id(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetQuota(t.Context(), Operator(""), id, 6); err != nil {
		t.Fatal(err)
	}
	a, err = s.AccountByName(t.Context(), "Old Guild")
	if err != nil || a.Quota != 6 || len(a.Secrets) != 2 {
		t.Errorf("account after a change: %+v, %v", a, err)
	}
	if keys, err := s.Keys(t.Context()); err != nil || len(keys) != 2 || keys[0].ReplacedBy != next.ID {
		t.Errorf("both keys, the old one as replaced by %s: %+v, %v", next.ID, keys, err)
	}
	if _, err := s.RevokeKey(t.Context(), Operator(""), "", secret); err != nil {
		t.Errorf("revoking it by the key itself: %v", err)
	}
	put(natsconf.BucketAccounts, idOf("Next Guild"), map[string]any{
		"v": accountVersion + 1, "name": "Next Guild",
	})
	if _, err := s.AccountByName(t.Context(), "Next Guild"); err == nil || errors.Is(err, ErrNoAccount) {
		t.Errorf("a record of a newer version: %v", err)
	}
}
