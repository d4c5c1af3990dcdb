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
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/tracing"
)

// The errors of a Store, beside natsconf.ErrUnavailable, ErrUncertain and ErrStoreFull.
var (
	// ErrNotFound: there never was such a session, or its results are no longer kept.
	ErrNotFound = errors.New("no such session")
	// ErrExpired: the session was not completed within its lifetime, and never will be.
	ErrExpired = errors.New("the session has expired")
	// ErrCompleted: the session's one completion is taken; the existing completion is returned beside this
	// error.
	ErrCompleted = errors.New("the session is completed already")
	// ErrNewer: a record or a fact was written by a newer build.
	ErrNewer = natsconf.ErrNewer
	// ErrUnreadable is in unreadable.go, with its meaning.

	// ErrRedeemed: this sign-in attempt was used before.
	ErrRedeemed = errors.New("the sign-in attempt was used before")
	// ErrIdentityBound: the identity stands for another user.
	ErrIdentityBound = errors.New("the identity stands for another user")
	// ErrClaimed: another owner holds the claim; the caller that gets this error never sends.
	ErrClaimed = errors.New("another owner holds the claim")
	// ErrDeliveryOpen: the delivery is not at an end, so that nothing can be sent again.
	ErrDeliveryOpen = errors.New("the delivery is not at an end yet")
	// ErrNoDelivery: the session has no outcome that is sent.
	ErrNoDelivery = errors.New("the session has no outcome that is sent")
	// ErrSettled: the attempt has a result already; the existing result is returned beside this error.
	ErrSettled = errors.New("the attempt has a result already")
)

// Config is what a Store needs.
type Config struct {
	Conn        *natsconf.Conn
	Pending     *natsconf.Writer // of the sessions bucket's stream
	Completions *natsconf.Writer // of StreamCompletions
	Retries     *natsconf.Writer // of StreamRetries; only dispatchers need it
	// of the identities bucket's stream; only edges whose networks hold identities need it
	Identities  *natsconf.Writer
	Idempotency *natsconf.Writer      // of the idempotency bucket's stream; only edges need it
	Meter       *Meter                // nil: nothing is counted
	Metrics     prometheus.Registerer // none when nil
	Steps       *Steps                // nil: the steps of users are on the timeline, and not counted
	// OnUnreadable is called with what cannot be read, each time that it is read; may be nil. It must not
	// block.
	OnUnreadable func(*UnreadableError)
	Key          secretbox.Key
	// Plain has new sessions stored as builds did before these were sealed under keys of their own, so that
	// such builds can read them.
	Plain bool
	Now   func() time.Time // time.Now when nil
}

// Store creates, reads and completes sessions. Its methods are safe for concurrent use.
type Store struct {
	conn           *natsconf.Conn
	pending        *natsconf.Writer
	completions    *natsconf.Writer
	retries        *natsconf.Writer
	identities     *natsconf.Writer
	idempotency    *natsconf.Writer
	box            *secretbox.Box // of callback URLs that have no key of their session's own
	keys           *sessionKeys
	plain          bool
	reservationBox *secretbox.Box
	requestHash    *secretbox.Hash // of requests
	meter          *Meter
	metrics        *metrics
	steps          *Steps
	identityHash   *secretbox.Hash // of what is held
	onUnreadable   func(*UnreadableError)
	now            func() time.Time
}

// NewStore makes a store.
func NewStore(c Config) *Store {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{
		conn: c.Conn, pending: c.Pending, completions: c.Completions, retries: c.Retries,
		idempotency: c.Idempotency, identities: c.Identities,
		box: c.Key.Box(sealUse), keys: newSessionKeys(c.Conn, c.Key.Box(pageUse), c.Now), plain: c.Plain,
		reservationBox: c.Key.Box(reservationUse), requestHash: c.Key.Hash(requestHashUse),
		identityHash: c.Key.Hash(identityHashUse), meter: c.Meter, steps: c.Steps,
		metrics: newMetrics(c.Metrics), onUnreadable: c.OnUnreadable, now: c.Now,
	}
}

// instant returns the current instant as the contract writes it: UTC, whole milliseconds.
func (st *Store) instant() time.Time { return st.now().UTC().Truncate(time.Millisecond) }

