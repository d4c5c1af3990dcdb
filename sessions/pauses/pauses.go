// Package pauses keeps which receiver hosts an operator has paused: entries "pause.<host>" of the bucket natsconf.BucketOperations.
//
// The laws:
//
//  1. A pause is durable when it is acknowledged, and every dispatcher hears of it by its watch, within the time of one message.
//  2. It begins no attempt to the host. What is under way when it begins goes on to its end.
//  3. It ends by itself, after Longest at most, so that nothing waits for ever because somebody forgot.
//  4. It costs no delivery its time: what could not be sent is tried for the whole retry time after the pause's end.
package pauses

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions/target"
)

const (
	// Longest is how long a pause may last. With the retry time after it, a day at most, it stays within the 72 hours for which results
	// are kept by default; see ErrTooLong.
	Longest = 24 * time.Hour
	// reasonBytes bounds what an operator writes beside a pause.
	reasonBytes = 200
	// tries bounds how often a change starts over because another operator's came first.
	tries = 20

	recordVersion = 1
	prefix        = "pause."
)

var (
	// ErrNotPaused is returned for a host that is not paused.
	ErrNotPaused = errors.New("the host is not paused")
	// ErrTooLong is returned for a pause that would last longer than it may.
	ErrTooLong = errors.New("a pause lasts for more than 0 and at most 24 hours, and at most for half of the time for which results are kept")
	// ErrReason is returned for a reason that is too long.
	ErrReason = fmt.Errorf("the reason may have %d bytes", reasonBytes)
)

// Pause is an operator's decision that nothing is sent to a receiver host for a while.
type Pause struct {
	Host   string    `json:"host"`             // host and port, as target.URL.HostPort gives them
	By     string    `json:"by"`               // who paused it
	Reason string    `json:"reason,omitempty"` // in their words
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`           // when it ends by itself
	Ended  time.Time `json:"ended,omitzero"`  // when somebody ended it; zero: nobody did
	Ender  string    `json:"ender,omitempty"` // who
}

// End gives when the pause ends, or ended.
func (p Pause) End() time.Time {
	if !p.Ended.IsZero() {
		return p.Ended
	}
	return p.Until
}

// On says whether the host is paused.
func (p Pause) On(now time.Time) bool { return now.Before(p.End()) }

type record struct {
	Version int `json:"v"`
	Pause
}

// Store makes, ends and lists pauses. Its methods are safe for concurrent use; beside the errors that each names they return natsconf's. A
// newer build's pause (natsconf.ErrNewer) is neither changed nor ended.
type Store struct {
	conn *natsconf.Conn
	kv   jetstream.KeyValue
	now  func() time.Time
}

// NewStore binds to the bucket. now is time.Now when nil.
func NewStore(ctx context.Context, c *natsconf.Conn, now func() time.Time) (*Store, error) {
	kv, err := c.JS.KeyValue(ctx, natsconf.BucketOperations)
	if err != nil {
		return nil, fmt.Errorf("open the operators' decisions: %w: %w", natsconf.ErrUnavailable, err)
	}
	if now == nil {
		now = time.Now
	}
	return &Store{conn: c, kv: kv, now: now}, nil
}

// Begin pauses a host, or changes until when and why it is paused. Its errors are a *target.Fault for what is no host, ErrTooLong and
// ErrReason.
func (s *Store) Begin(ctx context.Context, host, by, reason string, lasts time.Duration) (Pause, error) {
	host, err := target.Destination(host)
	if err != nil {
		return Pause{}, err
	}
	if reason = strings.TrimSpace(reason); len(reason) > reasonBytes {
		return Pause{}, ErrReason
	}
	kept, err := s.conn.KeptFor(ctx, natsconf.StreamCompletions)
	if err != nil {
		return Pause{}, err
	}
	if lasts <= 0 || lasts > min(Longest, kept/2) {
		return Pause{}, ErrTooLong
	}
	return s.change(ctx, host, func(Pause) (Pause, error) {
		now := s.now().UTC().Truncate(time.Millisecond)
		return Pause{Host: host, By: by, Reason: reason, At: now, Until: now.Add(lasts)}, nil
	})
}

// End ends a pause. Its errors are a *target.Fault for what is no host, and ErrNotPaused.
func (s *Store) End(ctx context.Context, host, by string) (Pause, error) {
	host, err := target.Destination(host)
	if err != nil {
		return Pause{}, err
	}
	return s.change(ctx, host, func(p Pause) (Pause, error) {
		now := s.now().UTC().Truncate(time.Millisecond)
		if !p.On(now) {
			return Pause{}, ErrNotPaused
		}
		p.Ended, p.Ender = now, by
		return p, nil
	})
}

// change reads a host's pause and stores what edit makes of it. It starts over when another change came first.
func (s *Store) change(ctx context.Context, host string, edit func(Pause) (Pause, error)) (Pause, error) {
	entry := entryOf(host)
	for range tries {
		var standing Pause
		var revision uint64
		e, err := s.kv.Get(ctx, entry)
		switch {
		case err == nil:
			revision = e.Revision()
			if standing, err = decode(e.Value()); err != nil {
				return Pause{}, err
			}
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			return Pause{}, fmt.Errorf("read the pause: %w: %w", natsconf.ErrUnavailable, err)
		}
		next, err := edit(standing)
		if err != nil {
			return Pause{}, err
		}
		data, err := json.Marshal(record{recordVersion, next})
		if err != nil {
			return Pause{}, fmt.Errorf("encode pause: %w", err)
		}
		_, err = s.kv.Update(ctx, entry, data, revision) // 0: there is none yet
		switch {
		case err == nil:
			return next, nil
		case !errors.Is(natsconf.Kind(err), natsconf.ErrConflict):
			return Pause{}, fmt.Errorf("store the pause: %w", natsconf.Kind(err))
		}
	}
	return Pause{}, fmt.Errorf("store the pause: %w: others change it all the time", natsconf.ErrUnavailable)
}

// List gives the pauses that are on, by host. An entry that cannot be read is left out: it is a newer build's.
func (s *Store) List(ctx context.Context) ([]Pause, error) {
	msgs, err := s.conn.Newest(ctx, natsconf.BucketStream(natsconf.BucketOperations), natsconf.BucketSubject(natsconf.BucketOperations, prefix+">"))
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

// hostEncoding makes one word of a key out of a host: names of keys hold no colon and no bracket.
var hostEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func entryOf(host string) string { return prefix + hostEncoding.EncodeToString([]byte(host)) }
