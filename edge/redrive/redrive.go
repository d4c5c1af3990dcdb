// Package redrive sends many callbacks again: it does for the chosen sessions what a person may do for one.
// It never happens by itself, it is bounded, and each account has one record of it in its audit log, which
// names the sessions. The webhook-id stays the same, so that receivers can tell.
package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// Send asks for one more attempt of each, and records for each account what was asked for. It stops at the
// first failure of the store; what was asked for until then is done, recorded, and returned beside the error,
// which is natsconf's. A repeat skips what is due already.
func Send(ctx context.Context, st Sessions, log Log, by access.Actor, ids []sessions.ID) (Done, error) {
	if len(ids) > Max {
		return Done{}, fmt.Errorf("%w: %d sessions at once; at most %d", natsconf.ErrTooMany, len(ids), Max)
	}
	var d Done
	var accounts []string // in the order in which they came
	asked := map[string][]string{}
	err := func() error {
		for _, id := range ids {
			_, err := st.Resend(ctx, id, by.String())
			switch {
			case errors.Is(err, facts.ErrDeliveryOpen), errors.Is(err, facts.ErrNoDelivery),
				errors.Is(err, sessions.ErrNotFound):
				d.Skipped = append(d.Skipped, id)
				continue
			case err != nil:
				return err
			}
			d.Asked = append(d.Asked, id)
			c, err := st.Completion(ctx, id)
			if err != nil {
				return err
			}
			if !slices.Contains(accounts, c.Account) {
				accounts = append(accounts, c.Account)
			}
			asked[c.Account] = append(asked[c.Account], string(id))
		}
		return nil
	}()
	for _, of := range accounts {
		err = errors.Join(err, record(ctx, log, by, of, asked[of]))
	}
	return d, err
}

// ParseIDs reads the sessions of a form. It is not ok where they are not what a page of ours sends: at most
// Max ids.
func ParseIDs(texts []string) (ids []sessions.ID, ok bool) {
	for _, text := range texts {
		id, err := sessions.ParseID(text)
		if err != nil || string(id) != text || len(ids) == Max {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}

// record writes the one record of an account. Of a single session it says what a single resend says.
func record(ctx context.Context, log Log, by access.Actor, account string, ids []string) error {
	on, detail := "", map[string]string{
		"redrive": "yes", "count": strconv.Itoa(len(ids)), "sessions": strings.Join(ids, " "),
	}
	if len(ids) == 1 {
		on, detail = ids[0], map[string]string{"redrive": "yes"}
	}
	return log.Note(ctx, by, account, audit.CallbackSent, on, detail)
}
