package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// A process that cannot learn whether its claims were stored remembers that it sent nothing under them,
// however many others follow and however late it checks again: otherwise their end would be called unknown.
func TestUnconfirmedClaimsAreRemembered(t *testing.T) {
	t.Parallel()
	l := &unconfirmedClaims{}
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	claim := func(id sessions.ID, after time.Duration) facts.Claim {
		at := start.Add(after)
		return facts.Claim{Session: id, Number: 1, At: at, SettleAfter: at.Add(20 * time.Second)}
	}
	first := claim("first", 0)
	l.add(first)
	l.add(claim("second", 50*time.Minute))
	l.add(claim("third", 100*time.Minute))
	if !l.has("first", 1) || !l.has("second", 1) || !l.has("third", 1) {
		t.Error("a claim that was made in vain is forgotten while it may be looked at")
	}
	if l.has("first", 2) || l.has("fourth", 1) {
		t.Error("an attempt that was never claimed counts as claimed in vain")
	}
	l.drop(first)
	if l.has("first", 1) {
		t.Error("an attempt under which something may be sent counts as made in vain")
	}
	l.add(claim("fifth", 4*time.Hour))
	l.add(claim("sixth", 6*time.Hour))
	if l.has("second", 1) {
		t.Error("claims are kept without an end")
	}
}

// heldMsg is a message that records when its progress is reported.
type heldMsg struct {
	jetstream.Msg
	reported []time.Time
}

func (m *heldMsg) InProgress() error {
	m.reported = append(m.reported, time.Now())
	return nil
}

// Each held message gets its progress in time, and none once it was returned; and messages that arrived
// together are not reported together, since attempts share the connection.
func TestProgressIsSpread(t *testing.T) {
	const n = 2000
	synctest.Test(t, func(t *testing.T) {
		l := newHeldSet(newMetrics(nil).held)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- l.Serve(ctx) }()
		began := time.Now()
		msgs := make([]*heldMsg, n)
		id := func(i int) sessions.ID { return sessions.ID(fmt.Sprintf("session-%d", i)) }
		account := func(i int) string { return fmt.Sprintf("acc_%d", i%10) }
		for i := range msgs {
			msgs[i] = &heldMsg{}
			if held, room := l.add(id(i), account(i), msgs[i]); held || !room {
				t.Fatalf("the set does not take delivery %d", i)
			}
		}
		time.Sleep(2*progressEvery + progressEvery/2) // of the bubble: it costs no time
		for i := range n / 2 {
			l.remove(id(i), account(i))
		}
		removed := time.Now()
		time.Sleep(2 * progressEvery) // the same
		stop()
		<-served
		at := map[time.Time]int{}
		for i, m := range msgs {
			last, until := began, time.Now()
			if i < n/2 {
				until = removed
			}
			for _, r := range m.reported {
				if r.After(until) {
					t.Fatal("progress of a message that was handed back")
				}
				if r.Sub(last) > progressEvery {
					t.Fatalf("no progress of a held message for %s", r.Sub(last))
				}
				last = r
				at[r]++
			}
			if until.Sub(last) > progressEvery {
				t.Fatalf("no progress of a held message for %s", until.Sub(last))
			}
		}
		for when, n := range at {
			if n > len(msgs)/20 {
				t.Errorf("%d of %d messages are reported at once, %s after they came", n, len(msgs),
					when.Sub(began))
			}
		}
		if l.count() != n/2 {
			t.Errorf("%d are held", l.count())
		}
	})
}
