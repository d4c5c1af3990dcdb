// Package redrive sends many callbacks again: what a person may do for one session, done for those that they
// chose. It never happens by itself, it is bounded, and each session's account has a record of it in its
// audit log. The webhook-id stays the same, so that receivers can tell.
package redrive

import (
	"context"
	"errors"
	"fmt"

	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Max bounds one redrive: a hundred sessions take about a second.
const Max = 100

// Ended are the ends that a person may want to have sent again, the surest first: of the first nothing was
// sent.
func Ended() []facts.DeliveryState {
	return []facts.DeliveryState{
		facts.DeliveryUndeliverable, facts.DeliveryRejected, facts.DeliveryUnknown,
	}
}

// Sessions asks for one more attempt; a *store.Store.
type Sessions interface {
	Resend(ctx context.Context, id sessions.ID, by string) (facts.Resend, error)
	Completion(ctx context.Context, id sessions.ID) (sessions.Completion, error)
}

// Log keeps records; an *accountstore.Store.
type Log interface {
	Note(ctx context.Context, by access.Actor, account, what, on string, detail map[string]string) error
}

// Done is what came of a redrive.
type Done struct {
	Asked   []sessions.ID // are due again
	Skipped []sessions.ID // were due already, have nothing to send, or are not kept any more
}

// Send asks for one more attempt of each. It stops at the first failure of the store; what was asked for
// until then is done, and returned beside the error, which is natsconf's. A repeat skips what is due already.
func Send(ctx context.Context, st Sessions, log Log, by access.Actor, ids []sessions.ID) (Done, error) {
	var d Done
	if len(ids) > Max {
		return d, fmt.Errorf("%w: %d sessions at once; at most %d", natsconf.ErrTooMany, len(ids), Max)
	}
	for _, id := range ids {
		_, err := st.Resend(ctx, id, by.String())
		switch {
		case errors.Is(err, facts.ErrDeliveryOpen), errors.Is(err, facts.ErrNoDelivery),
			errors.Is(err, sessions.ErrNotFound):
			d.Skipped = append(d.Skipped, id)
			continue
		case err != nil:
			return d, err
		}
		d.Asked = append(d.Asked, id)
		c, err := st.Completion(ctx, id)
		if err == nil {
			err = log.Note(ctx, by, c.Account, audit.CallbackSent, string(id), map[string]string{
				"redrive": "yes",
			})
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}
