package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/once"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/base32"
	"verifyd/sessions/records"
	"verifyd/sessions/tracing"
)

const (
	// reservedFor is how long a reservation excludes others. A start takes milliseconds; taking over from a
	// live owner that is slow creates the same session, so that a short time costs only a second try.
	reservedFor = 5 * time.Second
	// reservationUse is the use of the box that seals the tokens of reservations; their owner is the subject.
	reservationUse = "idempotent-token"
	// requestHashUse is the use of that keyed hash.
	requestHashUse = "idempotent-request"
)

// The errors of reservations, in addition to those of natsconf.
var (
	// ErrKeyReused: the idempotency key stands for another request.
	ErrKeyReused = errors.New("the idempotency key was used for another request")
	// ErrInProgress: the first request with this idempotency key is being answered.
	ErrInProgress = errors.New("the first request with this idempotency key is still being answered")
	// ErrNotStarted: no session stands for the idempotency key, and none was to be started.
	ErrNotStarted = errors.New("no session was started with this idempotency key")
	// ErrTakenOver: another owner has the reservation, with its token.
	ErrTakenOver = errors.New("another owner has taken the reservation over")
)

// IdempotencyKey names a start of a session. The same key means something else in another account, and for
// test and live keys.
type IdempotencyKey struct {
	Account     string
	Test        bool
	Key         string            // as the integrator chose it
	Fingerprint [sha256.Size]byte // of the request; a repeat has the same
}

// Reservation is what an idempotency key leads to: an existing session, or the right to create it. The token
// is chosen before the session is created, so that one key leads to one session, whichever process creates
// it, and however often that is tried.
type Reservation struct {
	Token   sessions.Token
	Session *sessions.Session // nil: to be made, by Commit
	// TakenOver: it was made by an owner who may only be slow, and what that owner counted for it counts.
	TakenOver bool

	subject, nonce string
	last           uint64 // the sequence that its entry replaces; 0: none
}

// Reservations stores which session an idempotency key leads to.
type Reservations struct {
	*records.Writer

	idempotency    *natsconf.Writer
	reservationBox *secretbox.Box
	requestHash    *secretbox.Hash
}

// Reserve returns the session of an idempotency key, or reserves the right to create it, by a write-once
// entry. Its errors are ErrKeyReused, ErrInProgress, ErrNewer and natsconf's; after ErrUncertain the
// reservation, which is returned with it, may be stored.
//
// The reservation of an owner that ended is taken over after 5 s, with its token: if that owner had created
// the session, it is the same session. So the reservation's time and machines' clocks decide only which
// process does the work, never how many sessions there are.
//
// As in once, the entry is written without a read before: nearly every key is new. One that was released is
// replaced on condition that no other write did.
func (st *Reservations) Reserve(ctx context.Context, k IdempotencyKey) (Reservation, error) {
	t := Reservation{Token: st.NewToken(k.Account), subject: reservationSubject(k)}
	last := uint64(0)
	for range wait.Tries(ctx, once.Tries) {
		t.nonce, t.last = rand.Text(), last // another token is another message
		existing, err := st.putReservation(ctx, t, last, st.newReservation(t.subject, k, t.Token))
		if err == nil {
			return t, nil
		}
		if !errors.Is(err, once.ErrTaken) {
			return t, fmt.Errorf("reserve an idempotency key: %w", err)
		}
		found, free, err := st.interpretReservation(ctx, t.subject, existing, k)
		if !free {
			return found, err
		}
		last, t.Token, t.TakenOver = existing.Sequence, found.Token, found.Token != ""
		if !t.TakenOver {
			t.Token = st.NewToken(k.Account)
		}
	}
	return Reservation{}, fmt.Errorf("reserve an idempotency key: %w", natsconf.ErrConflict)
}

// FindReserved returns the session of an idempotency key, and reserves nothing. Its errors are those of
// Reserve, and ErrNotStarted.
func (st *Reservations) FindReserved(ctx context.Context, k IdempotencyKey) (Reservation, error) {
	m, err := st.lastReservation(ctx, reservationSubject(k))
	if err != nil {
		return Reservation{}, err
	}
	t, free, err := st.interpretReservation(ctx, reservationSubject(k), m, k)
	if free {
		return Reservation{}, ErrNotStarted
	}
	return t, err
}

