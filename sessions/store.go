package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/seal"
	"verifyd/sessions/tracing"
)

// The errors of a Store, beside natsconf.ErrUnavailable, ErrUncertain and ErrStoreFull.
var (
	// ErrNotFound: there never was such a session, or its results are no longer kept.
	ErrNotFound = errors.New("no such session")
	// ErrExpired: the session was not completed within its lifetime, and never will be.
	ErrExpired = errors.New("the session has expired")
	// ErrCompleted: the session's one completion is taken; the completion that took it is returned beside this error.
	ErrCompleted = errors.New("the session is completed already")
	// ErrNewer: a record or a fact was written by a newer build.
	ErrNewer = natsconf.ErrNewer
	// ErrUnreadable stands in unreadable.go, with what it means.

	// ErrRedeemed: this sign-in attempt was used before.
	ErrRedeemed = errors.New("the sign-in attempt was used before")
	// ErrHeld: the identity stands for another user.
	ErrHeld = errors.New("the identity stands for another user")
	// ErrClaimed: another owner holds the claim; who gets this error never sends.
	ErrClaimed = errors.New("another owner holds the claim")
	// ErrDeliveryOpen: the delivery is not at an end, so that nothing can be sent again.
	ErrDeliveryOpen = errors.New("the delivery is not at an end yet")
	// ErrNoDelivery: the session has no outcome that is sent.
	ErrNoDelivery = errors.New("the session has no outcome that is sent")
	// ErrSettled: the attempt has a result already; the result that stands is returned beside this error.
	ErrSettled = errors.New("the attempt has a result already")
)

// Config is what a Store needs.
type Config struct {
	Conn        *natsconf.Conn
	Pending     *natsconf.Writer      // of the sessions bucket's stream
	Completions *natsconf.Writer      // of StreamCompletions
	Retries     *natsconf.Writer      // of StreamRetries; only dispatchers need it
	Identities  *natsconf.Writer      // of the identities bucket's stream; only edges whose networks hold identities need it
	Keyed       *natsconf.Writer      // of the idempotency bucket's stream; only edges need it
	Meter       *Meter                // nil: nothing is counted
	Metrics     prometheus.Registerer // none when nil
	Steps       *Steps                // nil: the steps of users are on the timeline, and not counted
	// Unreadable is told of what cannot be read, each time that it is met; nobody when nil. It must not wait.
	Unreadable func(*UnreadableError)
	Key        seal.Key
	Now        func() time.Time // time.Now when nil
}

// Store creates, reads and completes sessions. Its methods are safe for concurrent use.
type Store struct {
	conn        *natsconf.Conn
	pending     *natsconf.Writer
	completions *natsconf.Writer
	retries     *natsconf.Writer
	identities  *natsconf.Writer
	keyed       *natsconf.Writer
	box         *seal.Box
	turnBox     *seal.Box
	meter       *Meter
	metrics     *metrics
	steps       *Steps
	hash        *seal.Hash // of what is held
	met         func(*UnreadableError)
	now         func() time.Time
}

// NewStore makes a store.
func NewStore(c Config) *Store {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{
		conn: c.Conn, pending: c.Pending, completions: c.Completions, retries: c.Retries, keyed: c.Keyed, identities: c.Identities,
		box: c.Key.Box(sealUse), turnBox: c.Key.Box(turnUse), hash: c.Key.Hash(hashUse), meter: c.Meter, steps: c.Steps, metrics: newMetrics(c.Metrics), met: c.Unreadable, now: c.Now,
	}
}

// instant gives the current instant as the contract writes it: UTC, whole milliseconds.
func (st *Store) instant() time.Time { return st.now().UTC().Truncate(time.Millisecond) }

