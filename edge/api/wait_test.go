package api

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

// announced reports when a request has begun to wait.
type announced struct {
	Changes
	began chan struct{}
}

func (a announced) Follow(ctx context.Context, id sessions.ID) (*store.Follower, error) {
	f, err := a.Changes.Follow(ctx, id)
	a.began <- struct{}{}
	return f, err
}

// waiter is a service whose waiting requests can be waited for.
type waiter struct {
	*service
	began chan struct{}
}

func newWaiter(t *testing.T, change func(*Config), changeServer ...func(*web.ServerConfig)) waiter {
	t.Helper()
	return newWaiterOn(t, natstest.Start(t), change, changeServer...)
}

func newWaiterOn(t *testing.T, conn *natsconf.Conn, change func(*Config),
	changeServer ...func(*web.ServerConfig)) waiter {
	t.Helper()
	began := make(chan struct{}, 16)
	return waiter{newServiceOn(t, conn, func(c *Config) {
		c.Changes = announced{c.Changes, began}
		if change != nil {
			change(c)
		}
	}, changeServer...), began}
}

// wait begins to wait for a session, and returns the answer when it comes.
func (w waiter) wait(t *testing.T, session, seconds string) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() { answers <- w.get(t, session+"?wait="+seconds, acmeKey) }()
	select {
	case <-w.began:
	case <-time.After(patience):
		t.Fatal("the request does not wait")
	}
	return answers
}

func wantStates(t *testing.T, a answer, state sessions.State, delivery facts.DeliveryState) {
	t.Helper()
	if got := parse[sessionDoc](t, a, http.StatusOK); got.State != state || got.Delivery.State != delivery {
		t.Errorf("state %s, delivery %s; want %s, %s", got.State, got.Delivery.State, state, delivery)
	}
}

func TestWaitEndsWithEachChange(t *testing.T) {
	t.Parallel()
	w := newWaiter(t, nil)
	token := w.start(t).Session
	id, _ := sessions.ParseID(token)
	now := w.clock.now()

	one, two := w.wait(t, token, "60"), w.wait(t, token, "60")
	// another session: nobody is notified
	w.complete(t, w.start(t).Session, sessions.Outcome{State: sessions.Verified})
	w.complete(t, token, sessions.Outcome{State: sessions.Verified, Network: "default"})
	wantStates(t, <-one, sessions.Verified, facts.DeliveryDue)
	wantStates(t, <-two, sessions.Verified, facts.DeliveryDue)

	answer := w.wait(t, token, "60")
	if err := w.store.Claim(t.Context(), facts.Claim{Session: id, Number: 1, At: now}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, <-answer, sessions.Verified, facts.DeliveryClaimed)

	answer = w.wait(t, token, "60")
	if _, err := w.store.StoreResult(t.Context(), facts.Result{
		Session: id, Number: 1, Verdict: facts.VerdictDelivered, Status: 204, At: now,
	}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, <-answer, sessions.Verified, facts.DeliveryDelivered)
	// Nothing more happens by itself: the answer comes at once, or this test would take a minute.
	wantStates(t, w.get(t, token+"?wait=60", acmeKey), sessions.Verified, facts.DeliveryDelivered)
}

func TestWaitEndsWithItsTime(t *testing.T) {
	t.Parallel()
	w := newWaiter(t, nil)
	token := w.start(t).Session
	// The server's own time-outs are shorter than the wait: they may not cut it off.
	const short = 900 * time.Millisecond
	w.server, _ = startServer(t, web.ServerConfig{
		Name: "impatient", Listen: "127.0.0.1:0", Handler: w.server.Handler(), Log: zerolog.Nop(),
		ReadTimeout: short, WriteTimeout: short,
	})
	began := time.Now()
	wantStates(t, <-w.wait(t, token, "1"), sessions.Pending, facts.DeliveryNone)
	if took := time.Since(began); took < time.Second {
		t.Errorf("the answer came after %s, before the time was over", took)
	}
}

func TestWaitEndsWithTheExpiry(t *testing.T) {
	t.Parallel()
	w := newWaiter(t, nil)
	token := w.start(t).Session
	w.clock.advance(sessions.Lifetime - 200*time.Millisecond)
	answer := w.wait(t, token, "60")
	w.clock.advance(time.Second)
	wantStates(t, <-answer, sessions.Expired, facts.DeliveryNone)
}

func TestWaitEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	w := newWaiter(t, nil)
	answer := w.wait(t, w.start(t).Session, "60")
	w.stop()
	wantStates(t, <-answer, sessions.Pending, facts.DeliveryNone)
}