// TakeOver returns the session of an idempotency key, or takes over the reservation of an owner that ended,
// like Reserve. It makes no new one. Its errors are those of FindReserved.
func (st *Reservations) TakeOver(ctx context.Context, k IdempotencyKey) (Reservation, error) {
	subject := reservationSubject(k)
	existing, err := st.lastReservation(ctx, subject)
	for range wait.Tries(ctx, once.Tries) {
		if err != nil {
			return Reservation{}, err
		}
		t, free, err := st.interpretReservation(ctx, subject, existing, k)
		if !free {
			return t, err
		}
		if t.Token == "" {
			return Reservation{}, ErrNotStarted
		}
		t.subject, t.nonce, t.TakenOver = subject, rand.Text(), true
		existing, err = st.putReservation(ctx, t, existing.Sequence, st.newReservation(subject, k, t.Token))
		if err == nil {
			return t, nil
		}
		if !errors.Is(err, once.ErrTaken) {
			return Reservation{}, fmt.Errorf("take an idempotency key over: %w", err)
		}
	}
	return Reservation{}, fmt.Errorf("take an idempotency key over: %w", natsconf.ErrConflict)
}

// lastReservation reads an entry. Its errors are ErrNotStarted and ErrUnavailable.
func (st *Reservations) lastReservation(ctx context.Context,
	subject string) (*jetstream.RawStreamMsg, error) {
	m, err := st.Conn.Last(ctx, st.idempotency.Stream(), subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, ErrNotStarted
	}
	if err != nil {
		return nil, fmt.Errorf("read the reservation of an idempotency key: %w", err)
	}
	return m, nil
}

// interpretReservation determines what a stored reservation means for a request. free: it may be taken over,
// with the reservation's token if it has one.
func (st *Reservations) interpretReservation(ctx context.Context, subject string, m *jetstream.RawStreamMsg,
	k IdempotencyKey) (t Reservation, free bool, err error) {
	var r records.ReservationRecord
	if err := records.DecodeRecord(m.Data, &r, &r.Version, records.ReservationVersions); err != nil {
		return Reservation{}, false, fmt.Errorf("the reservation of an idempotency key: %w", err)
	}
	if r.Released {
		return Reservation{}, true, nil
	}
	plain, err := st.reservationBox.Open(r.Token, subject)
	if err != nil {
		return Reservation{}, false, fmt.Errorf("token of an idempotency key: %w", err)
	}
	if string(r.Fingerprint) != string(st.fingerprint(r.Version, subject, k)) {
		return Reservation{}, false, ErrKeyReused
	}
	t = Reservation{Token: sessions.Token(plain)}
	// This process may remember the record of an erased session, and nobody can create that session anew.
	if erased, err := st.IsErased(ctx, t.Token.ID()); err != nil || erased {
		return Reservation{}, erased, err
	}
	s, err := st.ReadOpenByToken(ctx, t.Token)
	switch {
	case err == nil, errors.Is(err, sessions.ErrExpired):
		t.Session = &s
		return t, false, nil
	case !errors.Is(err, sessions.ErrNotFound):
		return Reservation{}, false, err
	case st.Instant().Before(r.Until):
		return Reservation{}, false, ErrInProgress
	default:
		return t, true, nil
	}
}

func (st *Reservations) newReservation(subject string, k IdempotencyKey,
	token sessions.Token) records.ReservationRecord {
	now, version := st.Instant(), records.ReservationVersions.Newest
	if st.Plain {
		version = records.ReservationVersions.Oldest
	}
	return records.ReservationRecord{
		Version: version, Fingerprint: st.fingerprint(version, subject, k),
		Token: st.reservationBox.Seal([]byte(token.Reveal()), subject),
		At:    now, Until: now.Add(reservedFor),
	}
}

// fingerprint returns a request's fingerprint as reservations of a version hold it.
func (st *Reservations) fingerprint(version int, subject string, k IdempotencyKey) []byte {
	if version < records.ReservationVersions.Newest {
		return k.Fingerprint[:]
	}
	return []byte(st.requestHash.Sum(subject + " " + string(k.Fingerprint[:])))
}

// putReservation replaces the entry of the sequence last; 0: there is none. Its errors are those of
// once.Replace.
func (st *Reservations) putReservation(ctx context.Context, t Reservation, last uint64,
	r records.ReservationRecord) (existing *jetstream.RawStreamMsg, err error) {
	data, err := records.EncodeRecord(r)
	if err != nil {
		return nil, fmt.Errorf("encode reservation: %w", err)
	}
	m := &nats.Msg{Subject: t.subject, Data: data, Header: nats.Header{once.NonceHeader: {t.nonce}}}
	return once.Replace(ctx, st.Conn, st.idempotency.Stream(), m, last,
		func(ctx context.Context, m *nats.Msg) error {
			crashpoint.Reach(crashpoint.BeforeReservation)
			_, err := st.idempotency.Publish(ctx, m)
			crashpoint.Reach(crashpoint.AfterReservation)
			return err
		})
}

