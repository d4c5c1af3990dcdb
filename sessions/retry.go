package sessions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
)

// Retry is the hint "take this delivery up again at At". The facts decide what is to be done then: a retry that comes twice, or too
// late, changes nothing.
type Retry struct {
	Session ID        `json:"-"`
	Asked   int       `json:"asked,omitempty"` // the attempt that somebody asked for; 0: the delivery of the completion itself
	Tries   int       `json:"tries"`           // how often it was taken up before
	Since   time.Time `json:"since"`           // since when it is to be sent: the completion, or the wish to send it again
	At      time.Time `json:"at"`
}

// Schedule has a delivery given to a dispatcher at r.At, to the second, whatever happens to the processes until then. Of two retries
// of one session the later call stands. Its errors are those of natsconf.Writer.Publish; a repeat is harmless.
func (st *Store) Schedule(ctx context.Context, r Retry) error {
	data, err := encodeRetry(r)
	if err != nil {
		return fmt.Errorf("encode retry: %w", err)
	}
	crashpoint.Reach(crashpoint.BeforeSchedule)
	defer crashpoint.Reach(crashpoint.AfterSchedule)
	if _, err := st.retries.Publish(ctx, natsconf.ScheduleMsg(scheduleSubject(r.Session), retrySubject(r.Session), r.At, data)); err != nil {
		return fmt.Errorf("schedule a retry of session %s: %w", r.Session, err)
	}
	return nil
}

// DecodeRetry reads a retry as a consumer of StreamRetries gets it; subject is the message's. Its errors are ErrNewer and ErrUnreadable. With
// the latter comes what the subject says, where that is a session's: which delivery to look at.
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
