package limit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	// sharingGap is the minimum time between two messages of an edge. Sessions that edges allow at the same
	// moment, before they have informed each other, exceed the rate; they count as debt and are paid back.
	// Each message costs the others some microseconds.
	sharingGap = 5 * time.Millisecond
	// maxSharing is how many keys one message holds: about 60 KiB.
	maxSharing = 1000
	// sharingRoom is how many messages may wait to be counted: those of a hundred edges for several rounds.
	sharingRoom = 1024
)

// Sharing is the actor by which the edges of a service share their rate limits: each sends the others what it
// allowed, within milliseconds, and adds what they allowed to its own count. No request waits for it. Alone,
// or without a connection, an edge goes on with what it knows.
type Sharing struct {
	rates *Rates
	conn  *natsconf.Conn
	now   func() time.Time
	self  string
}

// NewSharing returns the actor of a limiter; now is the clock that Allow is called with, time.Now if it is
// nil.
func NewSharing(rates *Rates, conn *natsconf.Conn, now func() time.Time) *Sharing {
	if now == nil {
		now = time.Now
	}
	return &Sharing{rates: rates, conn: conn, now: now, self: rand.Text()}
}

// String names the actor in the supervisor's log.
func (s *Sharing) String() string { return "rate sharing" }

// spentMsg is what an edge sends the others.
type spentMsg struct {
	From  string              `json:"from"`
	Spent map[string]Spending `json:"spent"` // by the key's id
}

// Serve shares until ctx ends.
func (s *Sharing) Serve(ctx context.Context) error {
	heard := make(chan *nats.Msg, sharingRoom)
	sub, err := s.conn.NC.ChanSubscribe(topology.SubjectSpent, heard)
	if err != nil {
		return fmt.Errorf("share rate limits: %w: %w", natsconf.ErrUnavailable, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	news := s.rates.share()
	ready := news
	pause := time.NewTimer(sharingGap)
	defer pause.Stop()
	for {
		select {
		case m := <-heard:
			s.record(m.Data)
		case <-ready:
			s.report()
			ready = nil
			pause.Reset(sharingGap)
		case <-pause.C:
			ready = news
		case <-ctx.Done():
			s.report()
			return ctx.Err()
		}
	}
}

// report sends the other edges what was allowed since the last report.
func (s *Sharing) report() {
	m := spentMsg{From: s.self, Spent: map[string]Spending{}}
	send := func() {
		if data, err := json.Marshal(m); err == nil && len(m.Spent) > 0 {
			s.conn.Emit(topology.SubjectSpent, data)
		}
		clear(m.Spent)
	}
	for key, spent := range s.rates.takeSpent() {
		if m.Spent[key] = spent; len(m.Spent) == maxSharing {
			send()
		}
	}
	send()
}

// record adds to the count what another edge allowed. A message that cannot be read is from another build,
// and is left out.
func (s *Sharing) record(data []byte) {
	var m spentMsg
	if json.Unmarshal(data, &m) != nil || m.From == s.self {
		return
	}
	now := s.now()
	for key, spent := range m.Spent {
		s.rates.addSpent(key, spent.Worth, now)
	}
}
