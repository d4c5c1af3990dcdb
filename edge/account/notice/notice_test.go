package notice

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

var (
	acme  = account.IDOf("Acme")
	other = account.IDOf("Other")
	ann   = access.Actor{Kind: access.ActorMember, Network: "example", Subject: "1", Name: "Ann"}
	ben   = access.Actor{Kind: access.ActorMember, Network: "example", Subject: "2", Name: "Ann"}
)

func rotated(cause string) Notice {
	return New(acme, SecretRotated, cause, time.Now(), "The secret was rotated.", map[string]any{"by": "Ann"})
}

func raise(t *testing.T, s *Store, all ...Notice) {
	t.Helper()
	for _, n := range all {
		if err := s.Raise(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
}

// Processes that see one cause, concurrently and repeatedly, notify once.
func TestCauseIsReportedOnce(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s := NewStore(conn)
			for _, cause := range []string{"one", "two", "one"} {
				if err := s.Raise(t.Context(), rotated(cause)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, last, err := conn.Bounds(t.Context(), topology.StreamNotices); err != nil || last != 2 {
		t.Errorf("%d messages for two causes, %v: each would be posted", last, err)
	}
	s := NewStore(conn)
	raise(t, s, New(other, SecretRotated, "one", time.Now(), "", nil))
	got, err := s.List(t.Context(), acme)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d notices of two causes, %v", len(got), err)
	}
	if got, err = s.List(t.Context(), other); err != nil || len(got) != 1 {
		t.Errorf("%d notices of another account, %v", len(got), err)
	}
	if err := s.Raise(t.Context(), New("*", SecretRotated, "x", time.Now(), "", nil)); !errors.Is(err,
		account.ErrNoAccount) {
		t.Errorf("for what is no account: %v", err)
	}
}

// Each member has their own marks, what comes after a mark is unread, and a mark outlives a move of the
// store, where messages get other sequences.
func TestReadMarks(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := NewStore(conn)
	unread := func(who access.Actor, want int) {
		t.Helper()
		if n, err := s.Unread(t.Context(), acme, who); err != nil || n != want {
			t.Errorf("%d unread for %s, want %d; %v", n, who.Subject, want, err)
		}
	}
	unread(ann, 0)
	raise(t, s, rotated("1"), rotated("2"), rotated("3"))
	unread(ann, 3)
	all, err := s.List(t.Context(), acme)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.MarkRead(t.Context(), acme, ann, all[1].ID); err != nil {
		t.Fatal(err)
	}
	unread(ann, 1)
	unread(ben, 3)
	for range 2 { // a repeat, and one of an older notice, take nothing back
		if err := s.MarkRead(t.Context(), acme, ann, all[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := s.MarkRead(t.Context(), acme, ann, all[2].ID); err != nil {
			t.Fatal(err)
		}
	}
	unread(ann, 0)
	raise(t, s, rotated("4"))
	unread(ann, 1)
	seen, err := s.Seen(t.Context(), acme, ann)
	if err != nil || len(seen) != 4 || seen[0].Read || !seen[1].Read || !seen[3].Read {
		t.Errorf("seen: %+v, %v", seen, err)
	}
	if err := s.MarkRead(t.Context(), acme, ann, "notice_unknown"); err != nil {
		t.Errorf("a notice that has left: %v", err)
	}
}

// An account with too many notices gets no more until older ones have been removed.
func TestAnAccountsNoticesAreBounded(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := NewStore(conn)
	for i := range MaxKept {
		n := rotated(fmt.Sprint(i))
		data, err := n.encode()
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, conn, subjectOf(acme, n.ID), data)
	}
	if err := s.Raise(t.Context(), rotated("0")); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := s.Raise(t.Context(), rotated("more")); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	raise(t, s, New(other, SecretRotated, "more", time.Now(), "", nil))
	all, err := s.List(t.Context(), acme)
	if err != nil || len(all) != MaxKept {
		t.Fatalf("%d, %v", len(all), err)
	}
	if err := s.MarkRead(t.Context(), acme, ann, all[0].ID); err != nil {
		t.Errorf("a mark of all: %v", err)
	}
	if n, err := s.Unread(t.Context(), acme, ann); n != 0 || err != nil {
		t.Errorf("%d unread, %v", n, err)
	}
}

// What a newer build has written is left out of the list and refused as a mark.
func TestNewerNoticesAreLeft(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := NewStore(conn)
	raise(t, s, rotated("1"))
	newer := `{"v":2,"type":{"new":"shape"}}`
	for _, subject := range []string{subjectOf(acme, rotated("2").ID), markSubject(acme, ann)} {
		natstest.Publish(t, conn, subject, []byte(newer))
	}
	if all, err := s.List(t.Context(), acme); err != nil || len(all) != 1 {
		t.Errorf("%d, %v", len(all), err)
	}
	if _, err := s.Seen(t.Context(), acme, ann); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("a newer mark: %v", err)
	}
	if err := s.MarkRead(t.Context(), acme, ann, rotated("1").ID); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("a newer mark is written over: %v", err)
	}
}

// A mark that cannot be read is none, and the next one replaces it.
func TestDamagedMarkIsReplaced(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := NewStore(conn)
	raise(t, s, rotated("1"))
	natstest.Publish(t, conn, markSubject(acme, ann), []byte(`{"v":1,"read":[`))
	if all, err := s.Seen(t.Context(), acme, ann); err != nil || len(all) != 1 || all[0].Read {
		t.Errorf("%+v, %v", all, err)
	}
	if err := s.MarkRead(t.Context(), acme, ann, rotated("1").ID); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Unread(t.Context(), acme, ann); n != 0 || err != nil {
		t.Errorf("%d unread, %v", n, err)
	}
}

// The body has a type, which no callback has, and none of the three members of a callback.
func TestBody(t *testing.T) {
	t.Parallel()
	n := New(acme, SecretRotated, "1", time.Date(2026, 12, 1, 8, 30, 0, 0, time.UTC), "Rotated.", nil)
	data, err := n.Body()
	want := `{"type":"secret.rotated","timestamp":"2026-12-01T08:30:00Z","id":"` + n.ID + `","account":"` +
		acme + `","detail":"Rotated.","data":{}}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil || members["verified"] != nil {
		t.Errorf("%v, %v", members, err)
	}
}

func TestNoticesAboutKeys(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	year := account.Key{ID: "key_a", Account: acme, CreatedAt: made, ExpiresAt: made.AddDate(1, 0, 0)}
	short := year
	short.ExpiresAt = made.Add(4 * time.Hour)
	revoked := year
	revoked.RevokedAt = made
	for _, c := range []struct {
		key  account.Key
		left time.Duration
		want Type
	}{
		{year, expiryLead + time.Second, ""},
		{year, expiryLead, KeyExpiring},
		{year, time.Second, KeyExpiring},
		{year, 0, KeyExpired},
		{year, -notifyExpiredFor + time.Second, KeyExpired},
		{year, -notifyExpiredFor, ""},
		{short, 61 * time.Minute, ""},
		{short, time.Hour, KeyExpiring},
		{revoked, time.Second, ""},
		{account.Key{ID: "key_b", Account: acme, CreatedAt: made}, 0, ""},
	} {
		n, ok := OfKey(c.key, c.key.ExpiresAt.Add(-c.left))
		if ok != (c.want != "") || n.Type != c.want {
			t.Errorf("%s left of %+v: %q, want %q", c.left, c.key, n.Type, c.want)
		}
	}
	now, later := year.ExpiresAt.Add(-time.Hour), year.ExpiresAt.Add(-time.Minute)
	a, _ := OfKey(year, now)
	b, _ := OfKey(year, later)
	rolled := year
	rolled.ExpiresAt = now.Add(time.Minute)
	c, _ := OfKey(rolled, now)
	if a.ID != b.ID || a.ID == c.ID {
		t.Error("one end of a key has one notice, and another end another")
	}
}

func TestNoticesAboutTheQuota(t *testing.T) {
	t.Parallel()
	reset := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	ids := map[string]bool{}
	for used, want := range map[int64]int64{0: 0, 49: 0, 50: 50, 79: 50, 80: 80, 99: 80, 100: 100, 120: 100} {
		n, ok := OfQuota(acme, used, 100, reset, reset)
		if ok != (want > 0) || ok && n.Data["percent"] != want {
			t.Errorf("%d of 100: %v, want %d", used, n.Data, want)
		}
		if ok {
			ids[n.ID] = true
		}
	}
	n, _ := OfQuota(acme, 60, 100, reset.AddDate(0, 1, 0), reset)
	if ids[n.ID] = true; len(ids) != 4 {
		t.Errorf("%d notices of three steps and another month", len(ids))
	}
	if _, ok := OfQuota(acme, 0, 0, time.Time{}, reset); ok {
		t.Error("no quota, and a notice")
	}
}

func TestNoticesAboutTheAuditLog(t *testing.T) {
	t.Parallel()
	hostile := "Ann\u202e<b>"
	n, ok := ofRecord(audit.Record{ID: "1", Account: acme, What: audit.MemberJoined, On: "example:7",
		Who: ann, Detail: map[string]string{"name": hostile, "role": "viewer"}})
	if !ok || strings.Contains(n.Detail, "\u202e") || n.Data["role"] != "viewer" {
		t.Errorf("%+v", n)
	}
	for _, what := range []string{audit.KeyCreated, audit.MemberRemoved, "newer.build"} {
		if n, ok := ofRecord(audit.Record{Account: acme, What: what}); ok {
			t.Errorf("%s: %+v", what, n)
		}
	}
	if _, ok := ofRecord(audit.Record{Account: audit.ServiceLog, What: audit.SecretRotated}); ok {
		t.Error("the service's own log is no account's")
	}
}

func FuzzNotice(f *testing.F) {
	n := rotated("1")
	data, err := n.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(subjectOf(acme, n.ID), data)
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		n, err := decode(subject, data)
		if err != nil {
			return
		}
		if subjectOf(n.Account, n.ID) != subject {
			t.Errorf("%q became %q", subject, subjectOf(n.Account, n.ID))
		}
		if _, err := n.Body(); err != nil {
			t.Error(err)
		}
	})
}

func FuzzMark(f *testing.F) {
	f.Add([]byte(`{"v":1,"read":["notice_a"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if read, err := decodeMark(data); err == nil && read == nil {
			t.Errorf("%q is read as nothing", data)
		}
	})
}
