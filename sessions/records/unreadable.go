package records

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// CheckUnreadable reports a message from a consumer that could not be read, and returns the
// *UnreadableError; any other error is returned unchanged.
func (st *Reader) CheckUnreadable(m jetstream.Msg, err error) error {
	meta, merr := m.Metadata()
	if merr != nil {
		return err
	}
	return st.unreadable(m.Subject(), m.Headers(), meta.Sequence.Stream, meta.Timestamp, err)
}

// checkUnreadable is CheckUnreadable for a message that was read by its subject.
func (st *Reader) checkUnreadable(m *jetstream.RawStreamMsg, err error) error {
	return st.unreadable(m.Subject, m.Header, m.Sequence, m.Time, err)
}

func (st *Reader) unreadable(subject string, header nats.Header, sequence uint64, at time.Time,
	err error) error {
	if _, located := errors.AsType[*facts.UnreadableError](err); located ||
		!errors.Is(err, facts.ErrUnreadable) {
		return err
	}
	e := &facts.UnreadableError{
		Session: facts.OfFact(subject), Subject: subject, Sequence: sequence, At: natsconf.StoredAt(header,
			at).
			UTC(), Cause: err,
	}
	st.metrics.unreadable.WithLabelValues(e.Kind()).Inc()
	if st.onUnreadable != nil {
		st.onUnreadable(e)
	}
	return e
}

// storedAt returns when an unreadable message was stored.
func storedAt(err error) (at time.Time, ok bool) {
	if e, found := errors.AsType[*facts.UnreadableError](err); found {
		return e.At.Truncate(time.Millisecond), true
	}
	return time.Time{}, false
}

// endedUnreadable is the status of a session whose completion cannot be read and was stored at an instant.
func endedUnreadable(s sessions.Session, at time.Time) sessions.Status {
	if at.Before(s.ExpiresAt) {
		s.ExpiresAt = at // from then on it could not be completed
	}
	return sessions.Status{Session: s, Outcome: sessions.Outcome{State: sessions.Expired,
		Reason: sessions.UnreadableReason}}
}
