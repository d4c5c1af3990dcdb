// Package redrive sends many callbacks again: it does for the chosen sessions what a person may do for one.
// It never happens automatically, it is bounded, and each account gets one record of it in its audit log,
// which names the sessions. The webhook-id stays the same, so that receivers can detect the repeat.
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

// Ended lists the delivery states that a person may want to have sent again, the safest first: in the first
// nothing was sent.
func Ended() []facts.DeliveryState {
	return []facts.DeliveryState{
		facts.DeliveryUndeliverable, facts.DeliveryRejected, facts.DeliveryUnknown,
	}
}

// Sessions requests one more attempt; a *store.Store.
type Sessions interface {
	Resend(ctx context.Context, id sessions.ID, by string) (facts.Resend, error)
	Completion(ctx context.Context, id sessions.ID) (sessions.Completion, error)
}

// Log keeps records; an *accountstore.Store.
type Log interface {
	Note(ctx context.Context, by access.Actor, account, what, on string, detail map[string]string) error
}

// Done is the result of a redrive.
type Done struct {
	Asked []sessions.ID // will be sent again
	// Skipped were requested already, have nothing to send, are no longer kept, or cannot be requested
	// (facts.ErrUnreadable)
	Skipped []sessions.ID
}

// Send requests one more attempt of each, and records the requests for each account. It stops at the first
// error of the store; what was requested until then is done, recorded, and returned with the error, which is
// natsconf's. A repeat skips what was requested already.
func Send(ctx context.Context, st Sessions, log Log, by access.Actor, ids []sessions.ID) (Done, error) {
	if len(ids) > Max {
		return Done{}, fmt.Errorf("%w: %d sessions at once; at most %d", natsconf.ErrTooMany, len(ids), Max)
	}
	var d Done
	var accounts []string // in the order in which they came
	asked := map[string][]string{}
	err := func() error {
		for _, id := range ids {
			c, err := st.Completion(ctx, id) // before the request, whose record needs its account
			if err == nil {
				_, err = st.Resend(ctx, id, by.String())
			}
			switch {
			case errors.Is(err, facts.ErrDeliveryOpen), errors.Is(err, facts.ErrNoDelivery),
				errors.Is(err, facts.ErrResentOften),
				errors.Is(err, sessions.ErrNotFound), errors.Is(err, facts.ErrUnreadable):
				d.Skipped = append(d.Skipped, id)
				continue
			case err != nil:
				return err
			}
			d.Asked = append(d.Asked, id)
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

// ParseIDs reads the sessions of a form. ok is false unless they are what our page sends: at most Max ids.
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

// record writes the one record of an account. For a single session it is the same as for a single resend.
func record(ctx context.Context, log Log, by access.Actor, account string, ids []string) error {
	on, detail := "", map[string]string{
		"redrive": "yes", "count": strconv.Itoa(len(ids)), "sessions": strings.Join(ids, " "),
	}
	if len(ids) == 1 {
		on, detail = ids[0], map[string]string{"redrive": "yes"}
	}
	return log.Note(ctx, by, account, audit.CallbackSent, on, detail)
}
