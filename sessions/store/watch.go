package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// watchIdle is how long a watch goes on without followers: a caller that waits for one session soon waits for
// the next.
const watchIdle = 30 * time.Second

// Watch is the actor that notifies followers of a session when a fact of it was stored, on whatever machine.
// All followers of a process share one consumer of StreamCompletions, without the facts' data, which runs
// only while there are followers. It signals that something may have changed, not what: followers read the
// session.
type Watch struct {
	conn   *natsconf.Conn
	wanted chan struct{} // one place: the first follower has come

	mu        sync.Mutex
	followers map[sessions.ID]map[*Follower]struct{}
	live      chan struct{} // closed while facts are read
}

// Follower is notified when a fact of its session may have been stored.
type Follower struct {
	w       *Watch
	id      sessions.ID
	changed chan struct{} // one place: several facts are one reason to read
}

// NewWatch makes a watch. It reads nothing until served and followed.
func NewWatch(c *natsconf.Conn) *Watch {
	return &Watch{
		conn: c, wanted: make(chan struct{}, 1), followers: map[sessions.ID]map[*Follower]struct{}{},
		live: make(chan struct{}),
	}
}

// String names the actor in the supervisor's log.
func (w *Watch) String() string { return "session watch" }

// Follow begins to follow a session. Every fact that is stored after it has returned is signalled. Facts that
// were stored before are not, so the caller reads the session next. The caller closes the follower. The error
// is natsconf.ErrUnavailable, when ctx ends before facts are read.
func (w *Watch) Follow(ctx context.Context, id sessions.ID) (*Follower, error) {
	f := &Follower{w: w, id: id, changed: make(chan struct{}, 1)}
	w.mu.Lock()
	if w.followers[id] == nil {
		w.followers[id] = map[*Follower]struct{}{}
	}
	w.followers[id][f] = struct{}{}
	live := w.live
	w.mu.Unlock()
	select {
	case w.wanted <- struct{}{}:
	default:
	}
	select {
	case <-live:
		return f, nil
	case <-ctx.Done():
		f.Close()
		return nil, fmt.Errorf("follow session %s: %w: %w", id, natsconf.ErrUnavailable, ctx.Err())
	}
}

// Changed returns a channel that has a value when the session may have changed since it was last read.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Close stops following. Repeating it is harmless.
func (f *Follower) Close() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	delete(f.w.followers[f.id], f)
	if len(f.w.followers[f.id]) == 0 {
		delete(f.w.followers, f.id)
	}
}

// Serve watches, while there are followers, until ctx ends.
func (w *Watch) Serve(ctx context.Context) error {
	for {
		if !w.followed() {
			select {
			case <-w.wanted:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := w.watchOnce(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// watchOnce reads facts until there are no followers, or something may have been missed.
func (w *Watch) watchOnce(ctx context.Context) error {
	back := w.conn.Back() // before the consumer, which a restarted server has forgotten
	consumer, done, err := w.conn.Tail(ctx, topology.StreamCompletions)
	if err != nil {
		return fmt.Errorf("watch sessions: %w", err)
	}
	defer done()
	failed := make(chan struct{}, 1)
	reading, err := consumer.Consume(w.take,
		jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {
			select {
			case failed <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return fmt.Errorf("watch sessions: %w: %w", natsconf.ErrUnavailable, err)
	}
	defer func() { reading.Stop(); <-reading.Closed() }()
	w.up()
	defer w.down()
	idle := time.NewTicker(watchIdle)
	defer idle.Stop()
	for {
		select {
		case <-failed:
			return nil
		case <-back:
			return nil
		case <-idle.C:
			if !w.followed() {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take notifies the followers of the session that a fact is about.
func (w *Watch) take(m jetstream.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	notify(w.followers[facts.OfFact(m.Subject())])
}

func notify(followers map[*Follower]struct{}) {
	for f := range followers {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

// up releases those that wait to follow, and notifies existing followers: between two consumers facts may
// have been missed.
func (w *Watch) up() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.live)
	for _, followers := range w.followers {
		notify(followers)
	}
}

func (w *Watch) down() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = make(chan struct{})
}

func (w *Watch) followed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.followers) > 0
}
