package sessions

import (
	"context"
	"errors"
	"fmt"
)

// cancelPage is how many sessions are listed at once.
const cancelPage = 200

// CancelOpen cancels all sessions of an account that are pending, for a reason, and returns how many.
// Sessions that are completed meanwhile stay so. Its errors are natsconf's; a repeat continues.
func (st *Store) CancelOpen(ctx context.Context, account string, reason Reason) (canceled int, _ error) {
	// A minute more than they live: the clock that dated them may differ from the one that is asked here.
	q := Query{
		Account: account, States: []State{Pending}, Since: st.now().Add(-Lifetime - clockSkew),
		Limit: cancelPage,
	}
	for {
		page, err := st.List(ctx, q)
		if err != nil {
			return canceled, err
		}
		for _, s := range page.Sessions {
			_, err := st.CompleteSession(ctx, s.Session, Outcome{State: Canceled, Reason: reason})
			switch {
			case err == nil:
				canceled++
			case errors.Is(err, ErrCompleted), errors.Is(err, ErrExpired), errors.Is(err, ErrNotFound):
			default:
				return canceled, fmt.Errorf("cancel session %s: %w", s.ID, err)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return canceled, nil
		}
	}
}
