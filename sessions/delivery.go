package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
)

// Claim claims an attempt for its owner, by a write-once fact. Only nil allows the owner to send. ErrClaimed
// means that another owner has it; with any other error nobody may send, since the claim may be stored.
func (st *Store) Claim(ctx context.Context, c Claim) error {
	data, err := encodeClaim(c)
	if err != nil {
		return fmt.Errorf("encode claim: %w", err)
	}
	w := write{writer: st.completions, stream: natsconf.StreamCompletions,
		subject: claimSubject(c.Session, c.Number), data: data,
		before: crashpoint.BeforeClaim, after: crashpoint.AfterClaim}
	_, err = st.once(ctx, w)
	if errors.Is(err, errTaken) {
		return ErrClaimed
	}
	if err != nil {
		return fmt.Errorf("claim attempt %d of session %s: %w", c.Number, c.Session, err)
	}
	return nil
}

// Settle records how an attempt ended, by a write-once fact. ErrSettled comes with the existing result;
// where that cannot be read, with the result that it stands for. With any other error the caller tries
// again: an attempt without a result is settled as unknown by whoever sees it after Claim.SettleAfter.
func (st *Store) Settle(ctx context.Context, r Result) (Result, error) {
	with, err := st.sealer(ctx, r.key)
	if err != nil && !errors.Is(err, errErased) && !errors.Is(err, ErrUnreadable) {
		return Result{}, fmt.Errorf("settle attempt %d of session %s: %w", r.Number, r.Session, err)
	}
	if err != nil { // without its key the verdict is stored, and what the receiver answered is not
		r.key, r.Detail, r.Address, r.Answer = keyRef{}, "", "", ""
	}
	data, err := encodeResult(r, with)
	if err != nil {
		return Result{}, fmt.Errorf("encode result: %w", err)
	}
	w := write{writer: st.completions, stream: natsconf.StreamCompletions,
		subject: resultSubject(r.Session, r.Number), data: data,
		before: crashpoint.BeforeSettle, after: crashpoint.AfterSettle}
	existing, err := st.once(ctx, w)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, errTaken):
		other, err := decodeResult(r.Session, r.Number, existing.Data)
		if at, unreadable := storedAt(st.checkUnreadable(existing, err)); unreadable {
			other, err = unreadableResult(r.Session, r.Number, at), nil
		}
		if err != nil {
			return Result{}, fmt.Errorf("result %d of session %s: %w", r.Number, r.Session, err)
		}
		if err := st.openResult(ctx, r.key, &other); err != nil {
			return Result{}, err
		}
		return other, ErrSettled
	default:
		return Result{}, fmt.Errorf("settle attempt %d of session %s: %w", r.Number, r.Session, err)
	}
}

// Resend asks for one more attempt at a delivery that has come to an end, with the same webhook-id. It is a
// write-once fact, so that of two concurrent requests one gets ErrDeliveryOpen. The other errors are
// ErrNoDelivery, ErrNotFound, natsconf's, and an *UnreadableError where something stands in the place of the
// request that is none.
func (st *Store) Resend(ctx context.Context, id ID, by string) (Resend, error) {
	c, err := st.Completion(ctx, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) {
		if _, err := st.Read(ctx, id); err != nil {
			return Resend{}, err
		}
		return Resend{}, ErrNoDelivery
	}
	if err != nil {
		return Resend{}, err
	}
	if c.Lost { // there is nowhere to send it
		return Resend{}, ErrNoDelivery
	}
	v, err := st.viewCompleted(ctx, c)
	switch {
	case err != nil:
		return Resend{}, err
	case v.Delivery.State == DeliveryNone:
		return Resend{}, ErrNoDelivery
	case v.Delivery.State == DeliveryDue || v.Delivery.State == DeliveryClaimed:
		return Resend{}, ErrDeliveryOpen
	}
	r := Resend{Session: id, Number: len(v.Delivery.Attempts) + 1, By: by, At: st.instant()}
	data, err := encodeResend(r)
	if err != nil {
		return Resend{}, fmt.Errorf("encode resend: %w", err)
	}
	existing, err := st.once(ctx, write{
		writer: st.completions, stream: natsconf.StreamCompletions, subject: resendSubject(id, r.Number),
		data: data,
	})
	if errors.Is(err, errTaken) {
		if _, err := decodeResend(id, r.Number, existing.Data); errors.Is(err, ErrUnreadable) {
			return Resend{}, st.checkUnreadable(existing, err)
		}
		return Resend{}, ErrDeliveryOpen
	}
	if err != nil {
		return Resend{}, fmt.Errorf("ask for attempt %d of session %s: %w", r.Number, id, err)
	}
	return r, nil
}

