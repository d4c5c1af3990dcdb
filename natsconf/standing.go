package natsconf

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// StandingState says whether a store is in service.
type StandingState string

// The states of a store. A store is in one of them from its first service, move or restore on; each change is one compare-and-set.
//
//	(new) ──► open ◄──► leaving ──► sealing ──► left   a move finishes; from sealing on there is no way back
//	  └──► filling ──► open                            a move or a restore fills a new store, which nobody serves until it is whole
const (
	StandingOpen    StandingState = "open"    // in service
	StandingFilling StandingState = "filling" // being filled by a move or a restore: nobody else may write
	StandingLeaving StandingState = "leaving" // about to be moved away: no delivery begins any more
	StandingSealing StandingState = "sealing" // the same, and its streams are being sealed: there is no way back
	StandingLeft    StandingState = "left"    // moved away: its streams are sealed
)

// Standing is whether a store is in service. It keeps two services from working on one set of sessions: of the store that is moved and
// the one that it is moved to, one at most is open.
type Standing struct {
	Version int           `json:"v"`
	Store   string        `json:"store"` // random, made with the first standing: names the store
	State   StandingState `json:"state"`
	Other   string        `json:"other,omitempty"` // the store, or the backup, that the data goes to or comes from
	Where   string        `json:"where,omitempty"` // the same, for people
	At      time.Time     `json:"at"`

	sequence uint64 // of this record; 0: there is none
}

// StandingError is returned where a store is not in service.
type StandingError struct{ Standing }

func (e *StandingError) Error() string {
	switch e.State {
	case StandingFilling:
		return fmt.Sprintf("this store is being filled from %s since %s and is not whole: finish that first (verifyd move --finish, or the same verifyd restore again, with or without --go-on as before)", e.Where, e.since())
	case StandingLeaving:
		return fmt.Sprintf("this store is being moved to %s since %s: finish it with verifyd move --finish, or take it back with verifyd move --abort", e.Where, e.since())
	case StandingSealing:
		return fmt.Sprintf("this store is being moved to %s since %s and its streams are being sealed, for good: finish it with verifyd move --finish", e.Where, e.since())
	case StandingLeft:
		return fmt.Sprintf("this store was moved to %s on %s and is closed for good: serve that one", e.Where, e.since())
	case StandingOpen:
		return "this store is in service"
	default:
		return fmt.Sprintf("this store is %q, which this build does not know: run the newer verifyd", e.State)
	}
}

func (e *StandingError) since() string { return e.At.UTC().Format(time.RFC3339) }

const (
	standingVersion = 1
	standingEntry   = "standing"
	// standingPoll is how often a service looks at its store's standing. A move that finishes waits for open claims longer than that;
	// what decides is that the streams are sealed.
	standingPoll = 500 * time.Millisecond
)

// Standing reads the store's standing from the leader; the zero value where nobody has served it yet. Its errors are ErrUnavailable and
// ErrNewer.
func (c *Conn) Standing(ctx context.Context) (Standing, error) {
	m, err := c.Last(ctx, BucketStream(BucketStore), StandingSubject())
	if errors.Is(err, ErrNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return Standing{}, nil
	}
	if err != nil {
		return Standing{}, fmt.Errorf("read the store's standing: %w", err)
	}
	var s Standing
	if err := DecodeRecord(m.Data, &s, &s.Version, standingVersion); err != nil {
		return Standing{}, fmt.Errorf("the store's standing: %w", err)
	}
	s.sequence = m.Sequence
	return s, nil
}

// StandingAtBoot repeats Standing in short tries until it succeeds, a lasting fault ends it, or ctx does; waiting are AtBoot's.
func (c *Conn) StandingAtBoot(ctx context.Context, waiting ...func(error)) (s Standing, err error) {
	err = AtBoot(ctx, func(ctx context.Context) (err error) {
		s, err = c.Standing(ctx)
		return err
	}, standingLasts, waiting...)
	return s, err
}

// OpenAtBoot repeats Open in short tries until it succeeds, a lasting fault ends it, or ctx does: of a cluster that has just made the
// store's streams, a leader may still be missing. waiting are AtBoot's.
func (c *Conn) OpenAtBoot(ctx context.Context, waiting ...func(error)) error {
	return AtBoot(ctx, c.Open, standingLasts, waiting...)
}

// standingLasts says that what a reading or a writing of the standing met is there for good.
func standingLasts(err error) bool {
	return lasting(err) || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUncertain) && !errors.Is(err, ErrConflict)
}