// Create starts a session that expires Lifetime from now. It returns once the record is durable. After
// ErrUncertain the session may exist, but nobody can hold its token; a repeat makes another one. The
// account's id must be one word of [a-z0-9_]. The span that ctx carries is kept with the record, so that the
// session's later steps belong to its trace.
func (st *Store) Create(ctx context.Context, r Request) (Session, Token, error) {
	token := newToken()
	s := newSession(r, token, st.instant())
	s.Trace = tracing.Parent(ctx)
	data, err := st.encodeNew(ctx, &s)
	if err != nil {
		return Session{}, "", fmt.Errorf("create session: %w", err)
	}
	if err := st.put(ctx, recordSubject(s.Account, s.ID), data, s.Trace); err != nil {
		return Session{}, "", fmt.Errorf("create session: %w", err)
	}
	st.countStarted(s)
	return s, token, nil
}

// encodeNew returns a new session its key, and its record.
func (st *Store) encodeNew(ctx context.Context, s *Session) (data []byte, err error) {
	with := sealer{box: st.box}
	if !st.plain {
		if s.key, with.key, err = st.keys.take(ctx); err != nil {
			return nil, err
		}
	}
	return encodeSession(*s, with)
}

// put stores a new session's record. It needs no condition, since nobody else can make the same id, and so a
// repeat after a lost answer stores the same record once more.
func (st *Store) put(ctx context.Context, subject string, data []byte, trace string) (err error) {
	crashpoint.Reach(crashpoint.BeforeCreate)
	defer crashpoint.Reach(crashpoint.AfterCreate)
	for range onceTries {
		m := &nats.Msg{Subject: subject, Data: data}
		tracing.Inject(m, trace)
		if _, err = st.pending.Publish(ctx, m); !errors.Is(err, natsconf.ErrUncertain) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func newSession(r Request, token Token, at time.Time) Session {
	return Session{
		ID: token.ID(), Account: r.Account, Key: r.Key, Test: r.Test, Policy: r.Policy,
		Platform: r.Platform, PlatformUserID: r.PlatformUserID, GuildID: r.GuildID,
		CallbackURL: r.CallbackURL,
		CreatedAt:   at, ExpiresAt: at.Add(Lifetime),
	}
}

// Redeem uses up a sign-in attempt of a session, named by up to 64 characters of [a-z0-9]. The second call
// for the same attempt, on whatever machine, gets ErrRedeemed.
func (st *Store) Redeem(ctx context.Context, id ID, attempt string) error {
	return st.redeem(ctx, attempt, []byte(id), Lifetime)
}

// redeemMargin is how much longer than its flow a login attempt is remembered, for machines whose clocks
// differ.
const redeemMargin = time.Minute

// RedeemLogin is Redeem for an attempt to log in to the dashboard, which belongs to no session. It is
// remembered for as long as a return may come: until is when its flow ends.
func (st *Store) RedeemLogin(ctx context.Context, attempt string, until time.Time) error {
	life := max(until.Sub(st.instant()), 0).Truncate(time.Second) + redeemMargin
	return st.redeem(ctx, attempt, []byte("login"), life)
}

func (st *Store) redeem(ctx context.Context, attempt string, by []byte, life time.Duration) error {
	w := write{
		writer: st.pending, stream: natsconf.BucketStream(natsconf.BucketSessions),
		subject: redeemedSubject(attempt), data: by, life: life, before: crashpoint.BeforeRedeem,
		after: crashpoint.AfterRedeem,
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

// Complete is CompleteSession for a session that was not read yet. Beside its errors there is ErrNotFound.
func (st *Store) Complete(ctx context.Context, id ID, o Outcome) (Completion, error) {
	s, err := st.open(ctx, id)
	if err != nil {
		return st.orCompletion(ctx, id, err)
	}
	return st.CompleteSession(ctx, s, o)
}

// CompleteSession ends a session, as it was read from this store, by the one write-once publish that is the
// truth about its outcome. Whoever comes second gets the existing completion and ErrCompleted. Other errors
// are ErrExpired, also where what exists cannot be read, and those of natsconf; after natsconf.ErrUncertain
// the session may be completed, and a repeat is harmless.
//
// It does not read the record again: that never changes, and a session that can still be completed cannot be
// erased.
func (st *Store) CompleteSession(ctx context.Context, s Session, o Outcome) (Completion, error) {
	id := s.ID
	if !st.now().Before(s.ExpiresAt) {
		return st.orCompletion(ctx, id, ErrExpired)
	}
	if parent := tracing.Parent(ctx); parent != "" {
		s.Trace = parent
	}
	c := Completion{Session: s, Outcome: o, CompletedAt: st.instant()}
	with, err := st.sealer(ctx, s.key)
	if err != nil {
		return Completion{}, fmt.Errorf("complete session %s: %w", id, err)
	}
	data, err := encodeCompletion(c, with)
	if err != nil {
		return Completion{}, fmt.Errorf("encode completion: %w", err)
	}
	w := write{writer: st.completions, stream: natsconf.StreamCompletions, subject: completionSubject(id),
		data: data, trace: s.Trace,
		before: crashpoint.BeforeComplete, after: crashpoint.AfterComplete}
	existing, err := st.once(ctx, w)
	switch {
	case err == nil:
		st.countCompleted(c)
		st.metrics.completed(o)
		return c, nil
	case errors.Is(err, errTaken):
		c, err := st.readCompletion(ctx, id, existing)
		return c, completedError(err)
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
	s, err := st.decodeSession(ctx, id, m.Data)
	if err != nil {
		return Session{}, err
	}
	s.Trace = tracing.Extract(m.Header)
	if s.Lost {
		return s, fmt.Errorf("session %s: %w: %w", id, ErrExpired, errNoPage)
	}
	if !st.now().Before(s.ExpiresAt) {
		return s, ErrExpired
	}
	return s, nil
}

// completedError turns the reading of the existing completion into why another cannot be stored.
func completedError(err error) error {
	switch {
	case err == nil:
		return ErrCompleted
	case errors.Is(err, ErrUnreadable):
		return fmt.Errorf("%w: %w", ErrExpired, err)
	default:
		return err
	}
}

// orCompletion turns "expired" and "not found" into "completed" where a completion exists.
func (st *Store) orCompletion(ctx context.Context, id ID, cause error) (Completion, error) {
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

// completion reads the outcome of a session, unless its user was erased. Its errors are
// natsconf.ErrNotFound, an *UnreadableError, ErrNewer and natsconf's.
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
	c, err := st.readCompletion(ctx, id, m)
	return c.withHeader(m.Header), err
}

// readCompletion reads what is stored in the place of a session's completion. Its errors are an
// *UnreadableError, ErrNewer, errErased and natsconf.ErrUnavailable.
func (st *Store) readCompletion(ctx context.Context, id ID, m *jetstream.RawStreamMsg) (Completion, error) {
	c, err := st.decodeCompletion(ctx, id, m.Data)
	if err != nil {
		return Completion{}, st.checkUnreadable(m, err)
	}
	return c, nil
}

// Completion reads the completion of a session. The error is ErrNotFound where there is none, and
// ErrUnreadable where what is stored is none.
func (st *Store) Completion(ctx context.Context, id ID) (Completion, error) {
	c, err := st.completion(ctx, id)
	if errors.Is(err, natsconf.ErrNotFound) {
		return Completion{}, ErrNotFound
	}
	return c, err
}

// DecodeCompletion reads a completion as a consumer of StreamCompletions gets it. Its errors are
// ErrUnreadable, ErrNewer, ErrNotFound where the user was erased, and natsconf.ErrUnavailable.
func (st *Store) DecodeCompletion(ctx context.Context, subject string, header nats.Header,
	data []byte) (Completion, error) {
	id, err := ParseID(subject[min(len(subject), len("completion.")):])
	if err != nil {
		return Completion{}, fmt.Errorf("completion on subject %q: %w: %w", subject, ErrUnreadable, err)
	}
	c, err := st.decodeCompletion(ctx, id, data)
	return c.withHeader(header), err
}

// withHeader adds what the message's header holds.
func (c Completion) withHeader(h nats.Header) Completion {
	c.Trace = tracing.Extract(h)
	if o, ok := natsconf.OriginOf(h); ok {
		c.KeptUntil = o.Until
	}
	return c
}
