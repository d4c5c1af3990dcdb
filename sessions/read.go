package sessions

import (
	"context"
	"errors"

	"verifyd/natsconf"
)

// Read returns everything about a session. It reads from the leaders, so that it sees every acknowledged
// write. Its errors are ErrNotFound and natsconf's.
func (st *Store) Read(ctx context.Context, id ID) (View, error) {
	c, err := st.completion(ctx, id)
	if err == nil {
		return st.viewCompleted(ctx, c)
	}
	at, unreadable := storedAt(err)
	if !unreadable && !errors.Is(err, natsconf.ErrNotFound) {
		return View{}, err
	}
	s, err := st.open(ctx, id)
	if unreadable && (err == nil || errors.Is(err, ErrExpired)) {
		return endedUnreadable(s, at), nil
	}
	switch {
	case err == nil:
		return pendingView(s), nil
	case errors.Is(err, ErrExpired):
		return st.viewExpired(ctx, s)
	default:
		return View{}, err
	}
}

// view returns everything about a session whose record is known.
func (st *Store) view(ctx context.Context, s Session) (View, error) {
	c, err := st.completionOf(ctx, s.ID)
	at, unreadable := storedAt(err)
	switch {
	case err == nil:
		return st.viewCompleted(ctx, c)
	case unreadable:
		return endedUnreadable(s, at), nil
	case !errors.Is(err, natsconf.ErrNotFound):
		return View{}, err
	case st.now().Before(s.ExpiresAt) && !s.Lost:
		return pendingView(s), nil
	default:
		return st.viewExpired(ctx, s)
	}
}

func pendingView(s Session) View {
	return View{Session: s, Outcome: Outcome{State: Pending}, Delivery: Delivery{State: DeliveryNone}}
}

func (st *Store) viewCompleted(ctx context.Context, c Completion) (View, error) {
	attempts, err := st.Attempts(ctx, c.ID)
	if err != nil {
		return View{}, err
	}
	if err := st.openResults(ctx, c.Session, attempts); err != nil {
		return View{}, err
	}
	v := View{
		Session: c.Session, Outcome: c.Outcome, CompletedAt: c.CompletedAt,
		Delivery: Delivery{State: StateOfDelivery(c.Outcome, attempts), Attempts: attempts},
	}
	if n := len(attempts); n > 0 && v.Delivery.State != DeliveryDue && v.Delivery.State != DeliveryClaimed {
		requested, err := st.ResendOf(ctx, c.ID, n+1)
		if err != nil {
			return View{}, err
		}
		if requested != nil {
			v.Delivery.State = DeliveryDue
		}
	}
	return v, nil
}

// viewExpired reads the completion once more: one may have been stored, in time, between the first read and
// the expiry.
func (st *Store) viewExpired(ctx context.Context, s Session) (View, error) {
	c, err := st.completionOf(ctx, s.ID)
	if err == nil {
		return st.viewCompleted(ctx, c)
	}
	if at, unreadable := storedAt(err); unreadable {
		return endedUnreadable(s, at), nil
	}
	if !errors.Is(err, natsconf.ErrNotFound) {
		return View{}, err
	}
	why := ExpiredReason
	if s.Lost && st.now().Before(s.ExpiresAt) {
		why = LostReason
	}
	return View{Session: s, Outcome: Outcome{State: Expired, Reason: why},
		Delivery: Delivery{State: DeliveryNone}}, nil
}
