package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
)

// session is one session of a schedule: what its seed decides, and what its callers were told.
type session struct {
	w      *world
	number int
	name   string
	once   bool // its policy is PolicyOnce
	pages  bool // users visit its pages at the edges; otherwise it is completed in the edges' stores

	mu       sync.Mutex
	started  *sessions.Session // nil: no start was acknowledged
	token    sessions.Token
	redeemed int
	won      []sessions.Outcome // each acknowledged to the caller that stored it
	saw      []sessions.Outcome // each reported as stored before
	browsers []*browser
	visits
}

func (w *world) newSession(number int) *session {
	return &session{w: w, number: number, name: fmt.Sprint("s", number)}
}

// pagesShare is the share of sessions whose users visit the pages. A sign-in there costs several times as
// much as a completion in the store.
const pagesShare = 0.3

// start starts the session at an edge.
func (s *session) start(edges []*worker) bool {
	r := s.w.draw("start of %s", s.name)
	q := sessions.Request{
		Account: "acc_" + string(rune('a'+r.IntN(2))), Key: "key_k", Platform: "p",
		PlatformUserID: s.name, Policy: sessions.PolicyOnce,
		CallbackURL: "https://" + receiverAt(r.IntN(receivers)) + "/" + s.name,
	}
	if r.Float64() < 0.2 {
		q.Policy = sessions.PolicyAtLeastOnce
	}
	if r.Float64() < 0.15 {
		q.Level = proof.Code
	}
	s.once, s.pages = q.Policy == sessions.PolicyOnce, r.Float64() < pagesShare
	for range 3 {
		e := edges[r.IntN(len(edges))]
		var started sessions.Session
		var token sessions.Token
		err := e.ask(func(ctx context.Context, l *life) (err error) {
			started, token, err = l.store.Create(ctx, q)
			return err
		})
		if err == nil {
			s.w.note("%s is started", s.w.name(started.ID, s.number))
			s.mu.Lock()
			s.started, s.token = &started, token
			s.mu.Unlock()
			return true
		}
		if !unanswered(err) {
			s.w.fail("start of %s: %v", s.name, err)
			return false
		}
		time.Sleep(time.Second) // in virtual time
	}
	return false
}

// end makes users and integrators end the session, each in their own way, at about the same time.
func (s *session) end(ctx context.Context, edges []*worker) {
	r := s.w.draw("end of %s", s.name)
	outcomes := []sessions.Outcome{
		{State: sessions.Verified, Network: "n", Reached: s.started.Level},
		{State: sessions.Failed, Reason: sessions.Declined},
		{State: sessions.Canceled, Reason: sessions.CanceledReason},
	}
	var all sync.WaitGroup
	for i := range 1 + r.IntN(3) {
		e := edges[(i+r.IntN(2))%len(edges)]
		o := outcomes[[]int{0, 0, 0, 1, 2}[r.IntN(5)]]
		after := time.Duration(r.IntN(3)*r.IntN(2000)) * time.Millisecond
		all.Go(func() {
			time.Sleep(after) // in virtual time
			if s.pages && o.State != sessions.Canceled {
				s.visit(ctx, edges, i)
				return
			}
			if o.State != sessions.Canceled {
				s.redeem(e)
			}
			s.repeat(e, func() error {
				if s.started.Level == proof.Code && o.Verified() {
					return s.proveAndConfirm(e)
				}
				return s.complete(e, o)
			})
		})
	}
	all.Wait()
}

// redeem uses up the one sign-in attempt of a session without pages.
func (s *session) redeem(e *worker) {
	err := e.ask(func(ctx context.Context, l *life) error {
		return l.store.Redeem(ctx, s.started.ID, fmt.Sprint("attempt", s.number))
	})
	if err == nil {
		s.mu.Lock()
		s.redeemed++
		s.mu.Unlock()
	}
}

