package storestate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// State reports whether a store is in service.
type State string

// The states of a store. A store is in one of them from its first service, move or restore on; each change
// is one compare-and-set.
//
//	(new) ──► open ◄──► leaving ──► sealing ──► left   a move finishes; from sealing on there is no way back
//	  └──► filling ──► open                            a move or a restore fills a new store
const (
	StateOpen     State = "open"    // in service
	StateFilling  State = "filling" // being filled by a move or a restore: no other process may write
	StateDraining State = "leaving" // about to be moved away: no delivery begins any more
	StateSealing  State = "sealing" // the same, and its streams are being sealed: there is no way back
	StateRetired  State = "left"    // moved away: its streams are sealed
)

// Record is whether a store is in service. It keeps two services from working on one set of sessions: at most
// one of the store that is moved and the store that it is moved to is open.
type Record struct {
	Version int    `json:"v"`
	Store   string `json:"store"` // random, made with the first record: names the store
	State   State  `json:"state"`
	// the store, or the backup, that the data goes to or comes from
	Other string    `json:"other,omitempty"`
	Where string    `json:"where,omitempty"` // the same, for people
	At    time.Time `json:"at"`

	sequence uint64 // of this record; 0: there is none
}

// Error is returned if a store is not in service.
type Error struct{ Record }

func (e *Error) Error() string {
	switch e.State {
	case StateFilling:
		return fmt.Sprintf("this store is being filled from %s since %s and is incomplete: finish that "+
			"first (verifyd move --finish, or the same verifyd restore again, with or without --go-on "+
			"as before)", e.Where, e.since())
	case StateDraining:
		return fmt.Sprintf("this store is being moved to %s since %s: finish it with verifyd move "+
			"--finish, or put it back into service with verifyd move --abort", e.Where, e.since())
	case StateSealing:
		return fmt.Sprintf("this store is being moved to %s since %s and its streams are being sealed "+
			"permanently: finish it with verifyd move --finish", e.Where, e.since())
	case StateRetired:
		return fmt.Sprintf("this store was moved to %s on %s and is closed permanently: serve that one",
			e.Where, e.since())
	case StateOpen:
		return "this store is in service"
	default:
		return fmt.Sprintf("this store is %q, which this build does not know: run the newer verifyd", e.State)
	}
}

// codeSealed is JetStream's refusal to store something in a sealed stream.
const codeSealed jetstream.ErrorCode = 10109

// Sealed reports whether an error is that of a store that takes nothing any more, since it is moved to
// another one: a repeat gets it again.
func Sealed(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.State == StateSealing || e.State == StateRetired
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeSealed
}

func (e *Error) since() string { return e.At.UTC().Format(time.RFC3339) }

const (
	stateVersion = 1
	stateEntry   = "standing"
	// setTimeout bounds one change of the state.
	setTimeout = 5 * time.Second
)

// Read reads the store's state from the leader; the zero value if it was never served. Its errors are
// ErrUnavailable and ErrNewer.
func Read(ctx context.Context, c *natsconf.Conn) (Record, error) {
	m, err := c.Last(ctx, topology.BucketStream(topology.BucketStore), Subject())
	if errors.Is(err, natsconf.ErrNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("read the store's state: %w", err)
	}
	var s Record
	if err := natsconf.DecodeRecord(m.Data, &s, &s.Version, stateVersion); err != nil {
		return Record{}, fmt.Errorf("the store's state: %w", err)
	}
	s.sequence = m.Sequence
	return s, nil
}

// ReadAtBoot repeats Read in short tries until it succeeds, a lasting fault ends it, or ctx does; waiting are
// AtBoot's.
func ReadAtBoot(ctx context.Context, c *natsconf.Conn, waiting ...func(error)) (s Record, err error) {
	err = natsconf.AtBoot(ctx, func(ctx context.Context) (err error) {
		s, err = Read(ctx, c)
		return err
	}, isLastingStateError, waiting...)
	return s, err
}

// OpenAtBoot repeats Open in short tries until it succeeds, a lasting fault ends it, or ctx does: if a
// cluster has just made the store's streams, a leader may still be missing. waiting are AtBoot's.
func OpenAtBoot(ctx context.Context, c *natsconf.Conn, waiting ...func(error)) error {
	return natsconf.AtBoot(ctx, func(ctx context.Context) error { return Open(ctx, c) }, isLastingStateError,
		waiting...)
}

// isLastingStateError reports whether the error of a read or a write of the state will not go away.
func isLastingStateError(err error) bool {
	return natsconf.Lasting(err) || !errors.Is(err, natsconf.ErrUnavailable) &&
		!errors.Is(err, natsconf.ErrUncertain) &&
		!errors.Is(err, natsconf.ErrConflict)
}

// Set changes the state from the one that was read to another, and returns the new one. Its errors are
// ErrConflict, if another caller was faster, ErrUncertain and ErrUnavailable; after all of them the caller
// reads again.
func Set(ctx context.Context, c *natsconf.Conn, from Record, state State, other,
	where string) (Record, error) {
	next := Record{
		Version: stateVersion, Store: from.Store, State: state, Other: other, Where: where,
		At: time.Now().UTC(),
	}
	if next.Store == "" {
		next.Store = rand.Text()
	}
	data, err := json.Marshal(next)
	if err != nil {
		return Record{}, fmt.Errorf("encode the store's state: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	ack, err := c.JS.PublishMsg(ctx, &nats.Msg{
		Subject: Subject(), Data: data,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(from.sequence, 10)}},
	}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return Record{}, fmt.Errorf("change the store's state to %s: %w", state, natsconf.Kind(err))
	}
	next.sequence = ack.Sequence
	return next, c.Durable(ack.Stream)
}

// Open makes sure that the store is in service, and puts a new one into service. The error is an *Error if
// the store must not be served, or natsconf's: ErrUncertain also if the credential may not write the state,
// and the operator's has to (verifyd apply).
func Open(ctx context.Context, c *natsconf.Conn) error {
	return natsconf.Retry(ctx, func() error {
		s, err := Read(ctx, c)
		if err != nil {
			return err
		}
		switch s.State {
		case StateOpen:
			return nil
		case "":
			_, err = Set(ctx, c, s, StateOpen, "", "")
			return err
		default:
			return &Error{s}
		}
	})
}

// Seal closes streams permanently: they accept no more messages, from any writer, and cannot be opened again.
// A repeat is harmless. Its errors are those of the server's API.
func Seal(ctx context.Context, c *natsconf.Conn, streams ...string) error {
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

// Subject is the subject of the store's state.
func Subject() string { return topology.BucketSubject(topology.BucketStore, stateEntry) }
