package store

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"strconv"

	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/records"
)

// The uses of the keyed hashes of codes: one makes them, one makes their digests.
const (
	codeUse   = "confirmation-code"
	digestUse = "confirmation-digest"
)

// Proofs stores what users have proven for sessions that ask for more than one step, and completes those that
// are confirmed with a code.
type Proofs struct {
	*records.Writer

	codes, digests *secretbox.Hash
}

// WrongCodeError is returned for a code that does not confirm the session: another code, or one that another
// platform user entered.
type WrongCodeError struct {
	Left  int  // how many more may be entered; 0: the session has failed
	Again bool // the same code was entered before, so that this was no try
}

// Error implements error.
func (e *WrongCodeError) Error() string {
	return fmt.Sprintf("the code is not the one of the session and its user; %d tries are left", e.Left)
}

// ProvePlatform stores that a network vouched, in a browser, for the platform account that a session was
// started for. A repeat is harmless. Its errors are natsconf's.
func (st *Proofs) ProvePlatform(ctx context.Context, id sessions.ID, browser, network string) error {
	_, err := st.ChangeProgress(ctx, id, func(p proof.Progress) (proof.Progress, error) {
		return p.WithPlatform(browser, network, st.Instant()), nil
	})
	return err
}

// AwaitCode stores that a network vouched for an identity, in a browser, and that the session waits for its
// code. A repeat for the same browser is harmless. Its errors are proof.ErrSignedIn if somebody signed in
// before, in another browser, and natsconf's.
func (st *Proofs) AwaitCode(ctx context.Context, s sessions.Session, browser, browserID,
	network string) error {
	digest := st.digest(s.ID, s.PlatformUserID, st.CodeFor(s.ID, browserID))
	_, err := st.ChangeProgress(ctx, s.ID, func(p proof.Progress) (proof.Progress, error) {
		if p.Network != "" && p.Browser == browser {
			return p, nil
		}
		return p.WithIdentity(browser, network, digest, st.Instant())
	})
	return err
}

// CodeFor returns the code of a session in the browser with the id in its cookie: the same each time, so that
// the page can show it again while nothing but its digest is stored.
func (st *Proofs) CodeFor(id sessions.ID, browserID string) string {
	return proof.NewCode(st.codes.Bytes(joined(string(id), browserID)))
}

// Confirm completes a session that waits for its code as verified, if this is the code and the user is that
// of the session; a repeat is harmless. With the last wrong try it completes the session as failed. Its
// errors are a *WrongCodeError, proof.ErrNothingToConfirm, ErrCompleted, ErrExpired and natsconf's.
// ErrCompleted comes with the existing completion, if the session ended otherwise or no try was left. After
// one of natsconf's a repeat with the same code costs no try.
//
// A try is stored before it is judged: if many come at once, no more than proof.MaxTries are stored, and the
// others do not learn whether they were right.
func (st *Proofs) Confirm(ctx context.Context, s sessions.Session, user, code string) (sessions.Completion,
	error) {
	digest := st.digest(s.ID, user, code)
	crashpoint.Reach(crashpoint.BeforeConfirm)
	again := false
	p, err := st.ChangeProgress(ctx, s.ID, func(p proof.Progress) (proof.Progress, error) {
		next, err := p.Try(digest, st.Instant())
		again = len(next.Tried) == len(p.Tried)
		return next, err
	})
	crashpoint.Reach(crashpoint.AfterConfirm)
	judged := err == nil
	if !judged && !errors.Is(err, proof.ErrNoTriesLeft) {
		return sessions.Completion{}, err
	}
	o, over := Judge(p)
	if !over {
		return sessions.Completion{}, &WrongCodeError{Left: p.TriesLeft(), Again: again}
	}
	c, err := st.Complete(ctx, s, o)
	same := err == nil || errors.Is(err, sessions.ErrCompleted) && c.State == o.State && c.Reason == o.Reason
	switch {
	case !same:
		return c, err
	case !c.Verified() && judged:
		return c, &WrongCodeError{Again: again}
	case c.Verified() && hmac.Equal(digest, p.Code): // by this try, or a repeat of it
		return c, nil
	default:
		return c, sessions.ErrCompleted // by other tries
	}
}

// Judge returns the outcome that the entered codes lead to, and whether they lead to any yet.
func Judge(p proof.Progress) (o sessions.Outcome, over bool) {
	o = sessions.Outcome{Network: p.Network, Reached: p.Reached()}
	switch {
	case p.Confirmed():
		o.State, o.Reached = sessions.Verified, proof.Code
	case p.TriesLeft() == 0:
		o.State, o.Reason = sessions.Failed, sessions.Unconfirmed
	default:
		return sessions.Outcome{}, false
	}
	return o, true
}

// digest stands for a code in a place that others may read, bound to the session and to the user who enters
// it.
func (st *Proofs) digest(id sessions.ID, user, code string) []byte {
	return st.digests.Bytes(joined(string(id), user, code))
}

// joined makes one text from several, each preceded by its length, so that no two lists make the same text.
func joined(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = append(strconv.AppendInt(b, int64(len(p)), 10), ':')
		b = append(b, p...)
	}
	return b
}
