package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/urlpolicy"
)

const (
	// prefetch is how many completions are asked for ahead: enough to keep many destinations busy, few
	// enough to hand back quickly when the process stops.
	prefetch = 512
	// unreadableTries is how often a message that no build has written is tried before it is terminated.
	// What is stored does not change; the tries are for a fault of this process's own.
	unreadableTries = 3
)

// fetcher is the actor that pulls from one consumer and hands each delivery to its destination.
type fetcher struct {
	d    *Dispatcher
	from natsconf.ConsumerAsset
}

// String names the actor in the supervisor's log.
func (f *fetcher) String() string { return "dispatcher fetcher of " + f.from.Config.Durable }

// Serve pulls until ctx ends. What was pulled and not passed on goes back to JetStream at once.
func (f *fetcher) Serve(ctx context.Context) error {
	consumer, err := f.consumer(ctx)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(prefetch))
	if err != nil {
		return fmt.Errorf("pull from %s: %w", f.from.Config.Durable, err)
	}
	stop := context.AfterFunc(ctx, messages.Drain)
	defer stop()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		switch {
		case err == nil && ctx.Err() != nil:
			_ = m.Nak()
		case err == nil:
			f.d.claims.wait(ctx)
			f.dispatch(ctx, m)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			// The iterator goes on by itself once the server answers again.
		default:
			return fmt.Errorf("pull from %s: %w", f.from.Config.Durable, err)
		}
	}
}

// consumer looks the consumer up, and makes it where somebody has deleted it: the facts stop what was
// delivered before.
func (f *fetcher) consumer(ctx context.Context) (jetstream.Consumer, error) {
	js := f.d.c.Conn.JS
	consumer, err := js.Consumer(ctx, f.from.Stream, f.from.Config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err := natsconf.EnsureConsumer(ctx, js, f.from); err != nil {
			return nil, err
		}
		consumer, err = js.Consumer(ctx, f.from.Stream, f.from.Config.Durable)
	}
	if err != nil {
		return nil, fmt.Errorf("look up consumer %s: %w", f.from.Config.Durable, err)
	}
	return consumer, nil
}

func (f *fetcher) dispatch(ctx context.Context, m jetstream.Msg) {
	dl, err := f.read(ctx, m)
	if errors.Is(err, natsconf.ErrUnavailable) {
		_ = m.NakWithDelay(failurePause)
		return
	}
	if errors.Is(err, sessions.ErrNotFound) {
		f.dropStale(m)
		return
	}
	if errors.Is(err, sessions.ErrUnreadable) {
		f.terminate(m, err)
		return
	}
	if err != nil {
		f.d.c.Log.Error().Err(err).Str("sid", sidOf(m.Subject())).
			Msg("a delivery cannot be read; it stays and is tried again")
		_ = m.NakWithDelay(f.d.c.UnreadablePause) // a newer build's: one of its dispatchers may take it
		return
	}
	// canceled, or closed without an outcome
	if dl.State != sessions.Verified && dl.State != sessions.Failed {
		_ = m.Ack() // the integrator's own act: no callback
		return
	}
	given := 1
	if meta, err := m.Metadata(); err == nil {
		given = int(min(meta.NumDelivered, 1<<20))
	}
	dl.msg, dl.given = m, given
	dl.first = given == 1 && dl.tries == 0 && dl.requested == 0
	dl.tries += given
	dl.target, dl.refused = f.d.c.Policy.Parse(dl.CallbackURL)
	dl.outlasted = f.d.outlasted(dl)
	f.d.destinations.enqueue(ctx, dl)
}

// dropStale drops a resend request or a next try whose outcome has aged out, or whose user was erased. It
// tries twice.
func (f *fetcher) dropStale(m jetstream.Msg) {
	if meta, err := m.Metadata(); err == nil && meta.NumDelivered > 1 {
		_ = m.Ack()
		return
	}
	_ = m.NakWithDelay(failurePause)
}

// terminate reports a message that nobody can read and, after a few tries, terminates it: there is nothing
// to deliver (sessions.ErrUnreadable).
func (f *fetcher) terminate(m jetstream.Msg, err error) {
	_ = f.d.c.Sessions.CheckUnreadable(m, err)
	if meta, err := m.Metadata(); err == nil && meta.NumDelivered < unreadableTries {
		_ = m.NakWithDelay(f.d.c.UnreadablePause)
		return
	}
	_ = m.TermWithReason("it cannot be read")
}

// sidOf returns the session that a message is about: the second word of every subject here.
func sidOf(subject string) string { return string(sessions.OfFact(subject)) }

// read makes the delivery of a completion, of a request to send one again, or of one whose next try has come
// due.
func (f *fetcher) read(ctx context.Context, m jetstream.Msg) (*delivery, error) {
	switch kind, _, _ := strings.Cut(m.Subject(), "."); kind {
	case "completion":
		c, err := f.d.c.Sessions.DecodeCompletion(ctx, m.Subject(), m.Headers(), m.Data())
		return &delivery{Completion: c, due: c.CompletedAt}, err
	case "resend":
		r, err := f.d.c.Sessions.DecodeResend(m.Subject(), m.Data())
		if err != nil {
			return nil, err
		}
		c, err := f.d.c.Sessions.Completion(ctx, r.Session)
		return &delivery{Completion: c, due: r.At, requested: r.Number}, err
	case "retry":
		r, err := f.d.c.Sessions.DecodeRetry(m.Subject(), m.Data())
		if errors.Is(err, sessions.ErrUnreadable) && r.Session != "" {
			_, err = f.d.c.Sessions.CheckUnreadable(m, err), nil // the subject is hint enough
		}
		if err != nil {
			return nil, err
		}
		c, err := f.d.c.Sessions.Completion(ctx, r.Session)
		if r.Since.IsZero() {
			r.Since = c.CompletedAt
		}
		return &delivery{Completion: c, due: r.Since, requested: r.RequestedAttempt, tries: r.Tries}, err
	default:
		return nil, fmt.Errorf("a message on subject %q: no such kind", m.Subject())
	}
}

// delivery is one completion on its way through a destination.
type delivery struct {
	sessions.Completion
	msg    jetstream.Msg
	given  int           // how often JetStream delivered this message
	first  bool          // nobody can have tried it before
	target urlpolicy.URL // its callback URL
	// why the callback URL is refused: the operator's policy has changed since the session was started
	refused error
	// outlasted: its host is paused, and its outcome leaves the store before the pause ends. Nobody is
	// dialled.
	outlasted bool

	tries     int       // how often a dispatcher tried it, this time included
	due       time.Time // since when it is to be sent: its completion, or the request to send it again
	requested int       // the attempt that somebody asked for; 0: the delivery of the completion itself
}

// receiver returns the host and port that it goes to; empty where it goes to nobody.
func (dl *delivery) receiver() string {
	if dl.refused != nil || dl.outlasted {
		return ""
	}
	return dl.target.HostPort()
}

// host returns the host and port of the callback. A URL that is refused has none, and one that a pause has
// outlasted needs none: such deliveries share one actor. Tests have an actor beside that of live callbacks:
// whoever listens with a test key and answers nothing holds up tests alone.
func (dl *delivery) host() string {
	switch {
	case dl.refused != nil || dl.outlasted:
		return "refused"
	case dl.Test:
		return dl.receiver() + " (tests)"
	}
	return dl.receiver()
}