// SetStanding changes the standing from what was read to another state, and gives what stands then. Its errors are ErrConflict, where
// somebody was faster, ErrUncertain and ErrUnavailable; after all of them the caller reads again.
func (c *Conn) SetStanding(ctx context.Context, from Standing, state StandingState, other, where string) (Standing, error) {
	next := Standing{Version: standingVersion, Store: from.Store, State: state, Other: other, Where: where, At: time.Now().UTC()}
	if next.Store == "" {
		next.Store = rand.Text()
	}
	data, err := json.Marshal(next)
	if err != nil {
		return Standing{}, fmt.Errorf("encode the store's standing: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	ack, err := c.JS.PublishMsg(ctx, &nats.Msg{
		Subject: StandingSubject(), Data: data,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(from.sequence, 10)}},
	}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return Standing{}, fmt.Errorf("change the store's standing to %s: %w", state, Kind(err))
	}
	next.sequence = ack.Sequence
	return next, nil
}

// openTries bounds how often Open begins again because somebody else wrote first, or no answer came.
const openTries = 3

// Open makes sure that the store is in service, and makes it so where it is new. The error is a *StandingError where it is not to be
// served, or natsconf's: ErrUncertain also where the credential may not write it, and the operator's has to (verifyd apply).
func (c *Conn) Open(ctx context.Context) (err error) {
	for range openTries {
		var s Standing
		if s, err = c.Standing(ctx); err != nil {
			return err
		}
		switch s.State {
		case StandingOpen:
			return nil
		case "":
		default:
			return &StandingError{s}
		}
		_, err = c.SetStanding(ctx, s, StandingOpen, "", "")
		if err == nil || !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUncertain) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Watchman is the actor that watches whether the store is still in service. While the store does not answer, what was read last stands.
type Watchman struct {
	conn *Conn
	log  zerolog.Logger

	mu     sync.Mutex
	now    Standing
	opened chan struct{}   // closed while the store is in service
	open   context.Context //nolint:containedctx // it ends when the store leaves service
	leave  context.CancelFunc
}

// NewWatchman makes a watchman for a store that Open has found in service.
func NewWatchman(c *Conn, log zerolog.Logger) *Watchman {
	w := &Watchman{conn: c, log: log, now: Standing{State: StandingOpen}, opened: make(chan struct{})}
	w.enter()
	return w
}

// enter notes that the store is in service.
func (w *Watchman) enter() {
	w.open, w.leave = context.WithCancel(context.Background())
	close(w.opened)
}

// String names the actor in the supervisor's log.
func (w *Watchman) String() string { return "store's standing" }

// Serve looks until ctx ends.
func (w *Watchman) Serve(ctx context.Context) error {
	tick := time.NewTicker(standingPoll)
	defer tick.Stop()
	for {
		if s, err := w.conn.Standing(ctx); err == nil && s.State != "" {
			w.see(s)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Watchman) see(s Standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.now.State
	w.now = s
	switch s.State {
	case before:
	case StandingOpen:
		w.enter()
		w.log.Info().Msg("the store is in service again")
	default:
		if before == StandingOpen {
			w.leave()
			w.opened = make(chan struct{})
		}
		w.log.Warn().Err(&StandingError{s}).Msg("the store is leaving service; nothing is delivered from it any more")
	}
}

// Check tells why nothing can be stored, or nil: a store that is leaving still takes sessions and outcomes.
func (w *Watchman) Check() error { return w.among(StandingOpen, StandingLeaving) }

// CheckDeliveries tells why no delivery begins, or nil.
func (w *Watchman) CheckDeliveries() error { return w.among(StandingOpen) }

// among gives nil where the store is in one of these states.
func (w *Watchman) among(states ...StandingState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(states, w.now.State) {
		return nil
	}
	return &StandingError{w.now}
}

// While waits until the store is in service and gives a context that ends with ctx, and as soon as the store leaves service. Where ctx
// ends first the error is ctx's.
func (w *Watchman) While(ctx context.Context) (context.Context, context.CancelFunc, error) {
	w.mu.Lock()
	opened := w.opened
	w.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.open, cancel)
	return inner, func() { stop(); cancel() }, nil
}

// Seal closes streams for good: they take no message any more, whoever writes, and cannot be opened again. A repeat is harmless. Its
// errors are those of the server's API.
func (c *Conn) Seal(ctx context.Context, streams ...string) error {
	for _, name := range streams {
		s, err := c.JS.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", name, err)
		}
		config := s.CachedInfo().Config
		if config.Sealed {
			continue
		}
		config.Sealed = true
		if _, err := c.JS.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("seal stream %s: %w", name, err)
		}
	}
	return nil
}

// StandingSubject is where the store's standing is kept.
func StandingSubject() string { return BucketSubject(BucketStore, standingEntry) }