// repeat repeats a call until it gets an answer, a few times at most.
func (s *session) repeat(e *worker, do func() error) {
	for range 4 {
		err := do()
		_, wrong := errors.AsType[*store.WrongCodeError](err)
		if err == nil || wrong || errors.Is(err, sessions.ErrCompleted) ||
			errors.Is(err, sessions.ErrExpired) || errors.Is(err, proof.ErrNothingToConfirm) {
			return
		}
		if !unanswered(err) {
			s.w.fail("%s at %s: %v", s.name, e.name, err)
			return
		}
		time.Sleep(time.Second) // in virtual time
	}
}

// recordEnd records what a caller was told that asked a store to end the session.
func (s *session) recordEnd(err error, o sessions.Outcome, by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.w.note("%s is %s, by %s", s.name, o.State, by)
		s.won = append(s.won, o)
	case errors.Is(err, sessions.ErrCompleted):
		s.saw = append(s.saw, o)
	default:
		return
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.endKnown()
}

func (s *session) complete(e *worker, o sessions.Outcome) error {
	var c sessions.Completion
	err := e.ask(func(ctx context.Context, l *life) error {
		open, err := l.store.ReadOpen(ctx, s.started.ID)
		if err == nil {
			c, err = l.store.Complete(ctx, open, o)
		}
		return err
	})
	s.recordEnd(err, c.Outcome, e.name)
	return err
}

// proveAndConfirm signs in at one edge, and submits the code.
func (s *session) proveAndConfirm(e *worker) error {
	var code string
	err := e.ask(func(ctx context.Context, l *life) error {
		open, err := l.store.ReadOpen(ctx, s.started.ID)
		if err != nil {
			return err
		}
		code = l.store.CodeFor(open.ID, "b")
		return l.store.AwaitCode(ctx, open, "browser", "b", "n")
	})
	switch {
	case errors.Is(err, proof.ErrSignedIn):
		return sessions.ErrCompleted
	case err != nil:
		return err
	}
	return s.confirm(e, code)
}

// confirm submits a code as an integrator. Several integrators may be told that theirs confirmed the
// session.
func (s *session) confirm(e *worker, code string) error {
	var c sessions.Completion
	err := e.ask(func(ctx context.Context, l *life) error {
		open, err := l.store.ReadOpen(ctx, s.started.ID)
		if err == nil {
			c, err = l.store.Confirm(ctx, open, s.name, code)
		}
		return err
	})
	told := err
	if err == nil {
		told = sessions.ErrCompleted
	}
	s.recordEnd(told, c.Outcome, e.name)
	return err
}

// judge compares what is stored with what callers were told, and with what the receiver saw.
func (s *session) judge(ctx context.Context, by *process) {
	if s.started == nil {
		return
	}
	v, err := by.store.Read(ctx, s.started.ID)
	if err != nil {
		s.w.fail("%s was acknowledged, and cannot be read: %v", s.name, err)
		return
	}
	s.w.note("%s ends as %s, its delivery as %s", s.name, v.State, v.Delivery.State)
	if len(s.won) > 1 || s.redeemed > 1 {
		s.w.fail("%s: completed %d times, redeemed %d times", s.name, len(s.won), s.redeemed)
	}
	for _, o := range slices.Concat(s.won, s.saw) {
		if o.State != v.State || o.Reason != v.Reason {
			s.w.fail("%s is %s, and somebody was told that it is %s", s.name, v.State, o.State)
		}
	}
	if s.started.Level == proof.Code && v.State == sessions.Verified && v.Reached != proof.Code {
		s.w.fail("%s is verified, and has reached %s", s.name, v.Reached)
	}
	if !v.CompletedAt.Before(s.started.ExpiresAt) {
		s.w.fail("%s was completed %s after it had expired", s.name, v.CompletedAt.Sub(s.started.ExpiresAt))
	}
	if s.pages {
		s.judgeVisits(v)
	}
	s.judgeDelivery(v)
	s.judgeTimes(ctx, by, v)
}

