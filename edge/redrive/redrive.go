// Package redrive sends many callbacks again: it does for the chosen sessions what a person may do for one.
// It never happens automatically, it is bounded, and each account gets a record of it in its audit log first,
// which names the sessions. The webhook-id stays the same, so that receivers can detect the repeat.
package redrive

import (
	"context"
	"errors"
	"fmt"
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

// Send records for each account which sessions it requests, and requests one more attempt of each. It stops
// at the first error of the store, which is natsconf's: nothing is requested that is not recorded. What was
// not requested, or may have been, is a second record. A repeat skips what was requested already.
func Send(ctx context.Context, st Sessions, log Log, by access.Actor, ids []sessions.ID) (Done, error) {
	if len(ids) > Max {
		return Done{}, fmt.Errorf("%w: %d sessions at once; at most %d", natsconf.ErrTooMany, len(ids), Max)
	}
	var d Done
	var accounts []string // in the order in which they came
	of := map[string][]sessions.ID{}
	for _, id := range ids {
		switch c, err := st.Completion(ctx, id); {
		case isSkipped(err):
			d.Skipped = append(d.Skipped, id)
		case err != nil:
			return d, err
		default:
			if of[c.Account] == nil {
				accounts = append(accounts, c.Account)
			}
			of[c.Account] = append(of[c.Account], id)
		}
	}
	for _, a := range accounts {
		if err := record(ctx, log, by, a, of[a]); err != nil {
			return d, err
		}
	}
	q := requests{Done: d, st: st, by: by}
	for _, a := range accounts {
		if missed := q.request(ctx, of[a]); len(missed) > 0 {
			missed["redrive"] = "in part"
			q.failed = errors.Join(q.failed,
				log.Note(context.WithoutCancel(ctx), by, a, audit.CallbackSent, "", missed))
		}
	}
	return q.Done, q.failed
}

// requests are those of one Send.
type requests struct {
	Done

	st     Sessions
	by     access.Actor
	failed error // the first failure, after which nothing is requested
}

// request requests one more attempt of each session, and returns those of which none is requested, or may be,
// by the reason.
func (q *requests) request(ctx context.Context, ids []sessions.ID) (missed map[string]string) {
	missed = map[string]string{}
	for _, id := range ids {
		why := "not_requested"
		if q.failed == nil {
			_, err := q.st.Resend(ctx, id, q.by.String())
			switch {
			case err == nil:
				q.Asked = append(q.Asked, id)
				continue
			case isSkipped(err):
				q.Skipped = append(q.Skipped, id)
				why = "skipped"
			default:
				q.failed, why = err, "uncertain"
			}
		}
		missed[why] = strings.TrimSpace(missed[why] + " " + string(id))
	}
	return missed
}

// isSkipped reports whether an error concerns one session alone.
func isSkipped(err error) bool {
	for _, its := range []error{
		facts.ErrDeliveryOpen, facts.ErrNoDelivery, facts.ErrResentOften, sessions.ErrNotFound,
		facts.ErrUnreadable,
	} {
		if errors.Is(err, its) {
			return true
		}
	}
	return false
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

// record writes the first record of an account. For a single session it is the same as for a single resend.
func record(ctx context.Context, log Log, by access.Actor, account string, ids []sessions.ID) error {
	if len(ids) == 1 {
		return log.Note(ctx, by, account, audit.CallbackSent, string(ids[0]),
			map[string]string{"redrive": "yes"})
	}
	return log.Note(ctx, by, account, audit.CallbackSent, "", map[string]string{
		"redrive": "yes", "count": strconv.Itoa(len(ids)), "sessions": strings.Trim(fmt.Sprint(ids), "[]"),
	})
}
