package store

import (
	"context"
	"errors"
	"fmt"

	"verifyd/sessions"
	"verifyd/sessions/lists"
	"verifyd/sessions/records"
)

// cancelPage is how many sessions are listed at once.
const cancelPage = 200

// CancelOpen cancels all sessions of an account that are pending, for a reason, and returns how many.
// Sessions that are completed meanwhile stay completed. Its errors are natsconf's; a repeat continues.
func (st *Store) CancelOpen(ctx context.Context, account string, reason sessions.Reason) (canceled int,
	_ error) {
	// A minute more than they live: the clock that dated them may differ from this one.
	q := lists.Query{
		Account: account, States: []sessions.State{sessions.Pending},
		Since: st.Now().Add(-sessions.Lifetime - records.ClockSkew),
		Limit: cancelPage,
	}
	for {
		page, err := st.List(ctx, q)
		if err != nil {
			return canceled, err
		}
		for _, s := range page.Sessions {
			_, err := st.Complete(ctx, s.Session, sessions.Outcome{State: sessions.Canceled,
				Reason: reason})
			switch {
			case err == nil:
				canceled++
			case errors.Is(err, sessions.ErrCompleted), errors.Is(err, sessions.ErrExpired), errors.Is(err,
				sessions.ErrNotFound):
			default:
				return canceled, fmt.Errorf("cancel session %s: %w", s.ID, err)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return canceled, nil
		}
	}
}
