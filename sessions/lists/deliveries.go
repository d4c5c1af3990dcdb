package lists

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// Deliveries are the newest deliveries that were found.
type Deliveries struct {
	Views []facts.View // newest completion first
	// BackTo is set if the limit was reached or the time was up, so that there may be older ones: the
	// completion instant of the oldest delivery that was examined.
	BackTo time.Time
}

// DeliveryQuery selects deliveries. The zero value of a field matches any.
type DeliveryQuery struct {
	States []facts.DeliveryState
	Since  time.Time             // completed at or after it
	Wants  func(facts.View) bool // an additional condition
	Limit  int                   // 1 or more
}

func (q DeliveryQuery) wants(v facts.View) bool {
	return wanted(q.States, v.Delivery.State) && !v.CompletedAt.Before(q.Since) &&
		(q.Wants == nil || q.Wants(v))
}

// Deliveries calls FindDeliveries for a state, or for any state if it is empty.
func (st *Lists) Deliveries(ctx context.Context, state facts.DeliveryState, limit int) (Deliveries, error) {
	q := DeliveryQuery{Limit: limit}
	if state != "" {
		q.States = []facts.DeliveryState{state}
	}
	return st.FindDeliveries(ctx, q)
}

// FindDeliveries returns the newest sessions whose outcome is to be delivered, at most q.Limit. It walks
// back through the facts, page by page. If ctx ends on the way, it returns what it has found so far. Its
// error is natsconf.ErrUnavailable.
func (st *Lists) FindDeliveries(ctx context.Context, q DeliveryQuery) (Deliveries, error) {
	erased, err := st.Erased(ctx)
	if err != nil {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	w := walk{st: st, q: q, open: records.Courses{}, erased: erased}
	err = w.open.Back(ctx, st.Conn, func(id sessions.ID, m jetstream.Msg) (done bool, err error) {
		return w.examine(ctx, id, m)
	})
	if err != nil && (ctx.Err() == nil || w.oldest.IsZero()) {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	found := Deliveries{Views: w.found}
	if err != nil || len(w.found) >= q.Limit {
		found.BackTo = w.oldest
	}
	return found, nil
}

// walk walks back through the outcomes.
type walk struct {
	st *Lists
	q  DeliveryQuery

	erased map[sessions.ID]bool // sessions whose user was
	open   records.Courses
	found  []facts.View
	oldest time.Time // completion instant of the last delivery examined
}

// examine adds the delivery of a completion, if it is wanted, and reports whether the limit is reached, or
// the remaining ones are older than the query's time. What cannot be read does not hide other sessions; what
// it means for its own is defined at ErrUnreadable.
func (w *walk) examine(ctx context.Context, id sessions.ID, m jetstream.Msg) (done bool, err error) {
	known, _, newer := w.open.Take(id)
	c, err := w.st.OpenCompletion(ctx, id, m.Data())
	if errors.Is(err, natsconf.ErrUnavailable) {
		return false, err // its key cannot be read now
	}
	if err != nil || newer != nil || w.erased[id] {
		return false, nil //nolint:nilerr // there is nothing to deliver, or this build cannot read it
	}
	attempts, _ := known.Attempts()
	d, _ := facts.NewDelivery(c.Outcome, attempts, known.ResendRequested)
	if d.State == facts.DeliveryNone {
		return false, nil
	}
	// completions of several edges are nearly in order
	if c.CompletedAt.Before(w.q.Since.Add(-records.ClockSkew)) {
		return true, nil
	}
	w.oldest = c.CompletedAt
	err = w.addIfWanted(ctx, facts.View{
		Session: c.Session, Outcome: c.Outcome, CompletedAt: c.CompletedAt, Delivery: d,
	})
	return err == nil && len(w.found) >= w.q.Limit, err
}

// addIfWanted adds a delivery that the query selects, with the answers of its receiver.
func (w *walk) addIfWanted(ctx context.Context, v facts.View) error {
	if !w.q.wants(v) {
		return nil
	}
	w.found = append(w.found, v)
	return w.st.OpenResults(ctx, v.Session, v.Delivery.Attempts)
}
