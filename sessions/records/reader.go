package records

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/tracing"
)

// ClockSkew is how far the instants of edges and the store may differ.
const ClockSkew = time.Minute

// Reader reads sessions and their facts from the leaders. Its methods are safe for concurrent use.
type Reader struct {
	*Opener
	*Tokens

	Conn         *natsconf.Conn
	recent       recent
	metrics      *metrics
	onUnreadable func(*facts.UnreadableError)
	Now          func() time.Time
}

// NewReader returns a reader. onUnreadable is called with each message that cannot be read, every time that
// it is read. It must not block, and may be nil, as may metrics.
func NewReader(conn *natsconf.Conn, key secretbox.Master, now func() time.Time, metrics prometheus.Registerer,
	onUnreadable func(*facts.UnreadableError)) *Reader {
	st := &Reader{
		Opener: &Opener{box: key.Box(sealUse), keys: newSessionKeys(conn, key.Box(pageUse), now)},
		Conn:   conn, metrics: newMetrics(metrics), onUnreadable: onUnreadable, Now: now,
	}
	st.Tokens = &Tokens{st, key.Hash(tokenUse).Bytes}
	return st
}

// Instant returns the current instant as the contract writes it: UTC, whole milliseconds.
func (st *Reader) Instant() time.Time { return toInstant(st.Now()) }

func statusOf(c sessions.Completion) sessions.Status {
	return sessions.Status{Session: c.Session, Outcome: c.Outcome, CompletedAt: c.CompletedAt}
}

// expiredStatus reads the completion once more: one may have been stored, in time, between the first read and
// the expiry.
func (st *Reader) expiredStatus(ctx context.Context, s sessions.Session) (_ sessions.Status, completed bool,
	err error) {
	c, err := st.completionOf(ctx, s.ID)
	if err == nil {
		return statusOf(c), true, nil
	}
	if at, unreadable := storedAt(err); unreadable {
		return endedUnreadable(s, at), false, nil
	}
	if !isMissing(err) {
		return sessions.Status{}, false, err
	}
	why := sessions.ExpiredReason
	if s.Lost && !s.Expired(st.Now()) {
		why = sessions.LostReason
	}
	return sessions.Status{Session: s, Outcome: sessions.Outcome{State: sessions.Expired,
		Reason: why}}, false, nil
}

// ReadOpen reads a session that may still be completed. Its errors are ErrExpired, ErrNotFound and
// natsconf's.
func (st *Reader) ReadOpen(ctx context.Context, id sessions.ID) (sessions.Session, error) {
	return readOpen(ctx, st, "", id)
}

// maxRecent bounds each of the two generations of sessions that a Reader remembers, about a kilobyte each.
const maxRecent = 4096

// recent remembers sessions whose records this process has read: the page, the press and the return all need
// the record, and it never changes.
type recent struct {
	mu         sync.Mutex
	young, old map[sessions.ID]sessions.Session
}

func (r *recent) add(s sessions.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || len(r.young) >= maxRecent {
		r.young, r.old = make(map[sessions.ID]sessions.Session), r.young
	}
	r.young[s.ID] = s
}

func (r *recent) get(id sessions.ID) (s sessions.Session, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok = r.young[id]; !ok {
		s, ok = r.old[id]
	}
	return s, ok
}

// mayBeErased reports whether the user of a session without an outcome may have been erased. That happens
// after the session's lifetime alone (package erasure), by the clock of whoever erases. A session with an
// outcome is erased at any time: that it has one is read before its record is (lookUp).
func mayBeErased(s sessions.Session, now time.Time) bool {
	return !now.Before(s.ExpiresAt.Add(-ClockSkew))
}

// readOpen is ReadOpen for a session of an account; "" stands for any account.
func readOpen(ctx context.Context, st *Reader, account string, id sessions.ID) (sessions.Session, error) {
	s, ok := st.recent.get(id)
	if ok && (account == "" || account == s.Account) && !mayBeErased(s, st.Now()) {
		return s, nil
	}
	if account == "" {
		account = "*"
	}
	m, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketSessions), RecordSubject(account, id))
	if errors.Is(err, natsconf.ErrNotFound) {
		return sessions.Session{}, sessions.ErrNotFound
	}
	if err != nil {
		return sessions.Session{}, fmt.Errorf("read session %s: %w", id, err)
	}
	// Its user was erased; or another store has brought it, and its outcome may not be read any more either.
	if natsconf.IsMarker(m.Header) || isOver(m.Header, st.Now()) {
		return sessions.Session{}, sessions.ErrNotFound
	}
	if s, err = st.OpenSession(ctx, id, m.Data); err != nil {
		return sessions.Session{}, err
	}
	s.Trace = tracing.Extract(m.Header)
	if s.Lost {
		return s, fmt.Errorf("session %s: %w: %w", id, sessions.ErrExpired, errNoPage)
	}
	if s.Expired(st.Now()) {
		return s, sessions.ErrExpired
	}
	st.recent.add(s)
	return s, nil
}