func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	w := newWaiter(t, func(c *Config) { c.MaxWaiting = 8 }) // two for one account
	token := w.start(t).Session
	one, two := w.wait(t, token, "60"), w.wait(t, token, "60")
	a := w.get(t, token+"?wait=60", acmeKey)
	wantProblem(t, a, problem.CodeTooManyWaiting)
	wantRetryAfter(t, a, 5, 5)
	others := parse[started](t,
		w.do(t, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+otherKey, "Content-Type",
			"application/json"), http.StatusOK)
	wantStates(t, w.get(t, others.Session+"?wait=1", otherKey), sessions.Pending, facts.DeliveryNone)
	w.cancel(t, token, acmeKey)
	wantStates(t, <-one, sessions.Canceled, facts.DeliveryNone)
	wantStates(t, <-two, sessions.Canceled, facts.DeliveryNone)
	// their slots are free again
	wantStates(t, <-w.wait(t, w.start(t).Session, "1"), sessions.Pending, facts.DeliveryNone)
}

// What the accounts of one owner use counts together: with each account they would have another share.
func TestAccountsOfOneOwnerShareTheirPlaces(t *testing.T) {
	t.Parallel()
	const twinKey = "vfy_twin-MARKERKEY"
	w := newWaiter(t, func(c *Config) {
		keys := newKeyring()
		for key, id := range map[string]string{acmeKey: acme.ID, twinKey: "acc_twin"} {
			who := keys[acmeKey]
			who.Key.ID, who.Key.Account, who.Account.ID = "key_of_"+id, id, id
			who.Account.Members = []account.Member{
				{Network: "net", Subject: "vera", Role: access.RoleViewer},
				{Network: "net", Subject: "ada", Role: access.RoleOwner},
			}
			keys[key] = who
		}
		c.Keys, c.MaxWaiting = keys, 8 // two for one owner
	})
	token := w.start(t).Session
	one, two := w.wait(t, token, "60"), w.wait(t, token, "60")
	twins := w.startAs(t, twinKey, "u-2")
	wantProblem(t, w.get(t, twins+"?wait=60", twinKey), problem.CodeTooManyWaiting)
	others := w.startAs(t, otherKey, "u-2")
	wantStates(t, w.get(t, others+"?wait=1", otherKey), sessions.Pending, facts.DeliveryNone)
	w.cancel(t, token, acmeKey)
	wantStates(t, <-one, sessions.Canceled, facts.DeliveryNone)
	wantStates(t, <-two, sessions.Canceled, facts.DeliveryNone)
}

func TestBadWaits(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.start(t).Session
	for _, query := range []string{
		"wait=", "wait=0", "wait=61", "wait=-1", "wait=1.5", "wait=1s", "wait=+1", "wait=1&wait=1",
		"wait=99999999999999999999",
	} {
		p := wantProblem(t, s.get(t, token+"?"+query, acmeKey), problem.CodeInvalidRequest)
		if len(p.Errors) != 1 || p.Errors[0].Field != "wait" ||
			!strings.Contains(p.Errors[0].Detail, "1 to 60") {
			t.Errorf("%s: errors = %+v", query, p.Errors)
		}
	}
	wantProblem(t, s.get(t, token+"?wait=5", otherKey), problem.CodeSessionNotFound)
}

// A key that is revoked while its holder waits gets nothing any more.
func TestWaitEndsWithItsKey(t *testing.T) {
	t.Parallel()
	keys := &revocable{keyring: newKeyring()}
	w := newWaiter(t, func(c *Config) { c.Keys = keys })
	token := w.start(t).Session
	answer := w.wait(t, token, "60")
	keys.revoked.Store(true)
	w.complete(t, token, sessions.Outcome{State: sessions.Verified, Network: "default"})
	wantProblem(t, <-answer, problem.CodeKeyInvalid)
}

// doubting is a Keys that knows no key for certain at the first calls.
type doubting struct {
	keyring
	left atomic.Int64
}

func (k *doubting) Lookup(secret string) (account.Principal, error) {
	if k.left.Add(-1) >= 0 {
		return account.Principal{}, account.ErrNotReady
	}
	return k.keyring.Lookup(secret)
}

// hurried is a Lister that records how much time it had.
type hurried struct{ left time.Duration }

func (h *hurried) List(ctx context.Context, _ lists.Query) (lists.Page, error) {
	end, _ := ctx.Deadline()
	h.left = time.Until(end)
	return lists.Page{}, nil
}

// A request waits until its key is known to be valid, and less for the store then: a client waits for both.
func TestInitWaitsForItsKey(t *testing.T) {
	t.Parallel()
	keys := &doubting{keyring: newKeyring()}
	keys.left.Store(3)
	s := newService(t, func(c *Config) { c.Keys = keys })
	s.start(t)
	if left := keys.left.Load(); left != -1 {
		t.Errorf("the keys were asked %d times", 3-left)
	}

	asked := &hurried{}
	listing := newServiceOn(t, s.conn, func(c *Config) { c.Keys, c.Lister = keys, asked })
	keys.left.Store(3) // two pauses after the first try, of 20 and 40 ms
	if a := listing.do(t, http.MethodGet, "/sessions", "", "Authorization",
		"Bearer "+acmeKey); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if most := places.DefaultStoreWait - 60*time.Millisecond; asked.left == 0 || asked.left > most {
		t.Errorf("the store has %s of %s, want %s at most", asked.left, places.DefaultStoreWait, most)
	}
}
