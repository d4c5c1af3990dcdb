package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// deliveriesPage is how many facts are held at once while deliveries are looked for: a few MiB, and a few hundred deliveries.
const deliveriesPage = 1024

// Deliveries is a look at the newest deliveries.
type Deliveries struct {
	Views []View // newest completion first
	// BackTo is set where the limit was reached or the time was up, so that there may be older ones: the completion instant of the
	// oldest delivery that was looked at.
	BackTo time.Time
}

// Deliveries looks for the newest sessions whose outcome is to be delivered, at most limit (one or more), in the given state or, where it
// is empty, in any. It walks back through the facts, page by page; when ctx ends on the way, what was found until then is the
// answer. Its error is natsconf.ErrUnavailable.
func (st *Store) Deliveries(ctx context.Context, state DeliveryState, limit int) (Deliveries, error) {
	first, last, err := st.conn.Bounds(ctx, natsconf.StreamCompletions)
	if err != nil {
		return Deliveries{}, fmt.Errorf("look for deliveries: %w", err)
	}
	w := walk{st: st, state: state, limit: limit, open: map[ID]*delivery{}}
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
		if full, err := w.back(msgs); full || err != nil {
			return Deliveries{Views: w.found, BackTo: w.oldest}, err
		}
		last = from - 1
	}
	return Deliveries{Views: w.found}, nil
}

// walk goes back through the facts. A session's other facts are written after its completion, so they are met before it.
type walk struct {
	st    *Store
	state DeliveryState
	limit int

	open   map[ID]*delivery // of sessions whose completion is still to come: those whose deliveries overlapped
	found  []View
	oldest time.Time // completion instant of the last delivery looked at
}

// delivery is what was met of one session's delivery, by number of the attempt.
type delivery struct {
	attempts map[int]*Attempt
	asked    map[int]bool
}

// back takes a page of facts, and says whether as many deliveries are found as are wanted.
func (w *walk) back(msgs []jetstream.Msg) (full bool, err error) {
	for _, m := range slices.Backward(msgs) {
		parts := strings.Split(m.Subject(), ".")
		id := ID(parts[1])
		if parts[0] != "completion" {
			if err := w.keep(id, parts, m.Data()); err != nil {
				return false, err
			}
			continue
		}
		c, err := decodeCompletion(id, m.Data(), w.st.box)
		if err != nil {
			return false, err
		}
		delivery := w.take(c)
		if delivery.State == DeliveryNone {
			continue
		}
		w.oldest = c.CompletedAt
		if w.state == "" || delivery.State == w.state {
			w.found = append(w.found, View{Session: c.Session, Outcome: c.Outcome, CompletedAt: c.CompletedAt, Delivery: delivery})
		}
		if len(w.found) >= w.limit {
			return true, nil
		}
	}
	return false, nil
}

// keep holds a fact until its session's completion is met.
func (w *walk) keep(id ID, parts []string, data []byte) error {
	subject := strings.Join(parts, ".")
	n, err := strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		return fmt.Errorf("fact on subject %q: %w", subject, err)
	}
	d := w.open[id]
	if d == nil {
		d = &delivery{attempts: map[int]*Attempt{}, asked: map[int]bool{}}
		w.open[id] = d
	}
	if parts[0] == "resend" {
		d.asked[n] = true
		return nil
	}
	if d.attempts[n] == nil {
		d.attempts[n] = &Attempt{}
	}
	a := d.attempts[n]
	switch parts[0] {
	case "claim":
		a.Claim.Session = id
		err = json.Unmarshal(data, &a.Claim)
	case "result":
		a.Result = &Result{Session: id}
		err = json.Unmarshal(data, a.Result)
	default:
		err = errors.New("no such kind of fact")
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", subject, err)
	}
	return nil
}

// take gives a completion's delivery, as Read does, and forgets what was kept of it.
func (w *walk) take(c Completion) Delivery {
	d := w.open[c.ID]
	if d == nil {
		return Delivery{State: StateOfDelivery(c.Outcome, nil)}
	}
	delete(w.open, c.ID)
	var attempts []Attempt
	for n := 1; d.attempts[n] != nil; n++ {
		attempts = append(attempts, *d.attempts[n])
	}
	state := StateOfDelivery(c.Outcome, attempts)
	if n := len(attempts); n > 0 && d.asked[n+1] {
		state = DeliveryDue
	}
	return Delivery{State: state, Attempts: attempts}
}
