package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

const (
	// prefetch is how many completions are requested ahead: enough to keep many destinations busy, few enough
	// to hand back quickly when the process stops.
	prefetch = 512
	// unreadableTries is how often a message that no build has written is tried before it is terminated. A
	// stored message does not change; the tries are for a fault of this process itself.
	unreadableTries = 3
)

// fetcher is the actor that pulls from one consumer and hands each delivery to its destination.
type fetcher struct {
	d            *shared
	destinations *registry
	from         topology.Consumer
}

// String names the actor in the supervisor's log.
func (f *fetcher) String() string { return "dispatcher fetcher of " + f.from.Config.Durable }

// Serve pulls until ctx ends. Messages that were pulled and not passed on go back to JetStream at once.
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
			f.d.claims.Wait(ctx)
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

// consumer looks the consumer up, and creates it if somebody has deleted it: the facts stop what was
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
	given := 1
	if meta, err := m.Metadata(); err == nil {
		given = int(min(meta.NumDelivered, 1<<20))
	}
	dl, err := f.read(ctx, m)
	switch {
	case errors.Is(err, natsconf.ErrUnavailable):
		_ = m.NakWithDelay(failurePause)
	case errors.Is(err, sessions.ErrNotFound):
		f.dropStale(m, given)
	case errors.Is(err, facts.ErrUnreadable):
		f.terminate(m, given, err)
	case err != nil:
		f.d.c.Log.Error().Err(err).Str("sid", sidOf(m.Subject())).
			Msg("a delivery cannot be read; it stays and is tried again")
		_ = m.NakWithDelay(f.d.c.UnreadablePause) // from a newer build, whose dispatchers may take it
	// canceled, or closed without an outcome
	case dl.State != sessions.Verified && dl.State != sessions.Failed:
		_ = m.Ack() // the integrator's own act: no callback
	default:
		dl.msg, dl.given = m, given
		dl.first = given == 1 && dl.tries == 0 && dl.requested == 0
		dl.tries += given
		if dl.target, err = f.d.c.Policy.Parse(dl.CallbackURL); err != nil {
			dl.barred = &callback.NotSent{Class: failure.RefusedAddress, Detail: err.Error(), Err: err}
		} else if f.d.outlasted(dl) {
			dl.barred = notSentForPause()
		}
		f.destinations.enqueue(ctx, dl)
	}
}

// dropStale drops a resend request or a next try whose outcome has aged out, or whose user was erased. It
// tries twice.
func (f *fetcher) dropStale(m jetstream.Msg, given int) {
	if given > 1 {
		_ = m.Ack()
		return
	}
	_ = m.NakWithDelay(failurePause)
}

// terminate reports a message that cannot be read and, after a few tries, terminates it: there is nothing to
// deliver (facts.ErrUnreadable).
func (f *fetcher) terminate(m jetstream.Msg, given int, err error) {
	_ = f.d.c.Sessions.CheckUnreadable(m, err)
	if given < unreadableTries {
		_ = m.NakWithDelay(f.d.c.UnreadablePause)
		return
	}
	_ = m.TermWithReason("it cannot be read")
}

// sidOf returns the session that a message is about: the second word of every subject here.
func sidOf(subject string) string { return string(facts.OfFact(subject)) }

// read makes a delivery from a completion, from a request to send one again, or from one whose next try has
// come due.
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
		if errors.Is(err, facts.ErrUnreadable) && r.Session != "" {
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
