package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// clock is a clock that the test advances.
type clock struct {
	offset  atomic.Int64
	stopped atomic.Pointer[time.Time]
}

func (c *clock) Now() time.Time {
	now := time.Now()
	if at := c.stopped.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.offset.Load()))
}

// stop makes the time stand still but for Advance: in tests of times that a busy machine may exceed.
func (c *clock) stop() { c.stopped.Store(new(time.Now())) }

func (c *clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
func (c *clock) set(at time.Time)        { c.offset.Store(int64(time.Until(at))) }

type fixture struct {
	conn  *natsconf.Conn
	store *store.Store
	clock *clock
	key   secretbox.Key
}

func start(t *testing.T) fixture {
	t.Helper()
	h := fixture{conn: natstest.Start(t), clock: &clock{}, key: secretbox.NewKey()}
	h.store = newStore(t, h)
	return h
}

func newStore(t *testing.T, h fixture) *store.Store {
	t.Helper()
	return newStoreAt(t, h, h.clock.Now)
}

func newStoreAt(t *testing.T, h fixture, now func() time.Time) *store.Store {
	t.Helper()
	return store.New(store.Config{
		Conn: h.conn, Key: h.key, Now: now,
		Pending:     natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(t, h.conn, topology.StreamCompletions),
		Idempotency: natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketIdempotency)),
	})
}

var request = sessions.Request{
	Account: "acc_a", Key: "key_k", Platform: "discord", PlatformUserID: "sailor_42", GuildID: "118",
	CallbackURL: "https://hooks.harbor.example/verify?token=planted-marker",
}

var verified = sessions.Outcome{State: sessions.Verified, Network: "default"}

func (h fixture) create(t *testing.T) (sessions.Session, sessions.Token) {
	t.Helper()
	s, token, err := h.store.Create(natstest.Patient(t), request)
	if err != nil {
		t.Fatal(err)
	}
	return s, token
}

