package records

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// coursesPage is how many facts Courses reads at once: a few MiB, and a few hundred deliveries.
const coursesPage = 1024

// Courses are the facts of attempts that were read on the way back through the stream, of sessions whose
// completions have not been read yet: those whose deliveries overlapped.
type Courses map[sessions.ID]*course

// course holds the facts of one delivery, by number of the attempt.
type course struct {
	claims  map[int]*facts.Claim
	results map[int]*facts.Result
	resends map[int]bool
	last    int
	newer   error
}

// Back reads the facts of all sessions, the newest first: a session's other facts are written after its
// completion, so that Take has them when do gets the completion. It leaves out those that are over (isOver),
// and ends when do reports that it is done. Its errors are natsconf.ErrUnavailable, also when ctx ends, and
// do's.
func (open Courses) Back(ctx context.Context, conn *natsconf.Conn,
	do func(sessions.ID, jetstream.Msg) (done bool, err error)) error {
	first, last, err := conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil {
		return err
	}
	for last >= first && last > 0 {
		from := first
		if last-first >= coursesPage {
			from = last - coursesPage + 1
		}
		msgs, err := conn.Range(ctx, topology.StreamCompletions, ">", from, last)
		if err != nil {
			return err
		}
		for _, m := range slices.Backward(msgs) {
			p, ok := facts.ParseSubject(m.Subject())
			switch {
			case !ok:
				continue
			case p.Kind != "completion":
				open.keep(p, m)
				continue
			case isOver(m.Headers(), conn.Clock.Now()):
				delete(open, p.ID)
				continue
			}
			if done, err := do(p.ID, m); done || err != nil {
				return err
			}
		}
		last = from - 1
	}
	return nil
}

// keep keeps a fact of an attempt. One that cannot be read has the meaning that ErrUnreadable defines.
func (open Courses) keep(p facts.Key, m jetstream.Msg) {
	c := open[p.ID]
	if c == nil {
		c = &course{claims: map[int]*facts.Claim{}, results: map[int]*facts.Result{}, resends: map[int]bool{}}
		open[p.ID] = c
	}
	meta, err := m.Metadata()
	if err != nil {
		c.newer = err
		return
	}
	at := natsconf.StoredAt(m.Headers(), meta.Timestamp)
	switch p.Kind {
	case "resend":
		_, err = resendIn(p, m.Data(), at)
		c.resends[p.N] = err == nil
	case "claim":
		c.claims[p.N], err = claimIn(p, m.Data(), at)
	case "result":
		c.results[p.N], err = resultIn(p, m.Data(), at)
	}
	switch {
	case err == nil:
		c.last = max(c.last, p.N)
	case !errors.Is(err, facts.ErrUnreadable):
		c.newer = fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
	}
}

// Take returns the facts that were read of a session, and forgets them. last is the last attempt that a fact
// names which can be read; 0: there is none. Its error is natsconf.ErrNewer, if a newer build has written
// one.
func (open Courses) Take(id sessions.ID) (f facts.AttemptFacts, last int, err error) {
	c := open[id]
	if c == nil {
		c = &course{}
	}
	delete(open, id)
	return facts.AttemptFacts{
		Claim:           func(n int) (*facts.Claim, error) { return c.claims[n], nil },
		Result:          func(n int) (*facts.Result, error) { return c.results[n], nil },
		ResendRequested: func(n int) (bool, error) { return c.resends[n], nil },
	}, c.last, c.newer
}
