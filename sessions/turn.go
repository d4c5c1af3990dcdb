package sessions

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/sessions/tracing"
)

const (
	// turnHold is how long a turn keeps others away. A start takes milliseconds; whoever takes over from a live owner that is slower
	// makes the same session, so that a short hold costs nothing but a second try.
	turnHold = 5 * time.Second
	// turnUse is the use of the box that the tokens of turns are sealed in; their owner is the subject.
	turnUse = "idempotent-token"
)

// The errors of TakeTurn, beside those of natsconf.
var (
	// ErrKeyReused: the idempotency key stands for another request.
	ErrKeyReused = errors.New("the idempotency key was used for another request")
	// ErrInProgress: the first request with this idempotency key is being answered.
	ErrInProgress = errors.New("the first request with this idempotency key is still being answered")
	// ErrNotStarted: no session stands for the idempotency key, and none was to be started.
	ErrNotStarted = errors.New("no session stands for this idempotency key")
)

// Keyed names a start under an idempotency key. The same key means another thing in another account, and for test and live keys.
type Keyed struct {
	Account     string
	Test        bool
	Key         string            // as the integrator chose it
	Fingerprint [sha256.Size]byte // of the request; a repeat has the same
}

// Turn is what an idempotency key leads to: a session that stands, or the right to make it. The token is decided before the session
// is made, so that whoever makes it, and however often that is tried, one key leads to one session.
type Turn struct {
	Token   Token
	Session *Session // nil: to be made, by CreateIn

	subject, nonce string
	over           bool // taken over from an owner who may only be slow
}

// turnRecord is a turn as it is stored.
type turnRecord struct {
	Version     int       `json:"v"`
	Fingerprint []byte    `json:"fingerprint,omitempty"`
	Token       []byte    `json:"token,omitempty"` // sealed: who holds it may sign in
	At          time.Time `json:"at"`
	Until       time.Time `json:"until,omitzero"` // when another may take over, unless the session is there
	// Released says that no session will come of it: the key is free again.
	Released bool `json:"released,omitempty"`
}

// TakeTurn gives the session that an idempotency key stands for, or takes the turn to make it, by a write-once entry; unless start is
// set it only looks. Its errors are ErrKeyReused, ErrInProgress, ErrNotStarted, ErrNewer and natsconf's.
//
// A turn whose owner has died is taken over after 5 s, with the token that it held: where the owner had made the session, that is
// the one. So the hold and machines' clocks decide only who works, never how many sessions there are.
func (st *Store) TakeTurn(ctx context.Context, k Keyed, start bool) (Turn, error) {
	subject, nonce := turnSubject(k), rand.Text()
	if !start {
		return st.standingTurn(ctx, subject, k)
	}
	token, last, over := newToken(), uint64(0), false
	var err error
	for range onceTries {
		err = st.putTurn(ctx, subject, nonce, last, st.newTurn(subject, k, token))
		if err == nil {
			return Turn{Token: token, subject: subject, nonce: nonce, over: over}, nil
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			return Turn{}, fmt.Errorf("take the turn of an idempotency key: %w", err)
		}
		m, rerr := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketIdempotency), subject)
		switch {
		case errors.Is(rerr, natsconf.ErrNotFound): // in flight, lost, or gone with its age
			last = 0
			select {
			case <-ctx.Done():
				return Turn{}, fmt.Errorf("%w: %w", natsconf.ErrUncertain, ctx.Err())
			case <-time.After(oncePause):
			}
			continue
		case rerr != nil:
			return Turn{}, fmt.Errorf("read the turn of an idempotency key: %w", rerr)
		}
		t, free, jerr := st.judgeTurn(ctx, subject, nonce, m, k)
		if !free {
			t.over = over
			return t, jerr
		}
		last = m.Sequence
		token, over = t.Token, t.Token != ""
		if !over {
			token = newToken()
		}
	}
	return Turn{}, fmt.Errorf("take the turn of an idempotency key: %w", err)
}

// standingTurn looks for the session that an idempotency key stands for.
func (st *Store) standingTurn(ctx context.Context, subject string, k Keyed) (Turn, error) {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketIdempotency), subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return Turn{}, ErrNotStarted
	}
	if err != nil {
		return Turn{}, fmt.Errorf("read the turn of an idempotency key: %w", err)
	}
	t, free, err := st.judgeTurn(ctx, subject, "", m, k)
	if free {
		return Turn{}, ErrNotStarted
	}
	return t, err
}