// Create starts a session that expires Lifetime from now. It returns once the record is durable. After ErrUncertain the session
// may exist, but nobody can hold its token; a repeat makes another one. The account's id must be one word of [a-z0-9_]. The span that
// ctx carries is kept with the record, so that the session's later steps belong to its trace.
func (st *Store) Create(ctx context.Context, r Request) (Session, Token, error) {
	token := newToken()
	s := newSession(r, token, st.instant())
	s.Trace = tracing.Parent(ctx)
	data, err := encodeSession(s, st.box)
	if err != nil {
		return Session{}, "", fmt.Errorf("encode session: %w", err)
	}
	if err := st.put(ctx, recordSubject(s.Account, s.ID), data, s.Trace); err != nil {
		return Session{}, "", fmt.Errorf("create session: %w", err)
	}
	st.countStarted(s)
	return s, token, nil
}

// put stores a new session's record. It needs no condition, since nobody else can make the same id, and so a repeat after a lost
// answer stores the same record once more.
func (st *Store) put(ctx context.Context, subject string, data []byte, trace string) (err error) {
	crashpoint.Reach(crashpoint.BeforeCreate)
	defer crashpoint.Reach(crashpoint.AfterCreate)
	for range onceTries {
		m := &nats.Msg{Subject: subject, Data: data}
		tracing.Keep(m, trace)
		if _, err = st.pending.Publish(ctx, m); !errors.Is(err, natsconf.ErrUncertain) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func newSession(r Request, token Token, at time.Time) Session {
	return Session{
		ID: token.ID(), Account: r.Account, Key: r.Key, Test: r.Test, Policy: r.Policy,
		Platform: r.Platform, PlatformUserID: r.PlatformUserID, GuildID: r.GuildID, CallbackURL: r.CallbackURL,
		CreatedAt: at, ExpiresAt: at.Add(Lifetime),
	}
}

// Redeem uses up a sign-in attempt of a session, named by up to 64 characters of [a-z0-9]. The second call for the same
// attempt, on whatever machine, gets ErrRedeemed.
func (st *Store) Redeem(ctx context.Context, id ID, attempt string) error {
	w := write{
		writer: st.pending, stream: natsconf.BucketStream(natsconf.BucketSessions),
		subject: redeemedSubject(attempt), data: []byte(id), life: Lifetime, before: crashpoint.BeforeRedeem, after: crashpoint.AfterRedeem,
	}
	_, err := st.once(ctx, w)
	if errors.Is(err, errTaken) {
		return ErrRedeemed
	}
	if err != nil {
		return fmt.Errorf("redeem sign-in attempt: %w", err)
	}
	return nil
}

// Complete ends a session by the one write-once publish that is the truth about its outcome. Whoever comes second gets the
// completion that stands and ErrCompleted. Other errors are ErrExpired, also where what stands cannot be read, ErrNotFound and those of
// natsconf; after natsconf.ErrUncertain the session may be completed, and a repeat is harmless.
func (st *Store) Complete(ctx context.Context, id ID, o Outcome) (Completion, error) {
	s, err := st.open(ctx, id)
	if err != nil {
		return st.orStanding(ctx, id, err)
	}
	if parent := tracing.Parent(ctx); parent != "" {
		s.Trace = parent
	}
	c := Completion{Session: s, Outcome: o, CompletedAt: st.instant()}
	data, err := encodeCompletion(c, st.box)
	if err != nil {
		return Completion{}, fmt.Errorf("encode completion: %w", err)
	}
	w := write{writer: st.completions, stream: natsconf.StreamCompletions, subject: completionSubject(id), data: data, trace: s.Trace,
		before: crashpoint.BeforeComplete, after: crashpoint.AfterComplete}
	standing, err := st.once(ctx, w)
	switch {
	case err == nil:
		st.countCompleted(c)
		st.metrics.completed(o)
		return c, nil
	case errors.Is(err, errTaken):
		c, err := st.readCompletion(id, standing)
		return c, orCompleted(err)
	default:
		return Completion{}, fmt.Errorf("complete session %s: %w", id, err)
	}
}

// open reads a session that may still be completed. Its errors are ErrExpired, ErrNotFound and natsconf's.
func (st *Store) open(ctx context.Context, id ID) (Session, error) {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketSessions), anyRecordSubject(id))
	if errors.Is(err, natsconf.ErrNotFound) {
		return Session{}, ErrNotFound
	}
	if err != nil {
		return Session{}, fmt.Errorf("read session %s: %w", id, err)
	}
	if natsconf.IsMarker(m.Header) {
		return Session{}, ErrNotFound // its user was erased
	}
	s, err := decodeSession(id, m.Data, st.box)
	if err != nil {
		return Session{}, err
	}
	s.Trace = tracing.Kept(m.Header)
	if !st.now().Before(s.ExpiresAt) {
		return s, ErrExpired
	}
	return s, nil
}

