// Package kept stores what the pages about callbacks remember for an account, in the bucket
// topology.BucketSessions, for as long as results are kept:
//
//	pages.seen.<account>.<session>.<attempt>  somebody has seen how that attempt ended
//	pages.tests.<account>                     the last test callbacks, without their secrets
//	pages.runs.<account>.<run>                callbacks that were sent again together
//
// None of it is about a user, and no promise depends on it: a record of a newer build, or one that cannot be
// read, counts as none; for the first kind the key alone has all the information. The keys have more tokens
// than a session's record, so that no lookup of a record finds them, and none ends with a session's id.
package kept

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account/entry"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// MaxTests is how many test callbacks are remembered.
const MaxTests = 10

const (
	version = 1
	// lettersOfRun are the letters of a run's name (rand.Text, in lower case).
	lettersOfRun = "abcdefghijklmnopqrstuvwxyz234567"
)

// ErrNoRun is returned for a run that is not stored.
var ErrNoRun = errors.New("no such run")

// Store stores these records. Its methods are safe for concurrent use; their errors, apart from those named,
// are natsconf's.
type Store struct{ conn *natsconf.Conn }

// New makes a store.
func New(c *natsconf.Conn) *Store { return &Store{c} }

// End is how an attempt of a session ended, which a member can mark as seen: the end of the next attempt is
// new.
type End struct {
	Session sessions.ID
	Attempt int
}

// EndOf returns the end of a session's last attempt.
func EndOf(v facts.View) End { return End{v.ID, len(v.Delivery.Attempts)} }

// MarkSeen stores that ends were seen, all or none; at most a few hundred. A repeat is harmless.
func (s *Store) MarkSeen(ctx context.Context, account string, ends []End) error {
	data, err := json.Marshal(struct {
		Version int `json:"v"`
	}{version})
	if err != nil {
		return fmt.Errorf("encode a mark: %w", err)
	}
	var msgs []*nats.Msg
	for _, e := range ends {
		msgs = append(msgs, &nats.Msg{
			Subject: subject("seen", account, string(e.Session), strconv.Itoa(e.Attempt)), Data: data,
		})
	}
	switch len(msgs) {
	case 0:
		return nil
	case 1:
		return s.conn.PublishOne(ctx, stream, msgs[0])
	}
	return s.conn.PublishBatch(ctx, stream, msgs...)
}

// Seen returns the ends that were seen.
func (s *Store) Seen(ctx context.Context, account string) (map[End]bool, error) {
	marks, err := entry.List(ctx, s.conn, topology.BucketSessions, "pages.seen."+account+".*.*")
	if err != nil {
		return nil, err
	}
	seen := map[End]bool{}
	for _, m := range marks {
		words := strings.Split(m.Key, ".")
		if n, err := strconv.Atoi(words[len(words)-1]); err == nil {
			seen[End{sessions.ID(words[len(words)-2]), n}] = true
		}
	}
	return seen, nil
}

// Test is a test callback. It has neither its URL, which may hold a secret, nor the answer.
type Test struct {
	At       time.Time     `json:"at"`
	By       string        `json:"by"`
	Host     string        `json:"host"`
	Verified bool          `json:"verified"`
	Verdict  facts.Verdict `json:"verdict"`
	Class    failure.Class `json:"class,omitempty"`
	Status   int           `json:"status,omitempty"`
	Took     time.Duration `json:"took"`
}

type tests struct {
	Version int    `json:"v"`
	Tests   []Test `json:"tests"` // newest first, at most MaxTests
}

// AddTest remembers a test callback, and forgets the oldest if there are more than MaxTests.
func (s *Store) AddTest(ctx context.Context, account string, t Test) error {
	to := subject("tests", account)
	return s.conn.Update(ctx, stream, to, func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		t := tests{version, append([]Test{t}, readTests(m)...)}
		t.Tests = t.Tests[:min(len(t.Tests), MaxTests)]
		data, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("encode test callbacks: %w", err)
		}
		return &nats.Msg{Subject: to, Data: data}, nil
	})
}

// Tests returns the test callbacks that are remembered, newest first.
func (s *Store) Tests(ctx context.Context, account string) ([]Test, error) {
	m, err := s.conn.Last(ctx, stream, subject("tests", account))
	if err != nil && !errors.Is(err, natsconf.ErrNotFound) {
		return nil, fmt.Errorf("read test callbacks: %w", err)
	}
	return readTests(m), nil
}

func readTests(m *jetstream.RawStreamMsg) []Test {
	var t tests
	if m == nil || natsconf.DecodeRecord(m.Data, &t, &t.Version, version) != nil {
		return nil
	}
	return t.Tests
}

// Run is a set of callbacks that were sent again together.
type Run struct {
	At      time.Time     `json:"at"`
	By      string        `json:"by"`
	Asked   []sessions.ID `json:"asked"`
	Skipped int           `json:"skipped,omitempty"` // were due already, or are no longer stored
	Left    int           `json:"left,omitempty"`    // were more than the account's rate allowed at once
}

type run struct {
	Version int `json:"v"`
	Run
}

// KeepRun stores a run and returns its name.
func (s *Store) KeepRun(ctx context.Context, account string, r Run) (name string, err error) {
	data, err := json.Marshal(run{version, r})
	if err != nil {
		return "", fmt.Errorf("encode a run: %w", err)
	}
	name = strings.ToLower(rand.Text())
	m := &nats.Msg{Subject: subject("runs", account, name), Data: data}
	return name, s.conn.PublishOne(ctx, stream, m)
}

// Run returns a run of an account. The error is ErrNoRun if there is none.
func (s *Store) Run(ctx context.Context, account, name string) (Run, error) {
	if name == "" || strings.Trim(name, lettersOfRun) != "" {
		return Run{}, ErrNoRun
	}
	m, err := s.conn.Last(ctx, stream, subject("runs", account, name))
	if errors.Is(err, natsconf.ErrNotFound) {
		return Run{}, ErrNoRun
	}
	if err != nil {
		return Run{}, fmt.Errorf("read a run: %w", err)
	}
	var r run
	if natsconf.DecodeRecord(m.Data, &r, &r.Version, version) != nil {
		return Run{}, ErrNoRun
	}
	return r.Run, nil
}

var stream = topology.BucketStream(topology.BucketSessions)

func subject(words ...string) string {
	return topology.BucketSubject(topology.BucketSessions, "pages."+strings.Join(words, "."))
}