// judgeTurn says what a stored turn means for a request. free: it may be taken over, with the turn's token where it has one.
func (st *Store) judgeTurn(ctx context.Context, subject, nonce string, m *jetstream.RawStreamMsg, k Keyed) (t Turn, free bool, err error) {
	var r turnRecord
	if err := decode(m.Data, &r, &r.Version); err != nil {
		return Turn{}, false, fmt.Errorf("the turn of an idempotency key: %w", err)
	}
	now := st.instant()
	if r.Released || !now.Before(r.At.Add(natsconf.IdempotencyTTL)) {
		return Turn{}, true, nil
	}
	plain, err := st.turnBox.Open(r.Token, subject)
	if err != nil {
		return Turn{}, false, fmt.Errorf("token of an idempotency key: %w", err)
	}
	t = Turn{Token: Token(plain), subject: subject, nonce: nonce}
	switch {
	case m.Header.Get(nonceHeader) == nonce && nonce != "": // one's own, whose answer was lost
		return t, false, nil
	case string(r.Fingerprint) != string(k.Fingerprint[:]):
		return Turn{}, false, ErrKeyReused
	}
	s, err := st.open(ctx, t.Token.ID())
	switch {
	case err == nil, errors.Is(err, ErrExpired):
		t.Session = &s
		return t, false, nil
	case !errors.Is(err, ErrNotFound):
		return Turn{}, false, err
	case now.Before(r.Until):
		return Turn{}, false, ErrInProgress
	default:
		return t, true, nil
	}
}

func (st *Store) newTurn(subject string, k Keyed, token Token) turnRecord {
	now := st.instant()
	return turnRecord{
		Version: recordVersion, Fingerprint: k.Fingerprint[:], Token: st.turnBox.Seal([]byte(token.Reveal()), subject),
		At: now, Until: now.Add(turnHold),
	}
}

// putTurn stores a turn behind the message of a sequence; 0: where there is none. Its errors are those of natsconf.
func (st *Store) putTurn(ctx context.Context, subject, nonce string, last uint64, r turnRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode turn: %w", err)
	}
	crashpoint.Reach(crashpoint.BeforeTurn)
	_, err = st.keyed.Publish(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		nonceHeader:                         {nonce},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last, 10)},
	}})
	crashpoint.Reach(crashpoint.AfterTurn)
	return err
}

// CreateIn makes the session of a turn. It returns once the record is durable; made is false where another owner of the turn was
// faster, whose session it then is. Its errors are those of natsconf; after ErrUncertain the session may exist, and whoever takes
// the turn next finds out.
func (st *Store) CreateIn(ctx context.Context, t Turn, r Request) (s Session, made bool, err error) {
	s = newSession(r, t.Token, st.instant())
	s.Trace = tracing.Parent(ctx)
	data, err := encodeSession(s, st.box)
	if err != nil {
		return Session{}, false, fmt.Errorf("encode session: %w", err)
	}
	w := write{writer: st.pending, stream: natsconf.BucketStream(natsconf.BucketSessions), subject: recordSubject(s.Account, s.ID), data: data, trace: s.Trace,
		before: crashpoint.BeforeCreate, after: crashpoint.AfterCreate}
	standing, err := st.once(ctx, w)
	if errors.Is(err, errTaken) {
		s, err = decodeSession(s.ID, standing.Data, st.box)
		return s, false, err
	}
	if err != nil {
		return Session{}, false, fmt.Errorf("create session: %w", err)
	}
	st.countStarted(s)
	return s, true, nil
}

// Release gives a turn back of which no session came: the next request with its key begins anew. Where another has taken it over
// meanwhile that one's turn stands, and so does one that was itself taken over: the owner before may make the session yet. Its errors
// are those of natsconf; the turn then ends by itself.
func (st *Store) Release(ctx context.Context, t Turn) error {
	if t.over {
		return nil
	}
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketIdempotency), t.subject)
	if errors.Is(err, natsconf.ErrNotFound) || err == nil && m.Header.Get(nonceHeader) != t.nonce {
		return nil
	}
	if err == nil {
		err = st.putTurn(ctx, t.subject, rand.Text(), m.Sequence, turnRecord{Version: recordVersion, At: st.instant(), Released: true})
	}
	if err != nil && !errors.Is(err, natsconf.ErrConflict) {
		return fmt.Errorf("release the turn of an idempotency key: %w", err)
	}
	return nil
}

// turnSubject is where a key's turn is stored. The key is the integrator's own text, which may tell about its users: its hash does.
func turnSubject(k Keyed) string {
	kind := "live"
	if k.Test {
		kind = "test"
	}
	sum := sha256.Sum256([]byte(k.Key))
	return natsconf.BucketSubject(natsconf.BucketIdempotency, k.Account+"."+kind+"."+idEncoding.EncodeToString(sum[:]))
}