// Commit creates the session of a reservation. It returns once the record is durable. made is false if
// another owner of the reservation came first; s is then that session. Its errors are those of natsconf;
// after ErrUncertain the session may exist, and the next Reserve finds out.
func (st *Reservations) Commit(ctx context.Context, t Reservation, r sessions.Request) (s sessions.Session,
	made bool, err error) {
	s = sessions.NewSession(r, t.Token, st.Instant())
	s.Trace = tracing.Parent(ctx)
	data, err := st.EncodeNew(ctx, &s)
	if err != nil {
		return sessions.Session{}, false, fmt.Errorf("create session: %w", err)
	}
	w := records.Write{Writer: st.Pending, Subject: records.RecordSubject(s.Account, s.ID), Data: data,
		Trace:  s.Trace,
		Before: crashpoint.BeforeCreate, After: crashpoint.AfterCreate}
	existing, err := st.Once(ctx, w)
	if errors.Is(err, once.ErrTaken) {
		s, err = st.OpenSession(ctx, s.ID, existing.Data)
		return s, false, err
	}
	if err != nil {
		return sessions.Session{}, false, fmt.Errorf("create session: %w", err)
	}
	st.Meter.CountStarted(s)
	return s, true, nil
}

// Release ends a reservation without a session: the next request with its key starts afresh. After nil nobody
// finds the reservation any more, also if its own write was not answered. One that another owner has taken
// over meanwhile stays, with ErrTakenOver, and so does one that was itself taken over, without an error: its
// former owner may still create the session. The other errors are natsconf's and ErrNewer; the reservation
// then expires by itself.
func (st *Reservations) Release(ctx context.Context, t Reservation) error {
	if t.TakenOver || t.subject == "" {
		return nil
	}
	released := records.ReservationRecord{
		Version: records.ReservationVersions.Oldest, At: st.Instant(), Released: true,
	}
	own := t.nonce
	t.nonce = rand.Text()
	for range wait.Tries(ctx, once.Tries) {
		last := uint64(0)
		held, err := st.Conn.Last(ctx, st.idempotency.Stream(), t.subject)
		switch {
		case errors.Is(err, natsconf.ErrNotFound):
		case err != nil:
			return fmt.Errorf("read the reservation of an idempotency key: %w", err)
		// its own entry, or the one that its own may replace yet
		case held.Header.Get(once.NonceHeader) == own, held.Sequence == t.last:
			last = held.Sequence
		default:
			return st.takenOver(t, held)
		}
		if _, err = st.putReservation(ctx, t, last, released); !errors.Is(err, once.ErrTaken) {
			if err != nil {
				return fmt.Errorf("release the reservation of an idempotency key: %w", err)
			}
			return nil
		}
	}
	return fmt.Errorf("release the reservation of an idempotency key: %w", natsconf.ErrConflict)
}

// takenOver returns ErrTakenOver if a stored reservation is that of t, with another owner.
func (st *Reservations) takenOver(t Reservation, held *jetstream.RawStreamMsg) error {
	var r records.ReservationRecord
	if err := records.DecodeRecord(held.Data, &r, &r.Version, records.ReservationVersions); err != nil {
		return fmt.Errorf("the reservation of an idempotency key: %w", err)
	}
	if r.Released {
		return nil
	}
	plain, err := st.reservationBox.Open(r.Token, t.subject)
	if err != nil {
		return fmt.Errorf("token of an idempotency key: %w", err)
	}
	if sessions.Token(plain) == t.Token {
		return ErrTakenOver
	}
	return nil
}

// reservationSubject is where a key's reservation is stored. The key is the integrator's own text, which may
// contain data about users, so its hash is used.
func reservationSubject(k IdempotencyKey) string {
	kind := "live"
	if k.Test {
		kind = "test"
	}
	sum := sha256.Sum256([]byte(k.Key))
	return topology.BucketSubject(topology.BucketIdempotency,
		k.Account+"."+kind+"."+base32.Lower.EncodeToString(sum[:]))
}