// ResendOf reads who asked for an attempt, or nil where nobody did.
func (st *Store) ResendOf(ctx context.Context, id ID, n int) (*Resend, error) {
	r, _, err := readFact(ctx, st, factKey{"resend", id, n}, decodeResend)
	return r, err
}

// DecodeResend reads a resend as a consumer of StreamCompletions gets it; subject is the message's. Its
// errors are ErrUnreadable and ErrNewer.
func (st *Store) DecodeResend(subject string, data []byte) (Resend, error) {
	p, ok := parseFactSubject(subject)
	if !ok {
		return Resend{}, fmt.Errorf("resend on subject %q: it names no attempt: %w", subject, ErrUnreadable)
	}
	r, err := decodeResend(p.id, p.n, data)
	if err != nil {
		return Resend{}, fmt.Errorf("resend on subject %q: %w", subject, err)
	}
	return r, nil
}

// Attempts reads all claims and results of a session from the leader, by number. What cannot be read among
// them has the meaning that is defined (ErrUnreadable).
func (st *Store) Attempts(ctx context.Context, id ID) ([]Attempt, error) {
	return attemptFacts{
		claim: func(n int) (*Claim, error) {
			claim, at, err := readFact(ctx, st, factKey{"claim", id, n}, decodeClaim)
			if claim == nil && !at.IsZero() {
				c := unreadableClaim(id, n, at)
				claim = &c
			}
			return claim, err
		},
		result: func(n int) (*Result, error) {
			result, at, err := readFact(ctx, st, factKey{"result", id, n}, decodeResult)
			if result == nil && !at.IsZero() {
				r := unreadableResult(id, n, at)
				result = &r
			}
			return result, err
		},
		resendRequested: func(n int) (bool, error) {
			r, err := st.ResendOf(ctx, id, n)
			return r != nil, err
		},
	}.attempts()
}

// readFact reads one fact of a session from the leader; nil where there is none. Where something is there
// that cannot be read, unreadable is when that was stored.
func readFact[F any](ctx context.Context, st *Store, p factKey,
	decode func(ID, int, []byte) (F, error)) (fact *F, unreadable time.Time, err error) {
	m, err := st.conn.Last(ctx, natsconf.StreamCompletions, p.subject())
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read %s: %w", p.subject(), err)
	}
	f, err := decode(p.id, p.n, m.Data)
	if err == nil {
		return &f, time.Time{}, nil
	}
	if at, ok := storedAt(st.checkUnreadable(m, err)); ok {
		return nil, at, nil
	}
	return nil, time.Time{}, fmt.Errorf("%s: %w", p.subject(), err)
}

// StateOfDelivery derives the state of a delivery from its facts.
func StateOfDelivery(o Outcome, attempts []Attempt) DeliveryState {
	if o.State != Verified && o.State != Failed {
		return DeliveryNone
	}
	if isDue(attempts) {
		return DeliveryDue
	}
	last := attempts[len(attempts)-1]
	if last.Result == nil {
		return DeliveryClaimed
	}
	switch last.Result.Verdict {
	case VerdictDelivered:
		return DeliveryDelivered
	case VerdictRejected:
		return DeliveryRejected
	case VerdictUndeliverable:
		return DeliveryUndeliverable
	case VerdictReleased:
		return DeliveryDue
	case VerdictUnknown:
		return DeliveryUnknown
	default:
		return DeliveryUnknown // a verdict of a newer build: final, and not for this one to judge
	}
}

// isDue reports whether one more attempt follows, without a resend being requested.
func isDue(attempts []Attempt) bool {
	if len(attempts) == 0 {
		return true
	}
	last := attempts[len(attempts)-1].Result
	return last != nil && last.leavesDue()
}

// leavesDue reports whether another attempt follows: nothing was sent, or the policy sends it again.
func (r Result) leavesDue() bool { return r.Verdict == VerdictReleased || !r.Next.IsZero() }
