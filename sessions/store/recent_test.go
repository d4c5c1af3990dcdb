package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/lists"
	"verifyd/sessions/records"
)

// A session's record is read once by each process: another read returns the same, for its own account, and
// without a read of the store.
func TestRecordsAreReadOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, token := h.create(t)
	first, err := h.store.ReadPending(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	h.removeRecord(t, s)
	again, err := h.store.ReadPending(t.Context(), token)
	if err != nil || again != first {
		t.Errorf("read again: %+v, %v; want %+v", again, err, first)
	}
	if v, err := h.store.ReadOf(t.Context(), s.Account, s.ID); err != nil || v.Session != first.Session {
		t.Errorf("read for its account: %+v, %v", v, err)
	}
	if _, err := h.store.ReadOf(t.Context(), "acc_b", s.ID); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read for another account: %v", err)
	}
	if _, err := newStore(t, h).ReadPending(t.Context(), token); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read by another process: %v", err)
	}
	// From the instant at which a clock that is ahead may allow its erasure, the cached record is not enough.
	h.clock.Advance(sessions.Lifetime - records.ClockSkew)
	if _, err := h.store.ReadPending(t.Context(), token); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read shortly before its end: %v", err)
	}
}

// A process that has read a session does not show it once its user is erased by a process whose clock is
// ahead.
func TestReadSessionsCanBeErased(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, token := h.create(t)
	ended, endedToken := h.create(t)
	h.complete(t, ended.ID, sessions.Canceled, sessions.CanceledReason)
	read := func() (err error) {
		_, err = h.store.ReadPending(t.Context(), token)
		_, e := h.store.ReadByToken(t.Context(), endedToken)
		return errors.Join(err, e)
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(sessions.Lifetime - records.ClockSkew + time.Second)
	ahead := newStoreAt(t, h, func() time.Time { return h.clock.Now().Add(records.ClockSkew) })
	if e, err := ahead.Erase(t.Context(), anybody(s.PlatformUserID), false); err != nil || e.Sessions != 2 {
		t.Fatalf("erase: %+v, %v", e, err)
	}
	_, err := h.store.ReadPending(t.Context(), token)
	if !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("pending: %v", err)
	}
	if _, err = h.store.ReadByToken(t.Context(), endedToken); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("ended: %v", err)
	}
}

// In a moved store, the record of a session that was completed at once stays for a moment after its outcome
// may not be read any more. The session is unknown then, and has not expired.
func TestSessionOfAMovedStoreEndsWithItsOutcome(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, token := h.create(t)
	record, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketSessions),
		records.RecordSubject(s.Account, s.ID))
	if err != nil {
		t.Fatal(err)
	}
	with, err := h.store.SealerOf(t.Context(), s.SealedUnder)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := records.EncodeCompletion(sessions.Completion{
		Session: s, Outcome: verified, CompletedAt: s.CreatedAt.Add(time.Second),
	}, with)
	if err != nil {
		t.Fatal(err)
	}
	h.clock.stop()
	until := h.clock.Now().Add(time.Hour)
	brought := func(subject string, data []byte, until time.Time) {
		header := nats.Header{}
		natsconf.Origin{Sequence: 1, Stored: s.CreatedAt, Until: until}.Put(header)
		natstest.Publish(t, h.conn, subject, data, header)
	}
	brought(record.Subject, record.Data, until)
	brought(records.CompletionSubject(s.ID), outcome, until.Add(time.Second))
	h.clock.Advance(time.Hour + time.Second/2) // the record's time is over, and the outcome's is not
	if v, err := h.store.ReadByToken(t.Context(), token); err != nil || v.State != sessions.Verified {
		t.Errorf("%+v, %v", v, err)
	}
	h.clock.Advance(time.Second)
	if v, err := h.store.ReadByToken(t.Context(), token); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("after its time: %+v, %v", v, err)
	}
	page, err := h.store.List(t.Context(), lists.Query{Account: s.Account, Limit: 10})
	if err != nil || len(page.Sessions) > 0 {
		t.Errorf("the list after its time: %+v, %v", page.Sessions, err)
	}
}

// removeRecord makes the store report that there is no record of a session, which nothing in the service does
// within its lifetime.
func (h fixture) removeRecord(t *testing.T, s sessions.Session) {
	t.Helper()
	natstest.Publish(t, h.conn, records.RecordSubject(s.Account, s.ID), nil,
		nats.Header{"KV-Operation": {"DEL"}})
}
