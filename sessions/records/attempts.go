package records

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Attempts reads all claims and results of a session from the leader, by number. What cannot be read among
// them has the meaning that is defined (ErrUnreadable).
func (st *Reader) Attempts(ctx context.Context, id sessions.ID) ([]facts.Attempt, error) {
	return facts.AttemptFacts{
		Claim: func(n int) (*facts.Claim, error) {
			claim, at, err := readFact(ctx, st, facts.Key{Kind: "claim", ID: id, N: n}, DecodeClaim)
			if claim == nil && !at.IsZero() {
				c := facts.UnreadableClaim(id, n, at)
				claim = &c
			}
			return claim, err
		},
		Result: func(n int) (*facts.Result, error) {
			result, at, err := readFact(ctx, st, facts.Key{Kind: "result", ID: id, N: n}, DecodeResult)
			if result == nil && !at.IsZero() {
				r := facts.UnreadableResult(id, n, at)
				result = &r
			}
			return result, err
		},
		ResendRequested: func(n int) (bool, error) {
			r, err := st.ResendOf(ctx, id, n)
			return r != nil, err
		},
	}.Attempts()
}

// readFact reads one fact of a session from the leader; nil where there is none. Where something is there
// that cannot be read, unreadable is when that was stored.
func readFact[F any](ctx context.Context, st *Reader, p facts.Key,
	decode func(sessions.ID, int, []byte) (F, error)) (fact *F, unreadable time.Time, err error) {
	m, err := st.Conn.Last(ctx, topology.StreamCompletions, p.Subject())
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read %s: %w", p.Subject(), err)
	}
	f, err := decode(p.ID, p.N, m.Data)
	if err == nil {
		return &f, time.Time{}, nil
	}
	if at, ok := storedAt(st.checkUnreadable(m, err)); ok {
		return nil, at, nil
	}
	return nil, time.Time{}, fmt.Errorf("%s: %w", p.Subject(), err)
}

// ResendOf reads who asked for an attempt, or nil where nobody did.
func (st *Reader) ResendOf(ctx context.Context, id sessions.ID, n int) (*facts.Resend, error) {
	r, _, err := readFact(ctx, st, facts.Key{Kind: "resend", ID: id, N: n}, DecodeResend)
	return r, err
}

// DecodeResend reads a resend as a consumer of StreamCompletions gets it; subject is the message's. Its
// errors are ErrUnreadable and ErrNewer.
func (st *Reader) DecodeResend(subject string, data []byte) (facts.Resend, error) {
	p, ok := facts.ParseSubject(subject)
	if !ok {
		return facts.Resend{}, fmt.Errorf("resend on subject %q: it names no attempt: %w", subject,
			facts.ErrUnreadable)
	}
	r, err := DecodeResend(p.ID, p.N, data)
	if err != nil {
		return facts.Resend{}, fmt.Errorf("resend on subject %q: %w", subject, err)
	}
	return r, nil
}

// DecodeRetry reads a retry as a consumer of StreamRetries gets it; subject is the message's. Its errors are
// ErrNewer and ErrUnreadable. With the latter it returns the session that the subject names, if any.
func (st *Reader) DecodeRetry(subject string, data []byte) (facts.Retry, error) {
	_, name, _ := strings.Cut(subject, ".")
	id, err := sessions.ParseID(name)
	if err != nil {
		return facts.Retry{}, fmt.Errorf("retry on subject %q: %w: %w", subject, facts.ErrUnreadable, err)
	}
	r, err := decodeRetry(id, data)
	if err != nil {
		return facts.Retry{Session: id}, fmt.Errorf("retry on subject %q: %w", subject, err)
	}
	return r, nil
}
