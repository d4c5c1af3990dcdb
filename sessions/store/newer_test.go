package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

var versionMember = regexp.MustCompile(`"v":\d+`)

// renew rewrites the message on a subject as a build of the future would have written it, in a store that
// allows it: another one, for a write-once stream.
func (h fixture) renew(t *testing.T, to *natsconf.Conn, stream, subject string) {
	t.Helper()
	m, err := h.conn.Last(t.Context(), stream, subject)
	if err != nil {
		t.Fatal(err)
	}
	data := versionMember.ReplaceAllString(string(m.Data), `"v":99`)
	if data == string(m.Data) {
		t.Fatalf("%s carries no version: %s", m.Subject, m.Data)
	}
	natstest.Publish(t, to, m.Subject, []byte(data))
}

// subject returns the one subject that has a message.
func (h fixture) subject(t *testing.T, stream, filter string) string {
	t.Helper()
	m, err := h.conn.Last(t.Context(), stream, filter)
	if err != nil {
		t.Fatal(err)
	}
	return m.Subject
}

// While a newer build is rolled out, two builds read the same store. What the newer one has written, the
// older one refuses with what to do, or skips if nothing depends on it. It never misreads it, overwrites it,
// or sends because of it.
func TestNewerRecordsAreNotMisread(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	other, _ := h.create(t)
	h.complete(t, other.ID, sessions.Verified, sessions.NoReason)
	if err := h.store.Claim(t.Context(), facts.Claim{Session: other.ID, Number: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.StoreResult(t.Context(), facts.Result{
		Session: other.ID, Number: 1, Verdict: facts.VerdictUnknown,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Resend(t.Context(), other.ID, "somebody"); err != nil {
		t.Fatal(err)
	}
	completion, claim, result, resend := "completion."+string(other.ID), "claim."+string(other.ID)+".1",
		"result."+string(other.ID)+".1", "resend."+string(other.ID)+".2"
	st := func(renewed ...string) *store.Store {
		t.Helper()
		conn := natstest.Start(t)
		keys, err := h.conn.Last(t.Context(), topology.StreamSessionKeys, ">")
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, conn, keys.Subject, keys.Data)
		for _, subject := range []string{completion, claim, result, resend} {
			if len(renewed) > 0 && subject == renewed[0] {
				h.renew(t, conn, topology.StreamCompletions, subject)
				continue
			}
			m, err := h.conn.Last(t.Context(), topology.StreamCompletions, subject)
			if err != nil {
				t.Fatal(err)
			}
			natstest.Publish(t, conn, m.Subject, m.Data)
		}
		return store.New(store.Config{Conn: conn, Key: h.key, Now: h.clock.Now})
	}
	newer := map[string]*store.Store{}
	for _, subject := range []string{completion, claim, result, resend} {
		newer[subject] = st(subject)
	}
	for _, subject := range []string{completion, claim, result} {
		if _, err := newer[subject].Read(t.Context(), other.ID); !errors.Is(err, natsconf.ErrNewer) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	// a process that cannot read them does not send: package dispatcher uses these
	for _, subject := range []string{claim, result} {
		if _, err := newer[subject].Attempts(t.Context(), other.ID); !errors.Is(err, natsconf.ErrNewer) {
			t.Errorf("attempts with %s: %v", subject, err)
		}
	}
	if _, err := newer[resend].ResendOf(t.Context(), other.ID, 2); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("resend: %v", err)
	}
	if v, err := st().Read(t.Context(), other.ID); err != nil ||
		v.Delivery.State != facts.DeliveryDue {
		t.Errorf("with none of them newer: %+v, %v", v.Delivery, err)
	}
	if _, err := newer[claim].Unfinished(t.Context()); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("unfinished: %v", err)
	}
	if _, err := h.store.DecodeRetry("retry."+string(s.ID), []byte(`{"v":99}`)); !errors.Is(err,
		natsconf.ErrNewer) {
		t.Errorf("retry: %v", err)
	}

	h.renew(t, h.conn, topology.BucketStream(topology.BucketSessions),
		"$KV.sessions."+s.Account+"."+string(s.ID))
	if _, err := h.store.Read(t.Context(), s.ID); !errors.Is(err, natsconf.ErrNewer) ||
		!strings.Contains(err.Error(), "newer verifyd") {
		t.Errorf("session: %v", err)
	}
	if _, err := h.store.ReadOpen(t.Context(), s.ID); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("read to be completed: %v", err)
	}
	page, err := h.store.List(t.Context(), lists.Query{Account: s.Account, Limit: 10})
	if err != nil || len(page.Sessions) != 1 || page.Sessions[0].ID != other.ID {
		t.Errorf("a list with a newer session in it: %d, %v", len(page.Sessions), err)
	}
	if e, err := h.store.Erase(t.Context(), anybody(s.PlatformUserID), false); !errors.Is(err,
		natsconf.ErrNewer) || e.Sessions != 0 {
		t.Errorf("erase: %+v, %v", e, err)
	}
}

// A newer build may write other shapes, not only other numbers: a message with its version still belongs to
// that build, and is not garbage.
func TestNewerShapesAreNotMisread(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, at := range map[string]struct{ fact, data string }{
		"claim":  {"claim.%s.1", `{"v":2,"n":1,"worker":{"id":"w"},"at":"2026-01-01T00:00:00Z"}`},
		"result": {"result.%s.1", `{"v":3,"n":"1","verdict":["delivered"]}`},
	} {
		c := h.begun(t, verified)
		if name == "result" {
			h.claim(t, c.ID, 1, c.CompletedAt)
		}
		h.put(t, fmt.Sprintf(at.fact, c.ID), at.data)
		if a, err := h.store.Attempts(t.Context(), c.ID); !errors.Is(err, natsconf.ErrNewer) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if _, err := h.store.Unfinished(t.Context()); !errors.Is(err, natsconf.ErrNewer) {
			t.Errorf("%s: unfinished: %v", name, err)
		}
	}
	s, _ := h.create(t)
	if _, err := h.store.DecodeCompletion(t.Context(), "completion."+string(s.ID), nil,
		[]byte(`{"v":6,"account":{"id":"a"}}`)); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("completion: %v", err)
	}
	if _, err := h.store.DecodeResend("resend."+string(s.ID)+".2",
		[]byte(`{"v":2,"n":2,"by":["a"]}`)); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("resend: %v", err)
	}
	if _, err := h.store.DecodeRetry("retry."+string(s.ID), []byte(`{"v":2,"since":0}`)); !errors.Is(err,
		natsconf.ErrNewer) {
		t.Errorf("retry: %v", err)
	}
	if _, err := h.store.DecodeRetry("retry."+string(s.ID), []byte(`{"v":1,"since":0}`)); !errors.Is(err,
		facts.ErrUnreadable) || errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("a retry of this version: %v", err)
	}
	verdicts, err := h.store.Verdicts(t.Context(), s.CreatedAt.Add(-time.Hour))
	if err != nil || verdicts.By[facts.VerdictUnknown] != 1 || len(verdicts.By) != 1 {
		t.Errorf("verdicts: %+v, %v", verdicts, err)
	}
}

