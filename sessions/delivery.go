package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
)

// Claim takes an attempt for its owner, by a write-once fact. Only nil allows the owner to send. ErrClaimed means that another
// owner has it; with any other error nobody may send, since the claim may be stored.
func (st *Store) Claim(ctx context.Context, c Claim) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode claim: %w", err)
	}
	w := write{writer: st.completions, stream: natsconf.StreamCompletions, subject: claimSubject(c.Session, c.Number), data: data,
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

// Settle records how an attempt ended, by a write-once fact. ErrSettled comes with the result that stands. With any other error
// the caller tries again: an attempt without a result is settled as unknown by whoever sees it after Claim.SettleAfter.
func (st *Store) Settle(ctx context.Context, r Result) (Result, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return Result{}, fmt.Errorf("encode result: %w", err)
	}
	w := write{writer: st.completions, stream: natsconf.StreamCompletions, subject: resultSubject(r.Session, r.Number), data: data,
		before: crashpoint.BeforeSettle, after: crashpoint.AfterSettle}
	standing, err := st.once(ctx, w)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, errTaken):
		other := Result{Session: r.Session}
		if err := json.Unmarshal(standing, &other); err != nil {
			return Result{}, fmt.Errorf("decode result %d of session %s: %w", r.Number, r.Session, err)
		}
		return other, ErrSettled
	default:
		return Result{}, fmt.Errorf("settle attempt %d of session %s: %w", r.Number, r.Session, err)
	}
}

// Resend asks for one more attempt at a delivery that has come to an end, with the same webhook-id. It is a write-once fact, so that of
// two who ask at once one is told ErrDeliveryOpen. The other errors are ErrNoDelivery, ErrNotFound and natsconf's.
func (st *Store) Resend(ctx context.Context, id ID, by string) (Resend, error) {
	c, err := st.Completion(ctx, id)
	if errors.Is(err, ErrNotFound) {
		if _, err := st.Read(ctx, id); err != nil {
			return Resend{}, err
		}
		return Resend{}, ErrNoDelivery
	}
	if err != nil {
		return Resend{}, err
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
	data, err := json.Marshal(r)
	if err != nil {
		return Resend{}, fmt.Errorf("encode resend: %w", err)
	}
	_, err = st.once(ctx, write{writer: st.completions, stream: natsconf.StreamCompletions, subject: resendSubject(id, r.Number), data: data})
	if errors.Is(err, errTaken) {
		return Resend{}, ErrDeliveryOpen
	}
	if err != nil {
		return Resend{}, fmt.Errorf("ask for attempt %d of session %s: %w", r.Number, id, err)
	}
	return r, nil
}

// Asked reads who asked for an attempt, or nil where nobody did.
func (st *Store) Asked(ctx context.Context, id ID, n int) (*Resend, error) {
	r := Resend{Session: id}
	found, err := st.fact(ctx, resendSubject(id, n), &r)
	if err != nil || !found {
		return nil, err
	}
	return &r, nil
}

// DecodeResend reads a resend as a consumer of StreamCompletions gets it; subject is the message's.
func (st *Store) DecodeResend(subject string, data []byte) (Resend, error) {
	var r Resend
	name, _, _ := strings.Cut(strings.TrimPrefix(subject, "resend."), ".")
	id, err := ParseID(name)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return Resend{}, fmt.Errorf("resend on subject %q: %w", subject, err)
	}
	r.Session = id
	return r, nil
}

// Attempts reads all claims and results of a session from the leader, by number.
func (st *Store) Attempts(ctx context.Context, id ID) ([]Attempt, error) {
	var attempts []Attempt
	for n := 1; ; n++ {
		claim := Claim{Session: id}
		found, err := st.fact(ctx, claimSubject(id, n), &claim)
		if err != nil || !found {
			return attempts, err
		}
		result := Result{Session: id}
		found, err = st.fact(ctx, resultSubject(id, n), &result)
		if err != nil {
			return nil, err
		}
		a := Attempt{Claim: claim}
		if found {
			a.Result = &result
		}
		attempts = append(attempts, a)
	}
}

func (st *Store) fact(ctx context.Context, subject string, into any) (found bool, err error) {
	m, err := st.conn.Last(ctx, natsconf.StreamCompletions, subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", subject, err)
	}
	if err := json.Unmarshal(m.Data, into); err != nil {
		return false, fmt.Errorf("decode %s: %w", subject, err)
	}
	return true, nil
}

// StateOfDelivery derives where a delivery stands from its facts.
func StateOfDelivery(o Outcome, attempts []Attempt) DeliveryState {
	if o.State != Verified && o.State != Failed {
		return DeliveryNone
	}
	if len(attempts) == 0 {
		return DeliveryDue
	}
	last := attempts[len(attempts)-1]
	if last.Result == nil {
		return DeliveryClaimed
	}
	if !last.Result.Next.IsZero() {
		return DeliveryDue // the policy sends it again
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