func TestSessionReadsBackAsGiven(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, text := range map[string]string{
		"plain": "sailor_42", "emoji": "⚓️👩‍🚀", "right to left": "مرحبا\u202eabc", "quotes": `"'\<>&`,
		"newline": "a\nb\r\n\t",
		"control": "\x00\x01\x7f\u0085\u2028", "long": strings.Repeat("ü", 512),
		"noncharacter": "\uffff\U0010ffff",
	} {
		r := request
		r.Platform, r.PlatformUserID, r.GuildID = text, text, text
		s, _, err := h.store.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		v, err := h.store.Read(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if v.Platform != text || v.PlatformUserID != text || v.GuildID != text ||
			v.CallbackURL != r.CallbackURL || v.Session != s {
			t.Errorf("%s: read back %+v", name, v.Session)
		}
		if v.State != sessions.Pending || v.Delivery.State != facts.DeliveryNone ||
			!s.ExpiresAt.Equal(s.CreatedAt.Add(10*time.Minute)) {
			t.Errorf("%s: fresh session is %+v", name, v)
		}
		c, err := h.store.Complete(t.Context(), s, verified)
		if err != nil || c.PlatformUserID != text {
			t.Fatalf("%s: completion = %+v, %v", name, c, err)
		}
	}
}

func TestStoredRecordsHoldNeitherTokenNorCallback(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, token := h.create(t)
	if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	for stream, subject := range map[string]string{
		topology.BucketStream(topology.BucketSessions): topology.BucketSubject(topology.BucketSessions,
			s.Account+"."+string(s.ID)),
		topology.StreamCompletions: "completion." + string(s.ID),
	} {
		m, err := h.conn.Last(t.Context(), stream, subject)
		if err != nil {
			t.Fatal(stream, err)
		}
		for _, secret := range []string{token.Reveal(), "planted-marker", "hooks.harbor.example"} {
			if strings.Contains(string(m.Data), secret) {
				t.Errorf("%s holds %q", stream, secret)
			}
		}
	}
}

// Two tabs, two edges and retries race: one completion is stored, and all learn which.
func TestOneCompletionWins(t *testing.T) {
	t.Parallel()
	h := start(t)
	other := newStore(t, h) // another edge: its own writers
	s, _ := h.create(t)
	outcomes := []sessions.Outcome{
		verified, {State: sessions.Failed, Reason: sessions.Declined}, {
			State: sessions.Canceled, Reason: sessions.CanceledReason,
		},
	}
	var wg sync.WaitGroup
	var wins atomic.Int64
	got := make([]sessions.Completion, 24)
	for i := range got {
		wg.Go(func() {
			st := []*store.Store{h.store, other}[i%2]
			c, err := st.Complete(t.Context(), s, outcomes[i%3])
			if err == nil {
				wins.Add(1)
			} else if !errors.Is(err, sessions.ErrCompleted) {
				t.Error(err)
			}
			got[i] = c
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d completions won", wins.Load())
	}
	v, err := h.store.Read(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range got {
		if c.Outcome != v.Outcome || !c.CompletedAt.Equal(v.CompletedAt) {
			t.Errorf("racer %d was told %+v, stands %+v", i, c.Outcome, v.Outcome)
		}
	}
}

func TestExpiryInstantDecides(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	done, _ := h.create(t)
	if _, err := h.store.Complete(t.Context(), done, verified); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(sessions.Lifetime + time.Millisecond) // the record still exists, and does not count
	if _, err := h.store.Complete(t.Context(), s, verified); !errors.Is(err, sessions.ErrExpired) {
		t.Errorf("completing an expired session: %v", err)
	}
	v, err := h.store.Read(t.Context(), s.ID)
	if err != nil || v.State != sessions.Expired || v.Reason != sessions.ExpiredReason ||
		v.Delivery.State != facts.DeliveryNone {
		t.Errorf("expired session = %+v, %v", v, err)
	}
	if c, err := h.store.Complete(t.Context(), done, verified); !errors.Is(err, sessions.ErrCompleted) ||
		c.State != sessions.Verified {
		t.Errorf("completing a completed session after its expiry: %+v, %v", c, err)
	}
}

// A session that was just read is completed without another read of the record, which may even be gone by
// then.
func TestASessionThatWasReadIsCompleted(t *testing.T) {
	t.Parallel()
	h := start(t)
	read := func() sessions.Session {
		t.Helper()
		s, _ := h.create(t)
		v, err := h.store.Read(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		return v.Session
	}
	first, late, done := read(), read(), read()
	if _, err := h.store.Complete(t.Context(), done, verified); err != nil {
		t.Fatal(err)
	}
	stream, err := h.conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketSessions))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := h.store.Complete(t.Context(), first, verified); err != nil ||
		c.PlatformUserID != first.PlatformUserID {
		t.Errorf("completing: %+v, %v", c, err)
	}
	refused := sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
	if c, err := h.store.Complete(t.Context(), done, refused); !errors.Is(err,
		sessions.ErrCompleted) || c.State != sessions.Verified {
		t.Errorf("completing a completed session: %+v, %v", c, err)
	}
	h.clock.Advance(sessions.Lifetime)
	if _, err := h.store.Complete(t.Context(), late, verified); !errors.Is(err, sessions.ErrExpired) {
		t.Errorf("completing an expired session: %v", err)
	}
	if c, err := h.store.Complete(t.Context(), done, refused); !errors.Is(err,
		sessions.ErrCompleted) || c.State != sessions.Verified {
		t.Errorf("completing a completed session after its expiry: %+v, %v", c, err)
	}
}

func TestExpiredIsNotUnknown(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	done, _ := h.create(t)
	if _, err := h.store.Complete(t.Context(), done, verified); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(70 * time.Hour) // as long as results are kept
	if v, err := h.store.Read(t.Context(), s.ID); err != nil || v.State != sessions.Expired ||
		v.PlatformUserID != "sailor_42" {
		t.Errorf("expired session = %+v, %v", v, err)
	}
	stream, err := h.conn.JS.Stream(t.Context(), topology.BucketStream(topology.BucketSessions))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil { // what its age does in the end
		t.Fatal(err)
	}
	if _, err := h.store.Read(t.Context(), s.ID); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("a session whose results are no longer kept: %v", err)
	}
	if v, err := h.store.Read(t.Context(), done.ID); err != nil || v.State != sessions.Verified {
		t.Errorf("completed session after its record aged out = %+v, %v", v, err)
	}
	if _, err := h.store.Complete(t.Context(), done, verified); !errors.Is(err, sessions.ErrCompleted) {
		t.Errorf("completing again: %v", err)
	}
	never := sessions.ID(strings.Repeat("a", 32))
	if _, err := h.store.Read(t.Context(), never); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("reading one that never was: %v", err)
	}
	if _, err := h.store.ReadOpen(t.Context(), never); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("reading one that never was, to complete it: %v", err)
	}
}

func TestAttemptIsRedeemedOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	other := newStore(t, h)
	s, _ := h.create(t)
	var wg sync.WaitGroup
	var wins atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			err := []*store.Store{h.store, other}[i%2].Redeem(t.Context(), s.ID, "attempt1")
			if err == nil {
				wins.Add(1)
			} else if !errors.Is(err, sessions.ErrRedeemed) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("redeemed %d times", wins.Load())
	}
	if err := h.store.Redeem(t.Context(), s.ID, "attempt2"); err != nil {
		t.Errorf("another attempt: %v", err)
	}
}

func TestClaimHasOneOwnerAndOneResult(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	expect := func(want facts.DeliveryState) {
		t.Helper()
		v, err := h.store.Read(t.Context(), s.ID)
		if err != nil || v.Delivery.State != want {
			t.Errorf("delivery = %s, %v; want %s", v.Delivery.State, err, want)
		}
	}
	expect(facts.DeliveryDue)
	claim := func(worker string, n int) error {
		return h.store.Claim(t.Context(), facts.Claim{
			Session: s.ID, Number: n, Worker: worker, At: time.Now(),
		})
	}
	if err := claim("a", 1); err != nil {
		t.Fatal(err)
	}
	if err := claim("b", 1); !errors.Is(err, facts.ErrClaimed) {
		t.Errorf("second claim: %v", err)
	}
	expect(facts.DeliveryClaimed)
	released := facts.Result{Session: s.ID, Number: 1, Verdict: facts.VerdictReleased, By: "a"}
	if _, err := h.store.StoreResult(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	expect(facts.DeliveryDue)
	if r, err := h.store.StoreResult(t.Context(),
		facts.Result{Session: s.ID, Number: 1, Verdict: facts.VerdictUnknown, By: "b"}); !errors.Is(err,
		facts.ErrHasResult) || r.Verdict != facts.VerdictReleased || r.By != "a" {
		t.Errorf("second result: %+v, %v", r, err)
	}
	if err := claim("b", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.StoreResult(t.Context(), facts.Result{
		Session: s.ID, Number: 2, Verdict: facts.VerdictDelivered, Status: 204, By: "b",
	}); err != nil {
		t.Fatal(err)
	}
	expect(facts.DeliveryDelivered)
	attempts, err := h.store.Attempts(t.Context(), s.ID)
	if err != nil || len(attempts) != 2 || attempts[1].Result.Status != 204 ||
		attempts[1].Claim.Worker != "b" {
		t.Errorf("attempts = %+v, %v", attempts, err)
	}
}

func TestWithoutAServerNothingIsClaimed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn, stop := natstest.StartIn(t, dir)
	h := fixture{conn: conn, clock: &clock{}, key: secretbox.NewKey()}
	h.store = newStore(t, h)
	s, _ := h.create(t)
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := h.store.Claim(ctx, facts.Claim{Session: s.ID, Number: 1}); err == nil {
		t.Error("claimed without a server")
	}
	if _, _, err := h.store.Create(ctx, request); !errors.Is(err, natsconf.ErrUnavailable) &&
		!errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("created without a server: %v", err)
	}
	if _, err := h.store.Read(ctx, s.ID); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("read without a server: %v", err)
	}
}

func TestAnotherKeyDoesNotOpenTheStore(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	h.key = secretbox.NewKey()
	if _, err := newStore(t, h).Read(t.Context(), s.ID); !errors.Is(err, secretbox.ErrOpen) {
		t.Errorf("read with another master key: %v", err)
	}
}

