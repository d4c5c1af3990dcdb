package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// Begin begins a read, and returns a function that waits for its answer, so that several are under way at
// once. A panic of the read is raised in the goroutine that waits.
func Begin[T any](read func() (T, error)) (wait func() (T, error)) {
	var answer T
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		answer, err = read()
	}()
	return func() (T, error) {
		<-done
		if panicked != nil {
			panic(panicked)
		}
		return answer, err
	}
}

// lookUp is how a session is found: open reads its record, if that is wanted, with the errors of ReadOpen.
type lookUp struct {
	st   *Reader
	id   sessions.ID
	open func() (sessions.Session, error)
}

func lookUpOf(ctx context.Context, st *Reader, account string, id sessions.ID) lookUp {
	return lookUp{st, id, func() (sessions.Session, error) { return readOpen(ctx, st, account, id) }}
}

// outcome reads a session and its outcome. Its errors are ErrNotFound and natsconf's.
func (l lookUp) outcome(ctx context.Context) (sessions.Status, error) {
	s, completed, err := l.status(ctx)
	if err == nil && completed {
		err = checkErased(ctx, l.st, l.id)
	}
	if err != nil {
		return sessions.Status{}, err
	}
	return s, nil
}

// status is outcome, whether the user was erased or not. completed: a completion is stored, so that there may
// be a delivery.
func (l lookUp) status(ctx context.Context) (s sessions.Status, completed bool, err error) {
	c, err := l.st.completionOf(ctx, l.id)
	if err == nil {
		return statusOf(c), true, nil
	}
	at, unreadable := storedAt(err)
	if !unreadable && !isMissing(err) {
		return sessions.Status{}, false, err
	}
	found, err := l.open()
	if unreadable && (err == nil || errors.Is(err, sessions.ErrExpired)) {
		return endedUnreadable(found, at), false, nil
	}
	switch {
	case err == nil:
		pending := sessions.Status{Session: found, Outcome: sessions.Outcome{State: sessions.Pending}}
		return pending, false, nil
	case errors.Is(err, sessions.ErrExpired):
		return l.st.expiredStatus(ctx, found)
	default:
		return sessions.Status{}, false, err
	}
}

// ProgressOf reads from the leader what the user of a session has proven so far; empty if nothing. A session
// that asks for one step has no progress, and none is read. Its errors are ErrNewer, ErrUnreadable and
// natsconf's.
func (st *Reader) ProgressOf(ctx context.Context, s sessions.Session) (proof.Progress, error) {
	if s.Level == proof.Link {
		return proof.Progress{}, nil
	}
	m, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketSessions), progressSubject(s.ID))
	if errors.Is(err, natsconf.ErrNotFound) {
		return proof.Progress{}, nil
	}
	if err != nil {
		return proof.Progress{}, fmt.Errorf("read the progress of session %s: %w", s.ID, err)
	}
	return decodeProgress(m)
}

// decodeProgress reads a progress; nil: there is none. Its errors are ErrNewer and ErrUnreadable.
func decodeProgress(m *jetstream.RawStreamMsg) (proof.Progress, error) {
	if m == nil {
		return proof.Progress{}, nil
	}
	var r progressRecord
	err := DecodeRecord(m.Data, &r, &r.Version, RecordVersions)
	return r.Progress, err
}

// tokenUse is the use of the keyed hash that masks the accounts in sessions' tokens.
const tokenUse = "session-token"

// Tokens makes sessions' tokens, and finds the session of a token.
type Tokens struct {
	st   *Reader
	mask sessions.Mask
}

// NewToken makes a token for a new session of an account.
func (ts *Tokens) NewToken(account string) sessions.Token { return sessions.NewToken(account, ts.mask) }

// ReadByToken reads a session and its outcome. Its errors are ErrNotFound and natsconf's.
func (ts *Tokens) ReadByToken(ctx context.Context, t sessions.Token) (sessions.Status, error) {
	return lookUp{ts.st, t.ID(), ts.opener(ctx, t)}.outcome(ctx)
}

// ReadPending is ReadByToken for a session that is most likely pending: its record is read at the same time
// as the outcome that it does not have, not after it.
func (ts *Tokens) ReadPending(ctx context.Context, t sessions.Token) (sessions.Status, error) {
	return lookUp{ts.st, t.ID(), Begin(ts.opener(ctx, t))}.outcome(ctx)
}

func (ts *Tokens) opener(ctx context.Context, t sessions.Token) func() (sessions.Session, error) {
	return func() (sessions.Session, error) { return ts.ReadOpenByToken(ctx, t) }
}

// ReadOpenByToken is Reader.ReadOpen. If the token leads to no account, like those of older builds, or to one
// that has no such session, it looks below all accounts.
func (ts *Tokens) ReadOpenByToken(ctx context.Context, t sessions.Token) (sessions.Session, error) {
	if account := t.Account(ts.mask); account != "" {
		if s, err := readOpen(ctx, ts.st, account, t.ID()); !errors.Is(err, sessions.ErrNotFound) {
			return s, err
		}
	}
	return ts.st.ReadOpen(ctx, t.ID())
}
