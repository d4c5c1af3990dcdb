package records

import (
	"context"

	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Read returns everything about a session. It reads from the leaders, so that it sees every acknowledged
// write. Its errors are ErrNotFound and natsconf's.
func (st *Reader) Read(ctx context.Context, id sessions.ID) (facts.View, error) {
	return st.ReadOf(ctx, "", id)
}

// ReadOf is Read for a session of an account; "" stands for any account.
func (st *Reader) ReadOf(ctx context.Context, account string, id sessions.ID) (facts.View, error) {
	s, completed, err := lookUpOf(ctx, st, account, id).status(ctx)
	if err != nil {
		return facts.View{}, err
	}
	if !completed {
		return st.viewOf(ctx, s, false)
	}
	erased := Begin(func() (any, error) { return nil, checkErased(ctx, st, id) })
	v, err := st.viewOf(ctx, s, true)
	if _, gone := erased(); gone != nil {
		return facts.View{}, gone
	}
	return v, err
}

// ReadOutcome is Read without the delivery, which takes a read for each of its facts.
func (st *Reader) ReadOutcome(ctx context.Context, id sessions.ID) (sessions.Status, error) {
	return lookUpOf(ctx, st, "", id).outcome(ctx)
}

// View returns everything about a session whose record is known. Its errors are ErrErased and natsconf's.
func (st *Reader) View(ctx context.Context, s sessions.Session) (facts.View, error) {
	known := lookUp{st, s.ID, func() (sessions.Session, error) {
		if s.Lost || s.Expired(st.Now()) {
			return s, sessions.ErrExpired
		}
		return s, nil
	}}
	found, completed, err := known.status(ctx)
	if err != nil {
		return facts.View{}, err
	}
	return st.viewOf(ctx, found, completed)
}

// viewOf adds its delivery to a session that is completed; others have none.
func (st *Reader) viewOf(ctx context.Context, s sessions.Status, completed bool) (v facts.View, err error) {
	v = facts.View{
		Session: s.Session, Outcome: s.Outcome, CompletedAt: s.CompletedAt,
		Delivery: facts.Delivery{State: facts.DeliveryNone},
	}
	if !completed {
		v.Progress, err = st.ProgressOf(ctx, s.Session)
		v.Reached = v.Progress.Reached()
		return v, err
	}
	h := history{st, s.ID, atOnce(ctx, st.Conn, s.ID)}
	attempts, err := h.attempts()
	if err != nil {
		return facts.View{}, err
	}
	if err := st.OpenResults(ctx, s.Session, attempts); err != nil {
		return facts.View{}, err
	}
	if v.Delivery, err = facts.NewDelivery(s.Outcome, attempts, h.requested); err != nil {
		return facts.View{}, err
	}
	return v, nil
}
