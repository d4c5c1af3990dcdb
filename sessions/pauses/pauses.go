// Package pauses keeps which receiver hosts an operator has paused: entries "pause.<host>" of the bucket
// topology.BucketOperations.
//
// The rules:
//
//  1. A pause is durable when it is acknowledged, and every dispatcher learns of it by its watch, within the
//     time of one message.
//  2. No attempt to the host begins during a pause. An attempt that is under way when the pause begins goes
//     on to its end.
//  3. It ends by itself, after Longest at most, so that nothing waits forever because somebody forgot.
//  4. It takes no time from a delivery: a delivery that could not be sent is tried for the whole retry time
//     after the pause's end, as long as results are kept. It takes the verdict from none: a pause that would
//     last until a waiting outcome leaves the store does not begin, and if one would outlast a delivery all
//     the same, the dispatchers bring that delivery to an end.
package pauses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions/base32"
	"verifyd/sessions/urlpolicy"
)

const (
	// Longest is the longest pause. With the retry time after it, a day at most, it stays within the 72
	// hours for which results are kept by default; see ErrTooLong.
	Longest = 24 * time.Hour
	// spare is how much a pause leaves of the time for which the oldest waiting outcome is kept: the hour by
	// which the settings keep results longer than callbacks are tried.
	spare = time.Hour
	// reasonBytes bounds the reason that an operator writes for a pause.
	reasonBytes = 200

	recordVersion = 1
	prefix        = "pause."
)

var (
	// ErrNotPaused is returned for a host that is not paused.
	ErrNotPaused = errors.New("the host is not paused")
	// ErrTooLong is returned for a pause that would last longer than it may.
	ErrTooLong = errors.New(
		"a pause lasts for more than 0 and at most 24 hours, and at most for half of the time for " +
			"which results are kept")
	// ErrReason is returned for a reason that is too long.
	ErrReason = fmt.Errorf("the reason may have %d bytes", reasonBytes)
)

// TooLongError is returned for a pause that would last until outcomes that wait leave the store.
type TooLongError struct {
	Oldest time.Time     // since when the oldest of them waits
	Left   time.Duration // how long a pause may last now; below a minute: none may begin
}

func (e *TooLongError) Error() string {
	what := fmt.Sprintf("the oldest callback waits since %s, and its result leaves the store before "+
		"such a pause is over", e.Oldest.UTC().Format(time.RFC3339))
	if e.Left < time.Minute {
		return what + "; no host can be paused until it has ended: resume the hosts that are paused, " +
			"so that it is tried"
	}
	return fmt.Sprintf("%s; pause for at most %s", what, e.Left.Truncate(time.Minute))
}

// Is makes it ErrTooLong.
func (e *TooLongError) Is(target error) bool { return target == ErrTooLong }

