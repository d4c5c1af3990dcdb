package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

// keyed posts a body under an idempotency key.
func (s *service) keyed(t *testing.T, key, idempotency, body string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, pathInit, body, "Authorization", "Bearer "+key, "Content-Type",
		"application/json", "Idempotency-Key", idempotency)
}

func TestSameIdempotencyKeyIsTheSameSession(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	first := s.keyed(t, acmeKey, "order-1", goodBody)
	began := parse[started](t, first, http.StatusOK)
	if first.header.Get(request.HeaderReplayed) != "" {
		t.Error("the first answer says that it is replayed")
	}
	s.clock.advance(9 * time.Minute)
	for name, body := range map[string]string{
		"same body": goodBody,
		"same fields": `{"x":1, "callback_url":"` + callback +
			`","guild_id":"g-1","platform_user_id":"u-\u0031","platform":"chat"}`,
	} {
		again := s.keyed(t, slowKey, "order-1", body) // another key of the account
		if got := parse[started](t, again, http.StatusOK); got != began ||
			again.header.Get(request.HeaderReplayed) != "true" {
			t.Errorf("%s: %+v, replayed %q; want %+v", name, got, again.header.Get(request.HeaderReplayed),
				began)
		}
	}
	for name, key := range map[string]string{"a test key": acmeTest, "another account": otherKey} {
		if got := parse[started](t, s.keyed(t, key, "order-1", goodBody),
			http.StatusOK); got.Session == began.Session {
			t.Errorf("%s got the session", name)
		}
	}
	wantProblem(t, s.keyed(t, acmeKey, "order-1", strings.Replace(goodBody, "u-1", "u-2", 1)),
		problem.CodeIdempotencyReused)
	// as the server does after ten minutes, which decides, and no process's clock
	if err := s.conn.Purge(t.Context(), topology.BucketStream(topology.BucketIdempotency), ">"); err != nil {
		t.Fatal(err)
	}
	if got := parse[started](t, s.keyed(t, acmeKey, "order-1", goodBody),
		http.StatusOK); got.Session == began.Session {
		t.Error("the key still stands for its session after its entry has left the store")
	}
}

func TestRepeatCostsNoQuota(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := newServiceOn(t, conn, func(c *Config) {
		c.Quota = limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 2)
	})
	began := parse[started](t, s.keyed(t, acmeKey, "a", goodBody), http.StatusOK)
	for range 3 {
		parse[started](t, s.keyed(t, acmeKey, "a", goodBody), http.StatusOK)
	}
	parse[started](t, s.keyed(t, acmeKey, "b", goodBody), http.StatusOK)
	wantProblem(t, s.keyed(t, acmeKey, "c", goodBody), problem.CodeQuotaExceeded)
	// The refused one is not "in progress", and stored ones are still answered.
	wantProblem(t, s.keyed(t, acmeKey, "c", goodBody), problem.CodeQuotaExceeded)
	if got := parse[started](t, s.keyed(t, acmeKey, "a", goodBody), http.StatusOK); got != began {
		t.Errorf("replayed = %+v, want %+v", got, began)
	}
}

// leaving is a Reservations whose first session is made once the client that asked for it has gone.
type leaving struct {
	Reservations
	begun chan struct{}
	ended error // the session's time, when the client had gone

	once sync.Once
	gone <-chan struct{} // the client of the first request
}

func (l *leaving) Reserve(ctx context.Context, k store.IdempotencyKey) (store.Reservation, error) {
	l.once.Do(func() { l.gone = ctx.Done() })
	return l.Reservations.Reserve(ctx, k)
}

func (l *leaving) Commit(ctx context.Context, t store.Reservation, r sessions.Request) (s sessions.Session,
	made bool, err error) {
	select {
	case <-l.begun:
	default:
		close(l.begun)
		<-l.gone
		l.ended = ctx.Err()
	}
	return l.Reservations.Commit(ctx, t, r)
}

// A client leaves while its session is made. That goes on until it is known who made it, and the repeat gets
// that session.
func TestSessionOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	left := &leaving{begun: make(chan struct{})}
	s := newService(t, func(c *Config) {
		left.Reservations = c.Reservations
		c.Reservations = left
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-left.begun
		leave()
	}()
	if a, err := s.sends(ctx, http.MethodPost, pathInit, goodBody, "Idempotency-Key", "k"); err == nil {
		t.Errorf("the client that left was answered: %d %s", a.status, a.body)
	}
	var again answer
	natstest.Await(t, "the session is made", func() bool {
		again = s.keyed(t, acmeKey, "k", goodBody)
		return again.status != http.StatusConflict
	})
	parse[started](t, again, http.StatusOK)
	if again.header.Get(request.HeaderReplayed) != "true" {
		t.Error("the repeat got another session")
	}
	if left.ended != nil {
		t.Errorf("the time to make the session ended with its client: %v", left.ended)
	}
}

func TestRepeatIsAnsweredWhenTheStoreIsHigh(t *testing.T) {
	t.Parallel()
	high := false
	s := newService(t, func(c *Config) { c.StoreHigh = func() bool { return high } })
	began := parse[started](t, s.keyed(t, acmeKey, "a", goodBody), http.StatusOK)
	high = true
	if got := parse[started](t, s.keyed(t, acmeKey, "a", goodBody), http.StatusOK); got != began {
		t.Errorf("replayed = %+v, want %+v", got, began)
	}
	wantProblem(t, s.keyed(t, acmeKey, "b", goodBody), problem.CodeStoreFull)
}

