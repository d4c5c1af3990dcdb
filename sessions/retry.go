package sessions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
)

// Retry is the hint "process this delivery again at At". The facts decide what is done then: a retry that
// arrives twice, or too late, changes nothing.
type Retry struct {
	Session ID `json:"-"`
	// the attempt that somebody asked for; 0: the delivery of the completion itself
	RequestedAttempt int `json:"asked,omitzero"`
	Tries            int `json:"tries"` // how often it was taken up before
	// since when it is to be sent: the completion, or the request to send it again
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
}

// Schedule has a delivery passed to a dispatcher at r.At, to the second, even if all processes restart until
// then. A later call for the same session replaces an earlier one. Its errors are those of
// natsconf.Writer.Publish; a repeat is harmless.
func (st *Store) Schedule(ctx context.Context, r Retry) error {
	data, err := encodeRetry(r)
	if err != nil {
		return fmt.Errorf("encode retry: %w", err)
	}
	crashpoint.Reach(crashpoint.BeforeSchedule)
	defer crashpoint.Reach(crashpoint.AfterSchedule)
	if _, err := st.retries.Publish(ctx,
		natsconf.ScheduleMsg(scheduleSubject(r.Session), retrySubject(r.Session), r.At, data)); err != nil {
		return fmt.Errorf("schedule a retry of session %s: %w", r.Session, err)
	}
	return nil
}

// DecodeRetry reads a retry as a consumer of StreamRetries gets it; subject is the message's. Its errors are
// ErrNewer and ErrUnreadable. With the latter it returns the session that the subject names, if any.
func (st *Store) DecodeRetry(subject string, data []byte) (Retry, error) {
	_, name, _ := strings.Cut(subject, ".")
	id, err := ParseID(name)
	if err != nil {
		return Retry{}, fmt.Errorf("retry on subject %q: %w: %w", subject, ErrUnreadable, err)
	}
	r, err := decodeRetry(id, data)
	if err != nil {
		return Retry{Session: id}, fmt.Errorf("retry on subject %q: %w", subject, err)
	}
	return r, nil
}