// The outcome is what Read returns, without the delivery, also if a fact of that cannot be read.
func TestReadOutcomeIsReadWithoutTheDelivery(t *testing.T) {
	t.Parallel()
	h := start(t)
	tokens := map[sessions.ID]sessions.Token{}
	create := func() sessions.Session {
		s, token := h.create(t)
		tokens[s.ID] = token
		return s
	}
	create()
	canceled := create()
	h.complete(t, canceled.ID, sessions.Canceled, sessions.CanceledReason)
	delivered := create()
	h.complete(t, delivered.ID, sessions.Verified, sessions.NoReason)
	if err := h.store.Claim(t.Context(),
		facts.NewClaim(delivered.ID, 1, "w", h.clock.Now(), 0, 0)); err != nil {
		t.Fatal(err)
	}
	unreadable := create()
	h.put(t, "completion."+string(unreadable.ID), "garbage")
	compare := func(when string) {
		t.Helper()
		for id, token := range tokens {
			v, err := h.store.ReadOf(t.Context(), request.Account, id)
			if err != nil {
				t.Fatal(err)
			}
			want := sessions.Status{Session: v.Session, Outcome: v.Outcome, CompletedAt: v.CompletedAt}
			for way, read := range map[string]func() (sessions.Status, error){
				"by its id": func() (sessions.Status, error) { return h.store.ReadOutcome(t.Context(), id) },
				"by token": func() (sessions.Status, error) {
					return h.store.ReadByToken(t.Context(), token)
				},
				"as pending": func() (sessions.Status, error) {
					return h.store.ReadPending(t.Context(), token)
				},
			} {
				if s, err := read(); err != nil || s != want {
					t.Errorf("%s, %s: outcome %+v, %v; read %+v", when, way, s, err, want)
				}
			}
		}
	}
	compare("in its lifetime")
	h.clock.Advance(sessions.Lifetime + time.Second)
	compare("expired")
	h.put(t, "claim."+string(delivered.ID)+".2", `{"v":99}`)
	h.put(t, "result."+string(delivered.ID)+".1", `{"v":99}`)
	if _, err := h.store.Read(t.Context(), delivered.ID); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("read with a newer result: %v", err)
	}
	if s, err := h.store.ReadOutcome(t.Context(), delivered.ID); err != nil || s.State != sessions.Verified {
		t.Errorf("outcome with a newer result: %+v, %v", s, err)
	}
	none := sessions.NewToken("", nil)
	if _, err := h.store.ReadOutcome(t.Context(), none.ID()); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("outcome of no session: %v", err)
	}
	if _, err := h.store.ReadPending(t.Context(), none); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("outcome of no session, by token: %v", err)
	}
}

// A session is looked up below the account of its token, since looking below every account costs once for
// each. Tokens of older builds have no account, and their sessions are found anyway.
func TestTokenSparesALookUpForEachAccount(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "what is asked for, which direct reads show in their subject")
	h := start(t)
	asked := make(chan string, 10)
	const ask = "$JS.API.DIRECT.GET.KV_sessions."
	sub, err := h.conn.NC.Subscribe(ask+">", func(m *nats.Msg) {
		asked <- strings.TrimPrefix(m.Subject, ask)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	const known = "acc_k3v7q2m5zt4yd6n2xw7p"
	for account, below := range map[string]string{known: known, "acme": "*"} {
		r := request
		r.Account = account
		s, token, err := h.store.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newStore(t, h).ReadByToken(t.Context(), token) // on another edge
		if err != nil || got.Session != s {
			t.Errorf("%s: %+v, %v; want %+v", account, got, err, s)
		}
		if subject := <-asked; subject != "$KV.sessions."+below+"."+string(s.ID) {
			t.Errorf("%s: asked for %s", account, subject)
		}
	}
	select {
	case subject := <-asked:
		t.Errorf("asked for %s too", subject)
	default:
	}
}

func TestDecodeCompletionRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := strings.Repeat("a", 32)
	for _, c := range []struct{ subject, data string }{
		{"completion." + id, "not json"}, {"completion." + id, `{"v":2}`}, {"completion." + id, `{"v":5}`},
		{"completion." + id, `{"v":1}`}, {"completion.short", `{"v":1}`}, {"c", "{}"},
	} {
		if _, err := h.store.DecodeCompletion(t.Context(), c.subject, nil, []byte(c.data)); err == nil {
			t.Errorf("decoded %s %s", c.subject, c.data)
		}
	}
}
