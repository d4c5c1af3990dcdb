package lists

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// deliveriesPage is how many facts FindDeliveries holds at once: a few MiB, and a few hundred deliveries.
const deliveriesPage = 1024

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
	first, last, err := st.Conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	erased, err := st.Erased(ctx)
	if err != nil {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	w := walk{st: st, q: q, open: map[sessions.ID]*delivery{}, skipped: erased}
	for last >= first && last > 0 {
		from := first
		if last-first >= deliveriesPage {
			from = last - deliveriesPage + 1
		}
		msgs, err := st.Conn.Range(ctx, topology.StreamCompletions, ">", from, last)
		if err != nil && ctx.Err() != nil && !w.oldest.IsZero() {
			return Deliveries{Views: w.found, BackTo: w.oldest}, nil
		}
		if err != nil {
			return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
		}
		full, err := w.back(ctx, msgs)
		if err != nil && ctx.Err() != nil && !w.oldest.IsZero() {
			return Deliveries{Views: w.found, BackTo: w.oldest}, nil
		}
		if w.done && err == nil {
			break
		}
		if full || err != nil {
			return Deliveries{Views: w.found, BackTo: w.oldest}, err
		}
		last = from - 1
	}
	return Deliveries{Views: w.found}, nil
}

// walk walks back through the facts. A session's other facts are written after its completion, so they are
// read before it.
type walk struct {
	st *Lists
	q  DeliveryQuery

	// sessions whose user was erased, or of which a newer build has written a fact
	skipped map[sessions.ID]bool
	// by sessions whose completion has not been read yet: those whose deliveries overlapped
	open   map[sessions.ID]*delivery
	found  []facts.View
	oldest time.Time // completion instant of the last delivery examined
	done   bool      // the remaining ones are older than q.Since
}

// delivery holds the facts read so far of one session's delivery, by number of the attempt.
type delivery struct {
	claims  map[int]facts.Claim
	results map[int]*facts.Result
	resends map[int]bool
}

// back processes a page of facts, and reports whether the limit is reached. A fact that cannot be read does
// not hide other sessions; what it means for its own is defined at ErrUnreadable.
func (w *walk) back(ctx context.Context, msgs []jetstream.Msg) (full bool, err error) {
	for _, m := range slices.Backward(msgs) {
		p, ok := facts.ParseSubject(m.Subject())
		if !ok {
			continue
		}
		if p.Kind != "completion" {
			if err := w.keepFact(p, m); err != nil {
				return false, err
			}
			continue
		}
		c, err := w.st.OpenCompletion(ctx, p.ID, m.Data())
		if errors.Is(err, natsconf.ErrUnavailable) {
			return false, err // its key cannot be read now
		}
		if err != nil { // there is nothing to deliver, or it is of a newer build
			delete(w.open, p.ID)
			continue
		}
		delivery := w.takeDelivery(c)
		if delivery.State == facts.DeliveryNone || w.skipped[p.ID] {
			continue
		}
		full, err := w.addDelivery(ctx, c, delivery)
		if full || w.done || err != nil {
			return full, err
		}
	}
	return false, nil
}

// addDelivery adds one delivery, and reports whether the limit is reached.
func (w *walk) addDelivery(ctx context.Context, c sessions.Completion, d facts.Delivery) (full bool,
	err error) {
	// completions of several edges are nearly in order
	if w.done = c.CompletedAt.Before(w.q.Since.Add(-records.ClockSkew)); w.done {
		return false, nil
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

// keepFact keeps a fact until its session's completion is read.
func (w *walk) keepFact(p facts.Key, m jetstream.Msg) (err error) {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
	}
	at := natsconf.StoredAt(m.Headers(), meta.Timestamp)
	d := w.open[p.ID]
	if d == nil {
		d = &delivery{claims: map[int]facts.Claim{}, results: map[int]*facts.Result{},
			resends: map[int]bool{}}
		w.open[p.ID] = d
	}
	switch p.Kind {
	case "resend":
		_, err = records.DecodeResend(p.ID, p.N, m.Data())
		d.resends[p.N] = err == nil
	case "claim":
		if d.claims[p.N], err = records.DecodeClaim(p.ID, p.N, m.Data()); errors.Is(err,
			facts.ErrUnreadable) {
			d.claims[p.N] = facts.UnreadableClaim(p.ID, p.N, at)
		}
	case "result":
		var r facts.Result
		if r, err = records.DecodeResult(p.ID, p.N, m.Data()); errors.Is(err, facts.ErrUnreadable) {
			r = facts.UnreadableResult(p.ID, p.N, at)
		}
		d.results[p.N] = &r
	}
	switch {
	case err == nil, errors.Is(err, facts.ErrUnreadable):
		return nil
	case errors.Is(err, natsconf.ErrNewer):
		w.skipped[p.ID] = true
		return nil
	default:
		return fmt.Errorf("decode %s: %w", m.Subject(), err)
	}
}

// takeDelivery returns a completion's delivery, as Read does, and forgets the facts that were kept for it.
func (w *walk) takeDelivery(c sessions.Completion) facts.Delivery {
	d := w.open[c.ID]
	if d == nil {
		return facts.Delivery{State: facts.StateOfDelivery(c.Outcome, nil)}
	}
	delete(w.open, c.ID)
	attempts, _ := facts.AttemptFacts{
		Claim: func(n int) (*facts.Claim, error) {
			if claim, ok := d.claims[n]; ok {
				return &claim, nil
			}
			return nil, nil //nolint:nilnil // there is none
		},
		Result:          func(n int) (*facts.Result, error) { return d.results[n], nil },
		ResendRequested: func(n int) (bool, error) { return d.resends[n], nil },
	}.Attempts()
	state := facts.StateOfDelivery(c.Outcome, attempts)
	if n := len(attempts); n > 0 && d.resends[n+1] {
		state = facts.DeliveryDue
	}
	return facts.Delivery{State: state, Attempts: attempts}
}
