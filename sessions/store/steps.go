package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
)

const (
	// stepLanes is how many steps are stored at once. On a cluster an acknowledgement takes some two
	// milliseconds: thousands of steps a second, and a session has four.
	stepLanes = 8
	// stepRoom is how many steps wait in each lane; a step beyond that is on the timeline but not counted.
	stepRoom = 512
	// stepWithin bounds the wait for one acknowledgement.
	stepWithin = 5 * time.Second
	// stepDrain bounds the storing of the steps that still wait at a stop.
	stepDrain = 5 * time.Second
)

// Steps is the actor that stores the steps of users, and counts the first of each kind of a session.
// StreamEvents decides which one is the first: it accepts a message that expects its subject to be empty
// once, whichever edges send it. So no process keeps anything of a session, and a page that is loaded again
// elsewhere counts nothing.
type Steps struct {
	conn   *natsconf.Conn
	events *natsconf.Writer
	lanes  [stepLanes]chan step
}

// step is one step on its way.
type step struct {
	msg   *nats.Msg
	id    sessions.ID
	count func() // counts it if it is the first; nil: only the timeline has it
}

// NewSteps returns the actor on a writer of StreamEvents. It stores nothing until served.
func NewSteps(conn *natsconf.Conn, events *natsconf.Writer) *Steps {
	s := &Steps{conn: conn, events: events}
	for i := range s.lanes {
		s.lanes[i] = make(chan step, stepRoom)
	}
	return s
}

// String names the actor in the supervisor's log.
func (s *Steps) String() string { return "steps" }

// enqueue puts a step into its session's lane, where steps keep their order; false: the lane is full.
func (s *Steps) enqueue(p step) bool {
	select {
	case s.lanes[int(p.id[0])%stepLanes] <- p:
		return true
	default:
		return false
	}
}

// Serve stores steps until ctx ends, and then those that still wait.
func (s *Steps) Serve(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, lane := range s.lanes {
		wg.Go(func() { s.serveLane(ctx, lane) })
	}
	wg.Wait()
	return ctx.Err()
}

func (s *Steps) serveLane(ctx context.Context, lane <-chan step) {
	for {
		select {
		case p := <-lane:
			s.store(context.WithoutCancel(ctx), p)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepDrain)
			defer cancel()
			for {
				select {
				case p := <-lane:
					s.store(last, p)
				default:
					return
				}
			}
		}
	}
}

// store puts a step on the timeline. A step that is not known to be the first is not counted.
func (s *Steps) store(ctx context.Context, p step) {
	if p.count == nil {
		s.conn.EmitMsg(p.msg)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	p.msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	ack, err := s.events.Publish(ctx, p.msg)
	switch {
	case err == nil && !ack.Duplicate:
		p.count()
	case errors.Is(err, natsconf.ErrConflict): // not the first
		again := &nats.Msg{Subject: p.msg.Subject, Data: p.msg.Data, Header: nats.Header{}}
		if id := p.msg.Header.Get(jetstream.MsgIDHeader); id != "" {
			again.Header.Set(jetstream.MsgIDHeader, id)
		}
		s.conn.EmitMsg(again)
	}
}
