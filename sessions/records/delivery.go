package records

import (
	"context"
	"errors"
	"fmt"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/once"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Claim claims an attempt for its owner, by a write-once fact. Only nil allows the owner to send. ErrClaimed
// means that another owner has it; after any other error no process may send, since the claim may be stored.
func (st *Writer) Claim(ctx context.Context, c facts.Claim) error {
	data, err := EncodeClaim(c)
	if err != nil {
		return fmt.Errorf("encode claim: %w", err)
	}
	w := Write{Writer: st.Completions,
		Subject: facts.Key{Kind: "claim", ID: c.Session, N: c.Number}.Subject(), Data: data,
		Before: crashpoint.BeforeClaim, After: crashpoint.AfterClaim}
	_, err = st.Once(ctx, w)
	if errors.Is(err, once.ErrTaken) {
		return facts.ErrClaimed
	}
	if err != nil {
		return fmt.Errorf("claim attempt %d of session %s: %w", c.Number, c.Session, err)
	}
	return nil
}

// StoreResult records how an attempt ended, by a write-once fact. ErrHasResult comes with the existing
// result; if that cannot be read, with the result that it stands for. After any other error the caller tries
// again: an attempt without a result is settled as unknown by any process that sees it after
// Claim.SettleAfter.
func (st *Writer) StoreResult(ctx context.Context, r facts.Result) (facts.Result, error) {
	with, err := st.SealerOf(ctx, r.SealedUnder)
	if err != nil && !errors.Is(err, ErrErased) && !errors.Is(err, facts.ErrUnreadable) {
		return facts.Result{}, fmt.Errorf("store result %d of session %s: %w", r.Number, r.Session, err)
	}
	if err != nil { // without its key the verdict is stored, and the receiver's answer is not
		r.SealedUnder, r.Detail, r.Address, r.Answer = sessions.KeyRef{}, "", "", ""
	}
	data, err := EncodeResult(r, with)
	if err != nil {
		return facts.Result{}, fmt.Errorf("encode result: %w", err)
	}
	at := facts.Key{Kind: "result", ID: r.Session, N: r.Number}
	w := Write{Writer: st.Completions, Subject: at.Subject(), Data: data,
		Before: crashpoint.BeforeResult, After: crashpoint.AfterResult}
	existing, err := st.Once(ctx, w)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, once.ErrTaken):
		other, err := factIn(st.Reader, at, existing, resultIn)
		if err != nil {
			return facts.Result{}, err
		}
		if err := st.openResult(ctx, r.SealedUnder, other); err != nil {
			return facts.Result{}, err
		}
		return *other, facts.ErrHasResult
	default:
		return facts.Result{}, fmt.Errorf("store result %d of session %s: %w", r.Number, r.Session, err)
	}
}

// Resend requests one more attempt at a delivery that has ended, with the same webhook-id. It is a write-once
// fact, so that of two concurrent requests one gets ErrDeliveryOpen. The other errors are ErrNoDelivery,
// ErrResentOften, ErrNotFound, natsconf's, and an *UnreadableError if the message in the place of the request
// is not one.
func (st *Writer) Resend(ctx context.Context, id sessions.ID, by string) (facts.Resend, error) {
	c, err := st.Completion(ctx, id)
	if errors.Is(err, sessions.ErrNotFound) || errors.Is(err, facts.ErrUnreadable) {
		if _, err := st.Read(ctx, id); err != nil {
			return facts.Resend{}, err
		}
		return facts.Resend{}, facts.ErrNoDelivery
	}
	if err != nil {
		return facts.Resend{}, err
	}
	if c.Lost { // there is nowhere to send it
		return facts.Resend{}, facts.ErrNoDelivery
	}
	v, err := st.viewOf(ctx, statusOf(c), true)
	if err != nil {
		return facts.Resend{}, err
	}
	number, err := v.Delivery.Again()
	if err != nil {
		return facts.Resend{}, err
	}
	if err := st.mayResend(ctx, id, number); err != nil {
		return facts.Resend{}, err
	}
	r := facts.Resend{Session: id, Number: number, By: by, At: st.Instant()}
	data, err := encodeResend(r)
	if err != nil {
		return facts.Resend{}, fmt.Errorf("encode resend: %w", err)
	}
	existing, err := st.Once(ctx, Write{
		Writer: st.Completions, Subject: facts.Key{Kind: "resend", ID: id, N: r.Number}.Subject(), Data: data,
	})
	if errors.Is(err, once.ErrTaken) {
		if _, err := DecodeResend(id, r.Number, existing.Data); errors.Is(err, facts.ErrUnreadable) {
			return facts.Resend{}, st.checkUnreadable(existing, err)
		}
		return facts.Resend{}, facts.ErrDeliveryOpen
	}
	if err != nil {
		return facts.Resend{}, fmt.Errorf("ask for attempt %d of session %s: %w", r.Number, id, err)
	}
	return r, nil
}

// maxResends is how often one more attempt at a delivery may be requested, also in ErrResentOften's text.
// Whoever reads a session reads the facts of all of its attempts.
const maxResends = 100

// mayResend returns ErrResentOften if no more attempts may be requested. Those that the policy made count for
// nothing.
func (st *Writer) mayResend(ctx context.Context, id sessions.ID, number int) error {
	if number <= maxResends+1 { // the first was not requested
		return nil
	}
	h := history{st.Reader, id, atOnce(ctx, st.Conn, id)}
	for n, left := number-1, maxResends; n > 1; n-- {
		asked, err := h.requested(n)
		if err != nil {
			return err
		}
		if asked {
			left--
		}
		if left == 0 {
			return facts.ErrResentOften
		}
	}
	return nil
}

// Schedule makes the stream pass a delivery to a dispatcher at r.At, to the second, even if all processes
// restart until then. A later call for the same session replaces an earlier one. Its errors are those of
// natsconf.Writer.Publish; a repeat is harmless.
func (st *Writer) Schedule(ctx context.Context, r facts.Retry) error {
	data, err := encodeRetry(r)
	if err != nil {
		return fmt.Errorf("encode retry: %w", err)
	}
	crashpoint.Reach(crashpoint.BeforeSchedule)
	defer crashpoint.Reach(crashpoint.AfterSchedule)
	if _, err := st.Retries.Publish(ctx,
		natsconf.ScheduleMsg(ScheduleSubject(r.Session), RetrySubject(r.Session), r.At, data)); err != nil {
		return fmt.Errorf("schedule a retry of session %s: %w", r.Session, err)
	}
	return nil
}
