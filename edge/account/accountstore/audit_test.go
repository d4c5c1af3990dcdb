package accountstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// all reads the whole log by pages, oldest first, and checks that nothing is missing or repeated.
func (h harness) all(t *testing.T, id string, limit int) []audit.Record {
	t.Helper()
	var newest []audit.Record
	for cursor := ""; ; {
		page, err := h.store.Audit(natstest.Patient(t), id, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) > limit {
			t.Errorf("a page of %d records", len(page.Records))
		}
		newest = append(newest, page.Records...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	records := make([]audit.Record, len(newest))
	for i, r := range newest {
		records[len(newest)-1-i] = r
		if want := int64(len(newest) - i); r.Number != want {
			t.Errorf("record %d has number %d", want, r.Number)
		}
	}
	return records
}

// Each change is in the log when it is acknowledged, with actor, action and object; refused changes are not.
func TestEveryChangeIsInTheLog(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second) // records name their second
	h := start(t)
	a := h.account(t, "a", ada)
	by := ada.Actor()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, k, err := h.store.CreateKey(t.Context(), by, a.ID, account.KeyOptions{Name: "bot"})
	must(err)
	_, next, err := h.store.RollKey(t.Context(), by, a.ID, k.ID, time.Hour)
	must(err)
	must(third(h.store.RevokeKey(t.Context(), operator, "", k.ID)))
	must(third(h.store.RevokeKey(t.Context(), operator, "", k.ID))) // a repeat changes nothing
	must(err2(h.store.RotateSecret(t.Context(), by, a.ID, time.Hour)))
	must(err2(h.store.EndRotation(t.Context(), by, a.ID)))
	must(err2(h.store.RevealSecrets(t.Context(), by, a.ID)))
	must(h.store.SetQuota(t.Context(), operator, a.ID, 7))
	must(h.store.SetQuota(t.Context(), operator, a.ID, 7))
	token, invite, err := h.store.CreateInvite(t.Context(), by, a.ID, access.RoleViewer, "Bob")
	must(err)
	must(err2(h.store.AcceptInvite(t.Context(), token, bob)))
	must(err2(h.store.SetRole(t.Context(), by, a.ID, "dev", "bob", access.RoleDeveloper)))
	must(err2(h.store.RemoveMember(t.Context(), bob.Actor(), a.ID, "dev", "bob")))
	must(err2(h.store.AddMember(t.Context(), operator, a.ID, cleo)))
	_, gone, err := h.store.CreateInvite(t.Context(), by, a.ID, access.RoleViewer, "")
	must(err)
	must(err2(h.store.WithdrawInvite(t.Context(), by, a.ID, gone.ID)))
	link, l, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleOwner)
	must(err)
	must(err2(h.store.RedeemLoginLink(t.Context(), link)))
	must(h.store.RevokeLoginLink(t.Context(), operator, a.ID, l.ID))
	must(h.store.Note(t.Context(), by, a.ID, audit.CallbackSent, "sid", nil))
	for _, err := range []error{
		err2(h.store.RotateSecret(t.Context(), cleo.Actor(), a.ID, 0)),
		err2(h.store.EndRotation(t.Context(), by, a.ID)),
		err2(h.store.RedeemLoginLink(t.Context(), link)),
		fourth(h.store.RollKey(t.Context(), by, a.ID, k.ID, 0)),
	} {
		if err == nil {
			t.Error("a refusal is missing")
		}
	}

	want := []string{
		"operator: account.created  name=a", "Ada: key.created " + k.ID + " mode=live",
		"Ada: key.rolled " + k.ID + " into=" + next.ID, "operator: key.revoked " + k.ID + " name=bot",
		"Ada: secret.rotated  ", "Ada: secret.rotation_ended  ", "Ada: secret.revealed  ",
		"operator: quota.set  to=7",
		"Ada: invite.created " + invite.ID + " for=Bob", "Bob: member.joined dev:bob role=viewer",
		"Ada: member.role_changed dev:bob to=developer", "Bob: member.removed dev:bob role=developer",
		"operator: member.added dev:cleo name=Cleo", "Ada: invite.created " + gone.ID + " role=viewer",
		"Ada: invite.withdrawn " + gone.ID + " ",
		"operator: login_link.created " + l.ID + " role=owner",
		"login link " + l.ID + ": login_link.redeemed " + l.ID + " role=owner",
		"operator: login_link.revoked " + l.ID + " role=owner", "Ada: callback.sent_again sid ",
	}
	got := h.all(t, a.ID, 5)
	if len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	for i, r := range got[:min(len(got), len(want))] {
		line := fmt.Sprintf("%s: %s %s ", r.Who, r.What, r.On)
		if _, ok := cutLine(want[i], line, r.Detail); !ok || r.Account != a.ID ||
			r.At.Before(began) || r.At.After(time.Now()) {
			t.Errorf("record %d is %q %v at %s, want %q", i+1, line, r.Detail, r.At, want[i])
		}
	}
}

// cutLine compares a line and the one detail that a test names after it.
func cutLine(want, line string, detail map[string]string) (string, bool) {
	if len(want) < len(line) || want[:len(line)] != line {
		return "", false
	}
	rest := want[len(line):]
	for name, value := range detail {
		if rest == name+"="+value {
			return rest, true
		}
	}
	return rest, rest == ""
}

