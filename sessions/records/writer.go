package records

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/once"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
	"verifyd/sessions/stats"
	"verifyd/sessions/tracing"
)

// Writer writes sessions and their facts, each fact once. Its methods are safe for concurrent use.
type Writer struct {
	*Reader

	Pending     *natsconf.Writer // of the sessions bucket's stream
	Completions *natsconf.Writer // of StreamCompletions
	Retries     *natsconf.Writer // of StreamRetries; only dispatchers need it
	Meter       *stats.Meter     // nil: nothing is counted
	// plain stores new sessions as builds did before these were sealed under keys of their own.
	Plain bool
}

// Create starts a session that expires Lifetime from now. It returns once the record is durable. After
// ErrUncertain the session may exist, but nobody can hold its token; a repeat creates another one. The
// account's id must be one word of [a-z0-9_]. The span that ctx carries is kept with the record, so that the
// session's later steps belong to its trace.
func (st *Writer) Create(ctx context.Context, r sessions.Request) (sessions.Session, sessions.Token, error) {
	token := st.NewToken(r.Account)
	s := sessions.NewSession(r, token, st.Instant())
	s.Trace = tracing.Parent(ctx)
	data, err := st.EncodeNew(ctx, &s)
	if err != nil {
		return sessions.Session{}, "", fmt.Errorf("create session: %w", err)
	}
	if err := st.put(ctx, RecordSubject(s.Account, s.ID), data, s.Trace); err != nil {
		return sessions.Session{}, "", fmt.Errorf("create session: %w", err)
	}
	st.Meter.CountStarted(s)
	return s, token, nil
}

// EncodeNew assigns a key to a new session and returns its record.
func (st *Writer) EncodeNew(ctx context.Context, s *sessions.Session) (data []byte, err error) {
	with := Sealer{box: st.box}
	// Builds that know no sealed sessions read neither of these in any case.
	more := s.Reference + s.Locale + s.DisplayName + s.GroupName
	if !st.Plain || s.Level != proof.Link || more != "" {
		if s.SealedUnder, with.key, err = st.keys.take(ctx); err != nil {
			return nil, err
		}
	}
	return encodeSession(*s, with)
}

// put stores a new session's record. It needs no condition, since no other caller can make the same id. So a
// repeat after a lost answer stores the same record once more.
func (st *Writer) put(ctx context.Context, subject string, data []byte, trace string) (err error) {
	crashpoint.Reach(crashpoint.BeforeCreate)
	defer crashpoint.Reach(crashpoint.AfterCreate)
	for range wait.Tries(ctx, once.Tries) {
		m := &nats.Msg{Subject: subject, Data: data}
		tracing.Inject(m, trace)
		if _, err = st.Pending.Publish(ctx, m); !errors.Is(err, natsconf.ErrUncertain) {
			return err
		}
	}
	return err
}

// Redeem uses up a sign-in attempt of a session, named by up to 64 characters of [a-z0-9]. The second call
// for the same attempt, on whatever machine, gets ErrRedeemed.
func (st *Writer) Redeem(ctx context.Context, id sessions.ID, attempt string) error {
	return st.redeem(ctx, attempt, []byte(id), sessions.Lifetime)
}

// redeemMargin is how much longer than what could use it something spent is remembered, for machines whose
// clocks differ.
const redeemMargin = time.Minute

// RedeemUntil is Redeem for what belongs to no session: an attempt to log in to the dashboard, and a code
// that came to a browser that had not asked for it. It is remembered for as long as it could be used: until
// is when that ends.
func (st *Writer) RedeemUntil(ctx context.Context, attempt string, until time.Time) error {
	life := max(until.Sub(st.Instant()), 0).Truncate(time.Second) + redeemMargin
	return st.redeem(ctx, attempt, []byte("login"), life)
}

// Redeemed reports, on the leader's word, whether an attempt is used up. Its errors are natsconf's.
func (st *Writer) Redeemed(ctx context.Context, attempt string) (bool, error) {
	_, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketSessions), redeemedSubject(attempt))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, natsconf.ErrNotFound):
		return false, nil
	default:
		return false, fmt.Errorf("read whether a sign-in attempt is used up: %w", err)
	}
}

func (st *Writer) redeem(ctx context.Context, attempt string, by []byte, life time.Duration) error {
	w := Write{
		Writer: st.Pending, Subject: redeemedSubject(attempt), Data: by, life: life,
		Before: crashpoint.BeforeRedeem, After: crashpoint.AfterRedeem,
	}
	_, err := st.Once(ctx, w)
	if errors.Is(err, once.ErrTaken) {
		return sessions.ErrRedeemed
	}
	if err != nil {
		return fmt.Errorf("redeem sign-in attempt: %w", err)
	}
	return nil
}

// ChangeProgress changes what a session's user has proven, and returns the new progress; after an error of
// edit, the old one. Its other errors are ErrNewer, ErrUnreadable and natsconf's.
func (st *Writer) ChangeProgress(ctx context.Context, id sessions.ID,
	edit func(proof.Progress) (proof.Progress, error)) (p proof.Progress, err error) {
	life := nats.Header{jetstream.MsgTTLHeader: {sessions.Lifetime.String()}}
	err = st.Pending.Update(ctx, progressSubject(id), func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		before, err := decodeProgress(m)
		if err != nil {
			return nil, err
		}
		if p, err = edit(before); err != nil || reflect.DeepEqual(p, before) {
			return nil, err
		}
		data, err := EncodeRecord(progressRecord{RecordVersions.Newest, p})
		return &nats.Msg{Data: data, Header: life}, err
	})
	if err != nil {
		err = fmt.Errorf("change the progress of session %s: %w", id, err)
	}
	return p, err
}