// The same for records that belong to no session: identity holds and reservations are refused; a sign-in
// lease is a convenience, and excludes nobody.
func TestNewerBindingsAndReservations(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.holder(t, h.key)
	hold := h.hold(t, "planted-user")
	if err := st.HoldIdentity(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	h.renew(t, h.conn, topology.BucketStream(topology.BucketIdentities), "$KV.identities.*")
	if err := st.HoldIdentity(t.Context(), hold); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("hold: %v", err)
	}
	h.put(t, h.subject(t, topology.BucketStream(topology.BucketIdentities), "$KV.identities.*"),
		`{"v":2,"by":["planted"],"session":{}}`)
	if err := st.HoldIdentity(t.Context(), hold); !errors.Is(err, natsconf.ErrNewer) ||
		!strings.Contains(err.Error(), "run the newer verifyd") {
		t.Errorf("hold of another shape: %v", err)
	}
	if e, err := st.Erase(t.Context(), anybody("planted-user"), false); err != nil ||
		e != (erasure.Erasure{Open: 1}) {
		t.Errorf("erase who has no name to look for, beside a hold of another shape: %+v, %v", e, err)
	}
	named := anybody("somebody-else")
	named.HoldUsers = []string{"somebody-else"}
	if e, err := st.Erase(t.Context(), named, false); !errors.Is(err, natsconf.ErrNewer) ||
		!strings.Contains(err.Error(), "somebody else") || e != (erasure.Erasure{}) {
		t.Errorf("erase beside a hold of another shape: %+v, %v", e, err)
	}
	h.put(t, h.subject(t, topology.BucketStream(topology.BucketIdentities), "$KV.identities.*"),
		`{"stream":"a server's answer"}`)
	if err := st.HoldIdentity(t.Context(), hold); err == nil || errors.Is(err, natsconf.ErrNewer) ||
		errors.Is(err, store.ErrIdentityHeld) {
		t.Errorf("hold that nobody has written: %v", err)
	}
	reserving := store.New(store.Config{
		Conn: h.conn, Key: h.key, Now: h.clock.Now,
		Idempotency: natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketIdempotency)),
	})
	keyed := store.IdempotencyKey{Account: request.Account, Key: "k", Fingerprint: sha256.Sum256(nil)}
	if _, err := reserving.Reserve(t.Context(), keyed); err != nil {
		t.Fatal(err)
	}
	h.renew(t, h.conn, topology.BucketStream(topology.BucketIdempotency), "$KV.idempotency.>")
	if _, err := reserving.Reserve(t.Context(), keyed); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("reservation: %v", err)
	}
	h.put(t, h.subject(t, topology.BucketStream(topology.BucketIdempotency), "$KV.idempotency.>"),
		`{"v":3,"at":{"by":"planted"},"token":7}`)
	for _, reserve := range []func(context.Context, store.IdempotencyKey) (store.Reservation, error){
		reserving.Reserve, reserving.FindReserved,
	} {
		if _, err := reserve(t.Context(), keyed); !errors.Is(err, natsconf.ErrNewer) ||
			!strings.Contains(err.Error(), "run the newer verifyd") {
			t.Errorf("reservation of another shape: %v", err)
		}
	}
	h.put(t, h.subject(t, topology.BucketStream(topology.BucketIdempotency), "$KV.idempotency.>"),
		`{"stream":"a server's answer"}`)
	if _, err := reserving.Reserve(t.Context(), keyed); err == nil ||
		errors.Is(err, natsconf.ErrNewer) ||
		errors.Is(err, store.ErrKeyReused) {
		t.Errorf("reservation that nobody has written: %v", err)
	}
	if _, err := st.AcquireLease(t.Context(), hold.Session, "browser1"); err != nil {
		t.Fatal(err)
	}
	h.renew(t, h.conn, topology.BucketStream(topology.BucketSessions),
		"$KV.sessions.seat.browser."+string(hold.Session))
	if lease, err := st.LeaseOf(t.Context(), hold.Session); err != nil || lease.Browser != "" {
		t.Errorf("lease: %+v, %v", lease, err)
	}
}