func TestBadIdempotencyKeys(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for name, values := range map[string][]string{
		"empty": {""}, "too long": {strings.Repeat("k", 256)}, "a space": {"a b"}, "not ASCII": {"schlüssel"},
		"a tab": {"a\tb"}, "two": {"a", "a"},
	} {
		header := []string{"Authorization", "Bearer " + acmeKey, "Content-Type", "application/json"}
		for _, v := range values {
			header = append(header, "Idempotency-Key", v)
		}
		p := wantProblem(t, s.do(t, http.MethodPost, pathInit, goodBody, header...),
			problem.CodeInvalidRequest)
		if len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" ||
			p.Errors[0].Code != problem.FaultHeader {
			t.Errorf("%s: errors = %+v", name, p.Errors)
		}
	}
	parse[started](t, s.keyed(t, acmeKey, strings.Repeat("~", 255), goodBody), http.StatusOK)
}

// Many repeats at once, over two edges: each gets the one session or is asked to wait, and one unit is
// counted.
func TestRepeatsAtOnceOverTwoEdges(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	edges := []*service{newServiceOn(t, conn, nil), nil}
	// The second edge has the same master key, as all processes of one service do.
	edges[1] = newServiceOn(t, conn, func(c *Config) {
		c.Sessions, c.Reservations = edges[0].store, edges[0].store
	})
	var mu sync.Mutex
	tokens := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for {
				a := edges[i%2].keyed(t, acmeKey, "k", goodBody)
				if a.status == http.StatusConflict {
					wantProblem(t, a, problem.CodeIdempotencyInProgress)
					wantRetryAfter(t, a, 1, 1)
					continue
				}
				mu.Lock()
				tokens[parse[started](t, a, http.StatusOK).Session] = true
				mu.Unlock()
				return
			}
		})
	}
	wg.Wait()
	if len(tokens) != 1 {
		t.Errorf("%d sessions, want 1", len(tokens))
	}
	m, err := conn.Last(t.Context(), topology.StreamUsage, "usage.>")
	if err != nil || !strings.Contains(string(m.Data), `"1"`) {
		t.Errorf("counted = %s, %v; want 1", m.Data, err)
	}
}

// unsure is a Reservations whose first write is not answered: that of the reservation, or that of the
// session.
type unsure struct {
	Reservations
	reserve, stored bool // which write it is, and whether it is stored all the same

	answers bool // from now on
}

func (u *unsure) Reserve(ctx context.Context, k store.IdempotencyKey) (store.Reservation, error) {
	if !u.reserve || u.answers {
		return u.Reservations.Reserve(ctx, k)
	}
	u.answers = true
	var r store.Reservation
	if u.stored {
		r, _ = u.Reservations.Reserve(ctx, k)
	}
	return r, natsconf.ErrUncertain
}

func (u *unsure) Commit(ctx context.Context, t store.Reservation, r sessions.Request) (sessions.Session,
	bool, error) {
	if u.reserve || u.answers {
		return u.Reservations.Commit(ctx, t, r)
	}
	if u.answers = true; u.stored {
		_, _, _ = u.Reservations.Commit(ctx, t, r)
	}
	return sessions.Session{}, false, natsconf.ErrUncertain
}

// A start is not answered, and its repeat reaches this edge or another one: the session that it gets has the
// one unit that there is, whatever was stored of the first.
func TestUnitBelongsToItsReservation(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]*unsure{
		"the session is not stored":     {},
		"the session is stored":         {stored: true},
		"the reservation is not stored": {reserve: true},
		"the reservation is stored":     {reserve: true, stored: true},
	} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", elsewhere ", elsewhere), func(t *testing.T) {
				t.Parallel()
				conn, u := natstest.Start(t), *first
				quota := func() *limit.Quota {
					return limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 1)
				}
				s := newServiceOn(t, conn, func(c *Config) {
					u.Reservations = c.Reservations
					c.Reservations, c.Quota = &u, quota()
				})
				wantProblem(t, s.keyed(t, acmeKey, "k", goodBody), problem.CodeUnavailable)
				again := s
				if elsewhere {
					again = newServiceOn(t, conn, func(c *Config) {
						c.Sessions, c.Reservations, c.Quota = s.store, s.store, quota()
					})
				}
				s.clock.advance(6 * time.Second) // the reservation of an owner that ended
				began := parse[started](t, again.keyed(t, acmeKey, "k", goodBody), http.StatusOK)
				wantProblem(t, again.keyed(t, acmeKey, "other", goodBody), problem.CodeQuotaExceeded)
				if a := again.keyed(t, acmeKey, "k", goodBody); parse[started](t, a, http.StatusOK) != began {
					t.Errorf("a repeat got %s", a.body)
				}
				m, err := conn.Last(t.Context(), topology.StreamUsage, "usage.>")
				if err != nil || string(m.Data) != `{"val":"1"}` {
					t.Errorf("counted: %s, %v; want 1", m.Data, err)
				}
			})
		}
	}
}
