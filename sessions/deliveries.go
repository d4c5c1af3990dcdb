package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// deliveriesPage is how many facts are held at once while deliveries are looked for: a few MiB, and a few
// hundred deliveries.
const deliveriesPage = 1024

// Deliveries are the newest deliveries that were found.
type Deliveries struct {
	Views []View // newest completion first
	// BackTo is set where the limit was reached or the time was up, so that there may be older ones: the
	// completion instant of the oldest delivery that was looked at.
	BackTo time.Time
}

// DeliveryQuery says which deliveries are wanted. The zero value of a field asks for any.
type DeliveryQuery struct {
	States []DeliveryState
	Since  time.Time       // completed at or after it
	Wants  func(View) bool // what else they must be
	Limit  int             // 1 or more
}

func (q DeliveryQuery) wants(v View) bool {
	return wanted(q.States, v.Delivery.State) && !v.CompletedAt.Before(q.Since) &&
		(q.Wants == nil || q.Wants(v))
}

// Deliveries is FindDeliveries for a state or, where it is empty, for any.
func (st *Store) Deliveries(ctx context.Context, state DeliveryState, limit int) (Deliveries, error) {
	q := DeliveryQuery{Limit: limit}
	if state != "" {
		q.States = []DeliveryState{state}
	}
	return st.FindDeliveries(ctx, q)
}

// FindDeliveries looks for the newest sessions whose outcome is to be delivered, at most q.Limit. It walks
// back through the facts, page by page; when ctx ends on the way, what was found until then is the answer.
// Its error is natsconf.ErrUnavailable.
func (st *Store) FindDeliveries(ctx context.Context, q DeliveryQuery) (Deliveries, error) {
	first, last, err := st.conn.Bounds(ctx, natsconf.StreamCompletions)
	if err != nil {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	erased, err := st.Erased(ctx)
	if err != nil {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	w := walk{st: st, q: q, open: map[ID]*delivery{}, skipped: erased}
	for last >= first && last > 0 {
		from := first
		if last-first >= deliveriesPage {
			from = last - deliveriesPage + 1
		}
		msgs, err := st.conn.Range(ctx, natsconf.StreamCompletions, ">", from, last)
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
	st *Store
	q  DeliveryQuery

	// sessions whose user was erased, or of which a newer build has written something
	skipped map[ID]bool
	// of sessions whose completion is still to come: those whose deliveries overlapped
	open   map[ID]*delivery
	found  []View
	oldest time.Time // completion instant of the last delivery looked at
	done   bool      // what comes is older than what is wanted
}

// delivery is what was read so far of one session's delivery, by number of the attempt.
type delivery struct {
	claims  map[int]Claim
	results map[int]*Result
	resends map[int]bool
}

// back processes a page of facts, and reports whether as many deliveries are found as are wanted. One fact
// that cannot be read hides no other session; for its own it has the meaning that is defined
// (ErrUnreadable).
func (w *walk) back(ctx context.Context, msgs []jetstream.Msg) (full bool, err error) {
	for _, m := range slices.Backward(msgs) {
		p, ok := parseFactSubject(m.Subject())
		if !ok {
			continue
		}
		if p.kind != "completion" {
			if err := w.keepFact(p, m); err != nil {
				return false, err
			}
			continue
		}
		c, err := w.st.decodeCompletion(ctx, p.id, m.Data())
		if errors.Is(err, natsconf.ErrUnavailable) {
			return false, err // its key cannot be read now
		}
		if err != nil { // there is nothing to deliver, or it is the newer build's
			delete(w.open, p.id)
			continue
		}
		delivery := w.takeDelivery(c)
		if delivery.State == DeliveryNone || w.skipped[p.id] {
			continue
		}
		full, err := w.addDelivery(ctx, c, delivery)
		if full || w.done || err != nil {
			return full, err
		}
	}
	return false, nil
}

// addDelivery adds one delivery, and reports whether as many are found as are wanted.
func (w *walk) addDelivery(ctx context.Context, c Completion, d Delivery) (full bool, err error) {
	// completions of several edges are nearly in order
	if w.done = c.CompletedAt.Before(w.q.Since.Add(-clockSkew)); w.done {
		return false, nil
	}
	w.oldest = c.CompletedAt
	err = w.addIfWanted(ctx, View{
		Session: c.Session, Outcome: c.Outcome, CompletedAt: c.CompletedAt, Delivery: d,
	})
	return err == nil && len(w.found) >= w.q.Limit, err
}

// addIfWanted adds a delivery that the query asks for, with what its receiver answered.
func (w *walk) addIfWanted(ctx context.Context, v View) error {
	if !w.q.wants(v) {
		return nil
	}
	w.found = append(w.found, v)
	return w.st.openResults(ctx, v.Session, v.Delivery.Attempts)
}

// keepFact keeps a fact until its session's completion is read.
func (w *walk) keepFact(p factKey, m jetstream.Msg) (err error) {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
	}
	at := natsconf.StoredAt(m.Headers(), meta.Timestamp)
	d := w.open[p.id]
	if d == nil {
		d = &delivery{claims: map[int]Claim{}, results: map[int]*Result{}, resends: map[int]bool{}}
		w.open[p.id] = d
	}
	switch p.kind {
	case "resend":
		_, err = decodeResend(p.id, p.n, m.Data())
		d.resends[p.n] = err == nil
	case "claim":
		if d.claims[p.n], err = decodeClaim(p.id, p.n, m.Data()); errors.Is(err, ErrUnreadable) {
			d.claims[p.n] = unreadableClaim(p.id, p.n, at)
		}
	case "result":
		var r Result
		if r, err = decodeResult(p.id, p.n, m.Data()); errors.Is(err, ErrUnreadable) {
			r = unreadableResult(p.id, p.n, at)
		}
		d.results[p.n] = &r
	}
	switch {
	case err == nil, errors.Is(err, ErrUnreadable):
		return nil
	case errors.Is(err, ErrNewer):
		w.skipped[p.id] = true
		return nil
	default:
		return fmt.Errorf("decode %s: %w", m.Subject(), err)
	}
}

// takeDelivery returns a completion's delivery, as Read does, and forgets what was kept of it.
func (w *walk) takeDelivery(c Completion) Delivery {
	d := w.open[c.ID]
	if d == nil {
		return Delivery{State: StateOfDelivery(c.Outcome, nil)}
	}
	delete(w.open, c.ID)
	attempts, _ := attemptFacts{
		claim: func(n int) (*Claim, error) {
			if claim, ok := d.claims[n]; ok {
				return &claim, nil
			}
			return nil, nil //nolint:nilnil // there is none
		},
		result:          func(n int) (*Result, error) { return d.results[n], nil },
		resendRequested: func(n int) (bool, error) { return d.resends[n], nil },
	}.attempts()
	state := StateOfDelivery(c.Outcome, attempts)
	if n := len(attempts); n > 0 && d.resends[n+1] {
		state = DeliveryDue
	}
	return Delivery{State: state, Attempts: attempts}
}