// covers reports whether an attempt was allowed to send at an instant: from its claim to its deadline, and
// not once it had ended, as precisely as processes know the store's time.
func covers(a facts.Attempt, at time.Time) bool {
	return !at.Before(a.Claim.At.Add(-clockError)) && !at.After(a.Claim.Deadline.Add(clockError)) &&
		(a.Result == nil || !at.After(a.Result.At.Add(clockError)))
}

// judgeTimes checks by the broker's timestamps that no process settled another's claim too early, or gave up
// too early.
func (s *session) judgeTimes(ctx context.Context, by *process, v facts.View) {
	for _, a := range v.Delivery.Attempts {
		if a.Result == nil {
			continue
		}
		m, err := by.conn.Last(ctx, topology.StreamCompletions,
			fmt.Sprintf("result.%s.%d", s.started.ID, a.Claim.Number))
		if err != nil {
			s.w.fail("%s: the result of attempt %d cannot be read: %v", s.name, a.Claim.Number, err)
			continue
		}
		early := a.Claim.SettleAfter.Sub(m.Time)
		if a.Result.By != a.Claim.Worker && early > 2*clockError {
			s.w.fail("%s: attempt %d is settled by another process %s too early", s.name, a.Claim.Number,
				early)
		}
		early = v.CompletedAt.Add(retryFor).Sub(m.Time)
		if a.Claim.GiveUp && early > 2*clockError {
			s.w.fail("%s is given up %s too early", s.name, early)
		}
	}
}

func (s *session) judgeDelivery(v facts.View) {
	s.w.mu.Lock()
	saw := *s.w.receivedOf(s.name)
	s.w.mu.Unlock()
	allowed := 0 // POSTs
	for _, a := range v.Delivery.Attempts {
		if a.Result == nil {
			s.w.fail("%s: attempt %d has no result", s.name, a.Claim.Number)
			continue
		}
		verdict := a.Result.Verdict
		if verdict != facts.VerdictReleased && verdict != facts.VerdictUndeliverable {
			allowed++
		}
		told := slices.Contains(saw.statuses, a.Result.Status)
		switch {
		case verdict == facts.VerdictDelivered && (!told || a.Result.Status/100 != 2),
			verdict == facts.VerdictRejected && (!told || a.Result.Status/100 == 2):
			s.w.fail("%s: attempt %d is %s with %d, and its receiver sent %v", s.name, a.Claim.Number,
				verdict, a.Result.Status, saw.statuses)
		}
	}
	if len(saw.posts) > allowed || s.once && allowed > 1 {
		s.w.fail("%s: %d POSTs, and %d attempts may have sent", s.name, len(saw.posts), allowed)
	}
	for _, at := range saw.posts {
		if !slices.ContainsFunc(v.Delivery.Attempts, func(a facts.Attempt) bool { return covers(a, at) }) {
			s.w.fail("%s: a POST at %s, when no attempt might send", s.name, at.Sub(s.w.begun))
		}
	}
	callback := v.State == sessions.Verified || v.State == sessions.Failed
	switch v.Delivery.State {
	case facts.DeliveryDue, facts.DeliveryClaimed:
		s.w.fail("%s: its delivery has not ended", s.name)
	case facts.DeliveryUndeliverable:
		if len(saw.posts) > 0 {
			s.w.fail("%s is undeliverable, and its receiver got it", s.name)
		}
	case facts.DeliveryNone:
		if callback || len(saw.posts) > 0 {
			s.w.fail("%s is %s without a delivery, and its receiver got %d", s.name, v.State, len(saw.posts))
		}
	case facts.DeliveryDelivered, facts.DeliveryRejected, facts.DeliveryUnknown:
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.kinds["ended as "+string(v.Delivery.State)]++
	if slices.Contains(saw.statuses, http.StatusOK) && v.Delivery.State == facts.DeliveryUnknown {
		s.w.kinds["answer not seen"]++
	}
}