// orCompleted turns the reading of a completion that stands into why another cannot be stored.
func orCompleted(err error) error {
	switch {
	case err == nil:
		return ErrCompleted
	case errors.Is(err, ErrUnreadable):
		return fmt.Errorf("%w: %w", ErrExpired, err)
	default:
		return err
	}
}

// orStanding turns "expired" and "not found" into "completed" where a completion stands.
func (st *Store) orStanding(ctx context.Context, id ID, cause error) (Completion, error) {
	if !errors.Is(cause, ErrExpired) && !errors.Is(cause, ErrNotFound) {
		return Completion{}, cause
	}
	c, err := st.completion(ctx, id)
	switch {
	case err == nil:
		return c, ErrCompleted
	case errors.Is(err, natsconf.ErrNotFound), errors.Is(err, ErrUnreadable):
		return Completion{}, cause
	default:
		return Completion{}, err
	}
}

// completion reads the outcome of a session, unless its user was erased. Its errors are natsconf.ErrNotFound, an *UnreadableError,
// ErrNewer and natsconf's.
func (st *Store) completion(ctx context.Context, id ID) (Completion, error) {
	c, err := st.completionOf(ctx, id)
	if err != nil {
		return Completion{}, err
	}
	gone, err := st.erased(ctx, id)
	if err != nil {
		return Completion{}, err
	}
	if gone {
		return Completion{}, fmt.Errorf("read completion of session %s: %w", id, natsconf.ErrNotFound)
	}
	return c, nil
}

// completionOf is completion for a session whose record is there, and so was not erased.
func (st *Store) completionOf(ctx context.Context, id ID) (Completion, error) {
	m, err := st.conn.Last(ctx, natsconf.StreamCompletions, completionSubject(id))
	if err != nil {
		return Completion{}, fmt.Errorf("read completion of session %s: %w", id, err)
	}
	c, err := st.readCompletion(id, m)
	c.Trace = tracing.Kept(m.Header)
	return c, err
}

// readCompletion reads what stands in the place of a session's completion. Its errors are an *UnreadableError and ErrNewer.
func (st *Store) readCompletion(id ID, m *jetstream.RawStreamMsg) (Completion, error) {
	c, err := decodeCompletion(id, m.Data, st.box)
	if err != nil {
		return Completion{}, st.checkUnreadable(m, err)
	}
	return c, nil
}

// Completion reads the completion of a session. The error is ErrNotFound where there is none, and ErrUnreadable where it is none.
func (st *Store) Completion(ctx context.Context, id ID) (Completion, error) {
	c, err := st.completion(ctx, id)
	if errors.Is(err, natsconf.ErrNotFound) {
		return Completion{}, ErrNotFound
	}
	return c, err
}

// DecodeCompletion reads a completion as a consumer of StreamCompletions gets it. Its errors are ErrUnreadable and ErrNewer.
func (st *Store) DecodeCompletion(subject string, header nats.Header, data []byte) (Completion, error) {
	id, err := ParseID(subject[min(len(subject), len("completion.")):])
	if err != nil {
		return Completion{}, fmt.Errorf("completion on subject %q: %w: %w", subject, ErrUnreadable, err)
	}
	c, err := decodeCompletion(id, data, st.box)
	c.Trace = tracing.Kept(header)
	return c, err
}