// Complete ends a session, as it was read from this store, by the one write-once publish that is the truth
// about its outcome. A caller that comes second gets the existing completion and ErrCompleted. Other errors
// are ErrExpired, also if the existing completion cannot be read or its user was erased, and natsconf's;
// after natsconf.ErrUncertain the session may be completed, and a repeat is harmless.
//
// A verified outcome below the level that the session asks for is refused, whatever the caller.
//
// It does not read the record again: the record never changes, and a session that can still be completed
// cannot be erased.
func (st *Writer) Complete(ctx context.Context, s sessions.Session, o sessions.Outcome) (sessions.Completion,
	error) {
	id := s.ID
	if o = o.WithLevel(); !o.Proves(s.Level) {
		return sessions.Completion{}, fmt.Errorf("session %s asks for the level %s, and %s was reached", id,
			s.Level, o.Reached)
	}
	at := st.Instant()
	if s.Expired(at) {
		c, err := st.completionOf(ctx, id)
		return st.ended(ctx, c, err)
	}
	if parent := tracing.Parent(ctx); parent != "" {
		s.Trace = parent
	}
	c := sessions.Completion{Session: s, Outcome: o, CompletedAt: at}
	with, err := st.SealerOf(ctx, s.SealedUnder)
	if err != nil {
		return sessions.Completion{}, fmt.Errorf("complete session %s: %w", id, err)
	}
	data, err := EncodeCompletion(c, with)
	if err != nil {
		return sessions.Completion{}, fmt.Errorf("encode completion: %w", err)
	}
	w := Write{Writer: st.Completions, Subject: CompletionSubject(id), Data: data, Trace: s.Trace,
		Before: crashpoint.BeforeComplete, After: crashpoint.AfterComplete}
	existing, err := st.Once(ctx, w)
	switch {
	case err == nil:
		st.Meter.CountCompleted(c)
		st.metrics.completed(o)
		return c, nil
	case errors.Is(err, once.ErrTaken):
		c, err := st.readCompletion(ctx, id, existing)
		return st.ended(ctx, c, err)
	default:
		return sessions.Completion{}, fmt.Errorf("complete session %s: %w", id, err)
	}
}

// ended returns the completion of a session that has one, and why another cannot be stored, from the reading
// of the existing one: ErrExpired if there is none, or its user was erased.
func (st *Writer) ended(ctx context.Context, c sessions.Completion, err error) (sessions.Completion, error) {
	if err == nil {
		err = checkErased(ctx, st.Reader, c.ID)
	}
	switch {
	case err == nil:
		return c, sessions.ErrCompleted
	case errors.Is(err, natsconf.ErrNotFound):
		return sessions.Completion{}, sessions.ErrExpired
	case errors.Is(err, facts.ErrUnreadable):
		err = fmt.Errorf("%w: %w", sessions.ErrExpired, err)
	}
	return sessions.Completion{}, err
}

// Write is one write-once message.
type Write struct {
	Writer  *natsconf.Writer
	Subject string
	Data    []byte
	// after which the message may be removed, in whole seconds; 0: with the stream's age
	life          time.Duration
	Trace         string // a traceparent to keep with it; empty: none
	Before, After string // crash points; After is reached if the write is stored
}

// Once stores a message on a subject that has none, as once.Store does.
func (st *Writer) Once(ctx context.Context, w Write) (existing *jetstream.RawStreamMsg, err error) {
	m := &nats.Msg{Subject: w.Subject, Data: w.Data, Header: nats.Header{}}
	tracing.Inject(m, w.Trace)
	if w.life > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, w.life.String())
	}
	crashpoint.Reach(w.Before)
	existing, err = once.Store(ctx, st.Conn, w.Writer.Stream(), m, once.ByWriter(w.Writer))
	if err == nil {
		crashpoint.Reach(w.After)
	}
	return existing, err
}

// noNetwork is the label of a completion in which no network took part, in measurements.
const noNetwork = "none"

// metrics are this package's measurements. Labels are words of the domain and the ids of configured
// networks.
type metrics struct {
	completions *prometheus.CounterVec // by outcome and network
	unreadable  *prometheus.CounterVec // by kind of fact or hint
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		completions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_completions_total",
			Help: "Sessions that this process has completed, by outcome (verified, or the reason why " +
				"not) and network; none where no network took part.",
		}, []string{"outcome", "network"}),
		unreadable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_unreadable_facts_total",
			Help: "How often this process met something in the place of a session's fact, or of a " +
				"hint, that no verifyd has written, by what belongs there.",
		}, []string{"kind"}),
	}
	if r != nil {
		r.MustRegister(m.completions, m.unreadable)
	}
	return m
}

func (m *metrics) completed(o sessions.Outcome) {
	outcome, network := string(o.State), o.Network
	if o.Reason != sessions.NoReason {
		outcome = string(o.Reason)
	}
	if network == "" {
		network = noNetwork
	}
	m.completions.WithLabelValues(outcome, network).Inc()
}