// completionOf reads the outcome of a session, whether its user was erased or not: for a session whose record
// is there, and so was not erased, and for callers that check that themselves. Its errors are
// natsconf.ErrNotFound, an *UnreadableError, ErrNewer and natsconf's.
func (st *Reader) completionOf(ctx context.Context, id sessions.ID) (sessions.Completion, error) {
	m, err := st.Conn.Last(ctx, topology.StreamCompletions, CompletionSubject(id))
	if err != nil {
		return sessions.Completion{}, fmt.Errorf("read completion of session %s: %w", id, err)
	}
	c, err := st.readCompletion(ctx, id, m)
	if err == nil && isOver(m.Header, st.Now()) {
		return sessions.Completion{}, fmt.Errorf("completion of session %s: %w", id, natsconf.ErrNotFound)
	}
	return withHeader(c, m.Header), err
}

// isMissing reports whether a completion was not read because there is none: that of an erased user is there.
func isMissing(err error) bool {
	return errors.Is(err, natsconf.ErrNotFound) && !errors.Is(err, ErrErased)
}

// readCompletion reads the message in the place of a session's completion. Its errors are an
// *UnreadableError, ErrNewer, ErrErased and natsconf.ErrUnavailable.
func (st *Reader) readCompletion(ctx context.Context, id sessions.ID,
	m *jetstream.RawStreamMsg) (sessions.Completion, error) {
	c, err := st.OpenCompletion(ctx, id, m.Data)
	if err != nil {
		return sessions.Completion{}, st.checkUnreadable(m, err)
	}
	return c, nil
}

// checkErased returns ErrErased for a session whose user was erased. Its other errors are natsconf's.
func checkErased(ctx context.Context, st *Reader, id sessions.ID) error {
	gone, err := st.IsErased(ctx, id)
	if err == nil && gone {
		err = fmt.Errorf("session %s: %w", id, ErrErased)
	}
	return err
}

// Completion reads the completion of a session. The error is ErrNotFound if there is none, and ErrUnreadable
// if the stored message is not one.
func (st *Reader) Completion(ctx context.Context, id sessions.ID) (sessions.Completion, error) {
	c, err := st.completionOf(ctx, id)
	if err == nil {
		err = checkErased(ctx, st, id)
	}
	if errors.Is(err, natsconf.ErrNotFound) {
		err = sessions.ErrNotFound
	}
	if err != nil {
		return sessions.Completion{}, err
	}
	return c, nil
}

// DecodeCompletion reads a completion as a consumer of StreamCompletions gets it. Its errors are
// ErrUnreadable, ErrNewer, ErrNotFound if the user was erased, and natsconf.ErrUnavailable.
func (st *Reader) DecodeCompletion(ctx context.Context, subject string, header nats.Header,
	data []byte) (sessions.Completion, error) {
	id, err := sessions.ParseID(subject[min(len(subject), len("completion.")):])
	if err != nil {
		return sessions.Completion{}, fmt.Errorf("completion on subject %q: %w: %w", subject,
			facts.ErrUnreadable, err)
	}
	c, err := st.OpenCompletion(ctx, id, data)
	return withHeader(c, header), err
}

// isOver reports whether a fact, or a record, may not be read any more: it came from another store, and its
// life has ended there. This store keeps a fact for as long as one of its own, since it fences, and a record
// until a second or two later.
func isOver(h nats.Header, now time.Time) bool {
	o, _ := natsconf.OriginOf(h)
	return o.Over(now)
}

// withHeader adds what the message's header holds.
func withHeader(c sessions.Completion, h nats.Header) sessions.Completion {
	c.Trace = tracing.Extract(h)
	if o, ok := natsconf.OriginOf(h); ok {
		c.KeptUntil = o.Until
	}
	return c
}

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
		return toInstant(e.At), true
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