// Pause is an operator's decision that nothing is sent to a receiver host for a while.
type Pause struct {
	Host    string    `json:"host"`             // host and port, as urlpolicy.URL.HostPort returns them
	By      string    `json:"by"`               // who paused it
	Reason  string    `json:"reason,omitempty"` // in their words
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`           // when it ends by itself
	Ended   time.Time `json:"ended,omitzero"`  // when somebody ended it; zero: it was not
	EndedBy string    `json:"ender,omitempty"` // who
}

// End returns when the pause ends, or ended.
func (p Pause) End() time.Time {
	if !p.Ended.IsZero() {
		return p.Ended
	}
	return p.Until
}

// On reports whether the host is paused.
func (p Pause) On(now time.Time) bool { return now.Before(p.End()) }

type record struct {
	Version int `json:"v"`
	Pause
}

// Store makes, ends and lists pauses. Its methods are safe for concurrent use; in addition to the errors that
// each names they return natsconf's. A newer build's pause (natsconf.ErrNewer) is neither changed nor ended.
type Store struct {
	// Oldest returns since when the oldest delivery that has not ended waits, the zero time if none does; not
	// called when nil.
	Oldest func(ctx context.Context) (time.Time, error)

	conn *natsconf.Conn
	now  func() time.Time
}

// NewStore returns a store. now is the store's time when nil.
func NewStore(c *natsconf.Conn, now func() time.Time) *Store {
	if now == nil {
		now = c.Clock.Now
	}
	return &Store{conn: c, now: now}
}

// Begin pauses a host, or changes until when and why it is paused. Its errors are a *urlpolicy.Fault for a
// text that is not a host, ErrTooLong, which may be a *TooLongError, and ErrReason.
func (s *Store) Begin(ctx context.Context, host, by, reason string, lasts time.Duration) (Pause, error) {
	host, err := urlpolicy.Destination(host)
	if err != nil {
		return Pause{}, err
	}
	if reason = strings.TrimSpace(reason); len(reason) > reasonBytes {
		return Pause{}, ErrReason
	}
	kept, err := s.conn.KeptFor(ctx, topology.StreamCompletions)
	if err != nil {
		return Pause{}, err
	}
	if lasts <= 0 || lasts > min(Longest, kept/2) {
		return Pause{}, ErrTooLong
	}
	if err := s.fits(ctx, lasts, kept); err != nil {
		return Pause{}, err
	}
	return s.change(ctx, host, func(Pause) (Pause, error) {
		now := s.now().UTC().Truncate(time.Millisecond)
		return Pause{Host: host, By: by, Reason: reason, At: now, Until: now.Add(lasts)}, nil
	})
}

// fits refuses a pause that the oldest waiting outcome would not outlive. That one may wait for another host:
// only reading all of them would show which host each waits for, and so little time is left only if hosts
// have been paused for days, or dispatchers stood still.
func (s *Store) fits(ctx context.Context, lasts, kept time.Duration) error {
	if s.Oldest == nil {
		return nil
	}
	oldest, err := s.Oldest(ctx)
	if err != nil || oldest.IsZero() {
		return err
	}
	if left := oldest.Add(kept - spare).Sub(s.now()); lasts > left {
		return &TooLongError{Oldest: oldest, Left: left}
	}
	return nil
}

// End ends a pause. Its errors are a *urlpolicy.Fault for a text that is not a host, and ErrNotPaused.
func (s *Store) End(ctx context.Context, host, by string) (Pause, error) {
	host, err := urlpolicy.Destination(host)
	if err != nil {
		return Pause{}, err
	}
	return s.change(ctx, host, func(p Pause) (Pause, error) {
		now := s.now().UTC().Truncate(time.Millisecond)
		if !p.On(now) {
			return Pause{}, ErrNotPaused
		}
		p.Ended, p.EndedBy = now, by
		return p, nil
	})
}

// change reads a host's pause and stores what edit makes of it.
func (s *Store) change(ctx context.Context, host string, edit func(Pause) (Pause, error)) (Pause, error) {
	var next Pause
	err := s.conn.Update(ctx, topology.BucketStream(topology.BucketOperations), subjectOf(host),
		func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
			var existing Pause
			var err error
			if m != nil {
				if existing, err = decode(m.Data); err != nil {
					return nil, err
				}
			}
			if next, err = edit(existing); err != nil {
				return nil, err
			}
			data, err := json.Marshal(record{recordVersion, next})
			return &nats.Msg{Data: data}, err
		})
	if err != nil {
		return Pause{}, err
	}
	return next, nil
}

// Of returns the current pause of a host, named as timeline.Host does; nil if there is none. Its error is
// natsconf.ErrUnavailable.
func (s *Store) Of(ctx context.Context, host string) (*Pause, error) {
	m, err := s.conn.Last(ctx, topology.BucketStream(topology.BucketOperations), subjectOf(host))
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, nil //nolint:nilnil // it is not paused
	}
	if err != nil {
		return nil, fmt.Errorf("read the pause: %w", err)
	}
	p, err := decode(m.Data)
	if err != nil || !p.On(s.now()) { // one of a newer build is left out, as in List
		return nil, nil //nolint:nilerr,nilnil // see there
	}
	return &p, nil
}

// List returns the pauses that are on, by host. An entry that cannot be read is left out: it is from a newer
// build.
func (s *Store) List(ctx context.Context) ([]Pause, error) {
	msgs, err := s.conn.Newest(ctx, topology.BucketStream(topology.BucketOperations),
		topology.BucketSubject(topology.BucketOperations, prefix+">"))
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	var on []Pause
	for _, m := range msgs {
		if p, err := decode(m.Data()); err == nil && p.On(s.now()) {
			on = append(on, p)
		}
	}
	slices.SortFunc(on, func(a, b Pause) int { return strings.Compare(a.Host, b.Host) })
	return on, nil
}

// decode refuses a record of a newer build rather than misread it.
func decode(data []byte) (Pause, error) {
	var r record
	if err := natsconf.DecodeRecord(data, &r, &r.Version, recordVersion); err != nil {
		return Pause{}, fmt.Errorf("the pause: %w", err)
	}
	return r.Pause, nil
}

// subjectOf returns the subject of a host's entry. Names of entries contain no colon and no bracket.
func subjectOf(host string) string {
	return topology.BucketSubject(topology.BucketOperations,
		prefix+base32.Lower.EncodeToString([]byte(host)))
}
