package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
)

// session is one session of a schedule: what its seed decides, and what those were told who took part.
type session struct {
	w      *world
	number int
	name   string
	once   bool // its policy

	mu       sync.Mutex
	started  *sessions.Session // nil: nobody was told that it was
	redeemed int
	won      []sessions.Outcome // told to be stored, each by whoever completed it
	saw      []sessions.Outcome // told to be stored before
	known    bool               // a code was confirmed
}

func (w *world) newSession(number int) *session {
	return &session{w: w, number: number, name: fmt.Sprint("s", number)}
}

// start starts it at an edge.
func (s *session) start(ctx context.Context, edges []*edge) bool {
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
	s.once = q.Policy == sessions.PolicyOnce
	for range 3 {
		started, _, err := edges[r.IntN(len(edges))].store.Create(ctx, q)
		if err == nil {
			s.w.note("%s is started", s.w.name(started.ID, s.number))
			s.mu.Lock()
			s.started = &started
			s.mu.Unlock()
			return true
		}
		if !unanswered(err) {
			s.w.fail("start of %s: %v", s.name, err)
			return false
		}
		time.Sleep(time.Second) // of the bubble
	}
	return false
}

// end has edges complete it, each in its own way, at about the same time.
func (s *session) end(ctx context.Context, edges []*edge) {
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
			time.Sleep(after) // of the bubble
			if o.State != sessions.Canceled {
				s.redeem(ctx, e)
			}
			s.repeat(ctx, e, func() error {
				if s.started.Level == proof.Code && o.Verified() {
					return s.confirm(ctx, e)
				}
				return s.complete(ctx, e, o)
			})
		})
	}
	all.Wait()
}

// redeem uses up the one sign-in attempt.
func (s *session) redeem(ctx context.Context, e *edge) {
	if err := e.store.Redeem(ctx, s.started.ID, fmt.Sprint("attempt", s.number)); err == nil {
		s.mu.Lock()
		s.redeemed++
		s.mu.Unlock()
	}
}

// repeat does something as a user does who reloads the page.
func (s *session) repeat(_ context.Context, e *edge, do func() error) {
	for range 4 {
		err := do()
		if err == nil || errors.Is(err, sessions.ErrCompleted) || errors.Is(err, sessions.ErrExpired) {
			return
		}
		if !unanswered(err) {
			s.w.fail("%s at %s: %v", s.name, e.name, err)
			return
		}
		time.Sleep(time.Second) // of the bubble
	}
}

func (s *session) complete(ctx context.Context, e *edge, o sessions.Outcome) error {
	open, err := e.store.ReadOpen(ctx, s.started.ID)
	if err != nil {
		return err
	}
	c, err := e.store.Complete(ctx, open, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.w.note("%s is %s, by %s", s.name, o.State, e.name)
		s.won = append(s.won, o)
	case errors.Is(err, sessions.ErrCompleted):
		s.saw = append(s.saw, c.Outcome)
	}
	return err
}

// confirm signs in at one edge, and gives the code.
func (s *session) confirm(ctx context.Context, e *edge) error {
	open, err := e.store.ReadOpen(ctx, s.started.ID)
	if err != nil {
		return err
	}
	if err := e.store.AwaitCode(ctx, open, "browser", "b", "n"); err != nil {
		if errors.Is(err, proof.ErrSignedIn) {
			return sessions.ErrCompleted
		}
		return err
	}
	c, err := e.store.Confirm(ctx, open, s.name, e.store.CodeFor(open.ID, "b"))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.known = true
		s.saw = append(s.saw, c.Outcome)
	case errors.Is(err, sessions.ErrCompleted):
		s.saw = append(s.saw, c.Outcome)
	}
	return err
}

// judge compares what is stored with what was told, and with what the receiver saw.
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
	s.judgeDelivery(v)
}

// covers reports whether an attempt might send at an instant: from its claim to its deadline, and not once it
// had ended. What is stored has milliseconds.
func covers(a facts.Attempt, at time.Time) bool {
	return !at.Before(a.Claim.At) && !at.After(a.Claim.Deadline.Add(time.Millisecond)) &&
		(a.Result == nil || !at.After(a.Result.At.Add(time.Millisecond)))
}

func (s *session) judgeDelivery(v facts.View) {
	s.w.mu.Lock()
	saw := *s.w.talkerOf(s.name)
	s.w.mu.Unlock()
	may := 0 // how many POSTs
	for _, a := range v.Delivery.Attempts {
		if a.Result == nil {
			s.w.fail("%s: attempt %d has no result", s.name, a.Claim.Number)
			continue
		}
		verdict := a.Result.Verdict
		if verdict != facts.VerdictReleased && verdict != facts.VerdictUndeliverable {
			may++
		}
		told := slices.Contains(saw.statuses, a.Result.Status)
		switch {
		case verdict == facts.VerdictDelivered && (!told || a.Result.Status/100 != 2),
			verdict == facts.VerdictRejected && (!told || a.Result.Status/100 == 2):
			s.w.fail("%s: attempt %d is %s with %d, and its receiver sent %v", s.name, a.Claim.Number,
				verdict, a.Result.Status, saw.statuses)
		}
	}
	if len(saw.posts) > may || s.once && may > 1 {
		s.w.fail("%s: %d POSTs, and %d attempts may have sent", s.name, len(saw.posts), may)
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
