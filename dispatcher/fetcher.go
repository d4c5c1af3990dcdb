package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
)

const (
	// prefetch is how many completions are asked for ahead: enough to keep many destinations busy, few enough to hand back
	// quickly when the process stops.
	prefetch = 512
	// progressEvery keeps held completions from being given to another dispatcher: three words in each AckWait.
	progressEvery = natsconf.AckWait / 3
	// unreadablePause is after how long an unreadable completion is looked at again: it may need a newer build, or the key.
	unreadablePause = time.Minute
	// fullPause is after how long a completion comes again whose destination had no room.
	fullPause = 2 * time.Second
)

// fetcher is the actor that pulls completions and hands each to its destination.
type fetcher struct{ d *Dispatcher }

func (f *fetcher) String() string { return "dispatcher fetcher" }

// Serve pulls until ctx ends. What was pulled and not handed on goes back to JetStream at once.
func (f *fetcher) Serve(ctx context.Context) error {
	consumer, err := f.consumer(ctx)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(prefetch))
	if err != nil {
		return fmt.Errorf("pull completions: %w", err)
	}
	stop := context.AfterFunc(ctx, messages.Drain)
	defer stop()
	defer messages.Stop()
	ticking := f.d.destinations.held.startProgress()
	defer ticking.stop()
	for {
		m, err := messages.Next()
		switch {
		case err == nil && ctx.Err() != nil:
			_ = m.Nak()
		case err == nil:
			f.hand(ctx, m)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			// The iterator goes on by itself once the server answers again.
		default:
			return fmt.Errorf("pull completions: %w", err)
		}
	}
}

// consumer looks the consumer up, and makes it where somebody has deleted it: the facts stop what was delivered before.
func (f *fetcher) consumer(ctx context.Context) (jetstream.Consumer, error) {
	js := f.d.c.Conn.JS
	consumer, err := js.Consumer(ctx, natsconf.StreamCompletions, natsconf.ConsumerDispatcher)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err := natsconf.EnsureConsumer(ctx, js, natsconf.DispatcherConsumer()); err != nil {
			return nil, err
		}
		consumer, err = js.Consumer(ctx, natsconf.StreamCompletions, natsconf.ConsumerDispatcher)
	}
	if err != nil {
		return nil, fmt.Errorf("look up consumer: %w", err)
	}
	return consumer, nil
}

func (f *fetcher) hand(ctx context.Context, m jetstream.Msg) {
	dl, err := f.read(ctx, m)
	if err != nil {
		f.d.c.Log.Error().Err(err).Msg("a completion cannot be read; it stays and is tried again")
		_ = m.NakWithDelay(unreadablePause)
		return
	}
	if dl.State == sessions.Canceled {
		_ = m.Ack() // the integrator's own act: no callback
		return
	}
	tries := 1
	if meta, err := m.Metadata(); err == nil {
		tries = int(min(meta.NumDelivered, 1<<20))
	}
	dl.msg, dl.tries = m, tries
	f.d.destinations.hand(dl)
}

// read makes the delivery of a completion, or of somebody's wish to have one sent again.
func (f *fetcher) read(ctx context.Context, m jetstream.Msg) (*delivery, error) {
	if !strings.HasPrefix(m.Subject(), "resend.") {
		c, err := f.d.c.Sessions.DecodeCompletion(m.Subject(), m.Data())
		return &delivery{Completion: c, due: c.CompletedAt}, err
	}
	r, err := f.d.c.Sessions.DecodeResend(m.Subject(), m.Data())
	if err != nil {
		return nil, err
	}
	c, err := f.d.c.Sessions.Completion(ctx, r.Session)
	return &delivery{Completion: c, due: r.At, asked: r.Number}, err
}

// delivery is one completion on its way through a destination.
type delivery struct {
	sessions.Completion
	msg   jetstream.Msg
	tries int       // how often JetStream gave it out, from 1
	due   time.Time // since when it is to be sent: its completion, or the wish to send it again
	asked int       // the attempt that somebody asked for; 0: the delivery of the completion itself
}

// ledger knows the deliveries that this process holds, so that they stay ours and none is worked on twice.
type ledger struct {
	mu   sync.Mutex
	held map[sessions.ID]*delivery
}

// take enters a delivery. It refuses one that is held already: a redelivery that crossed with our own work.
func (l *ledger) take(dl *delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[dl.ID]; ok {
		return false
	}
	l.held[dl.ID] = dl
	return true
}

func (l *ledger) drop(id sessions.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
}

// progressOnce says "still at it" for all that is held. It holds the lock: a word that came after the message was handed back
// would turn its delay into a whole AckWait.
func (l *ledger) progressOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dl := range l.held {
		_ = dl.msg.InProgress()
	}
}

// progress is a running loop that says "still at it" for all that is held.
type progress struct{ stop func() }

func (l *ledger) startProgress() progress {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.progressOnce()
			case <-ctx.Done():
				return
			}
		}
	}()
	return progress{stop: func() { cancel(); <-done }}
}