// Many changes at once, from several edges, are numbered without a gap and without a loss.
func TestLogOfManyAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	edges := h.edges(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if err := edges[i%4].Note(t.Context(), operator, a.ID, "test.note", fmt.Sprint(i),
				nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, r := range h.all(t, a.ID, 7) {
		seen[r.On] = true
	}
	if len(seen) != 41 {
		t.Errorf("%d records, want 41", len(seen))
	}
}

func TestLogOfOthersAndCursors(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	if page, err := h.store.Audit(t.Context(), "acc_aaaaaaaaaaaaaaaaaaaa", "", 10); err != nil ||
		len(page.Records) != 0 || page.Next != "" {
		t.Errorf("log of nobody: %+v, %v", page, err)
	}
	for _, cursor := range []string{"0", "-1", "x", "1.5", "99999999999999999999"} {
		if err := err2(h.store.Audit(t.Context(), a.ID, cursor, 10)); !errors.Is(err, audit.ErrCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if err := err2(h.store.Audit(t.Context(), "*", "", 10)); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("everybody's log: %v", err)
	}
}

// No record can be overwritten or removed, nor the log cleared, not even with the server's own commands.
func TestLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	subject := "audit." + a.ID + ".1"
	m, err := h.conn.Last(t.Context(), topology.StreamAudit, subject)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.conn.JS.Publish(t.Context(), subject, []byte("forged")); err == nil {
		t.Error("a record was written over")
	}
	roll := &nats.Msg{Subject: subject, Data: []byte("forged"), Header: nats.Header{"Nats-Rollup": {"sub"}}}
	if _, err := h.conn.JS.PublishMsg(t.Context(), roll); err == nil {
		t.Error("a record was rolled up")
	}
	s, err := h.conn.JS.Stream(t.Context(), topology.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	if s.DeleteMsg(t.Context(), m.Sequence) == nil || s.SecureDeleteMsg(t.Context(), m.Sequence) == nil ||
		s.Purge(t.Context()) == nil {
		t.Error("a record was taken away")
	}
	if got := h.all(t, a.ID, 10); len(got) != 1 || got[0].What != audit.AccountCreated {
		t.Errorf("the log: %+v", got)
	}
}

// What no verifyd wrote among an account's records, also as the newest and past the next number, hides none
// of them, and the next record gets the next number.
func TestForeignAuditRecordsHideNone(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	const many = 30
	for i := range many {
		if err := h.store.SetQuota(t.Context(), operator, a.ID, int64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	before := h.all(t, a.ID, 100)
	for _, number := range []string{"5000", fmt.Sprint(len(before) + 3), "x"} {
		natstest.Plant(t, h.conn, topology.StreamAudit, "audit."+a.ID+"."+number)
		if after := h.all(t, a.ID, 100); whats(after) != whats(before) {
			t.Errorf("with %s: %s, before %s", number, whats(after), whats(before))
		}
	}
	if err := h.store.SetQuota(t.Context(), operator, a.ID, 1000); err != nil {
		t.Fatal(err)
	}
	after := h.all(t, a.ID, 100)
	if len(after) != len(before)+1 || h.number(t, a.ID) != int64(len(before)+1) {
		t.Errorf("%d records after %d, the last is %d", len(after), len(before), h.number(t, a.ID))
	}
	// past the next number, as an edge's credential can write it
	last := h.number(t, a.ID)
	m, err := h.conn.Last(t.Context(), topology.StreamAudit, fmt.Sprint("audit.", a.ID, ".", last))
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(m.Data), fmt.Sprint(`"n":`, last), fmt.Sprint(`"n":`, last+20), 1)
	natstest.Publish(t, h.conn, fmt.Sprint("audit.", a.ID, ".", last+20), []byte(forged))
	page, err := h.store.Audit(t.Context(), a.ID, "", 100)
	if err != nil || len(page.Records) != len(after)+1 {
		t.Errorf("a forged record hides %d others, %v", len(after)+1-len(page.Records), err)
	}
}

// number returns the number of an account's newest record.
func (h harness) number(t *testing.T, id string) int64 {
	t.Helper()
	page, err := h.store.Audit(t.Context(), id, "", 1)
	if err != nil || len(page.Records) == 0 {
		t.Fatal(err)
	}
	return page.Records[0].Number
}

// What no verifyd wrote beside a key's entry keeps nobody from revoking the key by its id.
func TestKeyBesideAForeignEntryIsRevoked(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "Harbor Guild", ada)
	_, k := h.key(t, a, account.KeyOptions{})
	entries, ok := secrets.EntriesOf(k.ID)
	if !ok {
		t.Fatal(k.ID)
	}
	natstest.Plant(t, h.conn, topology.BucketStream(topology.BucketKeys),
		topology.BucketSubject(topology.BucketKeys, strings.Replace(entries, "*", "x", 1)))
	if err := err2(h.store.RevokeKey(t.Context(), operator, a.ID, k.ID)); err != nil {
		t.Error(err)
	}
}
