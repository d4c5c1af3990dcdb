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
	"verifyd/sessions/target"
)

const (
	// prefetch is how many completions are asked for ahead: enough to keep many destinations busy, few enough to hand back
	// quickly when the process stops.
	prefetch = 512
	// unreadablePause is after how long an unreadable completion is looked at again: it may need a newer build, or the key.
	unreadablePause = time.Minute
)

// fetcher is the actor that pulls what one consumer gives and hands each delivery to its destination.
type fetcher struct {
	d    *Dispatcher
	from natsconf.ConsumerAsset
}

// String names the actor in the supervisor's log.
func (f *fetcher) String() string { return "dispatcher fetcher of " + f.from.Config.Durable }

// Serve pulls until ctx ends. What was pulled and not handed on goes back to JetStream at once.
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
			f.hand(ctx, m)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			// The iterator goes on by itself once the server answers again.
		default:
			return fmt.Errorf("pull from %s: %w", f.from.Config.Durable, err)
		}
	}
}

// consumer looks the consumer up, and makes it where somebody has deleted it: the facts stop what was delivered before.
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

func (f *fetcher) hand(ctx context.Context, m jetstream.Msg) {
	dl, err := f.read(ctx, m)
	if errors.Is(err, natsconf.ErrUnavailable) {
		_ = m.NakWithDelay(troublePause)
		return
	}
	if err != nil {
		f.d.c.Log.Error().Err(err).Msg("a completion cannot be read; it stays and is tried again")
		_ = m.NakWithDelay(unreadablePause)
		return
	}
	if dl.State == sessions.Canceled {
		_ = m.Ack() // the integrator's own act: no callback
		return
	}
	given := 1
	if meta, err := m.Metadata(); err == nil {
		given = int(min(meta.NumDelivered, 1<<20))
	}
	dl.msg, dl.given = m, given
	dl.first = given == 1 && dl.tries == 0 && dl.asked == 0
	dl.tries += given
	dl.target, dl.refused = f.d.c.Policy.Parse(dl.CallbackURL)
	f.d.destinations.hand(ctx, dl)
}

// read makes the delivery of a completion, of somebody's wish to have one sent again, or of one whose next try has come due.
func (f *fetcher) read(ctx context.Context, m jetstream.Msg) (*delivery, error) {
	switch kind, _, _ := strings.Cut(m.Subject(), "."); kind {
	case "completion":
		c, err := f.d.c.Sessions.DecodeCompletion(m.Subject(), m.Data())
		return &delivery{Completion: c, due: c.CompletedAt}, err
	case "resend":
		r, err := f.d.c.Sessions.DecodeResend(m.Subject(), m.Data())
		if err != nil {
			return nil, err
		}
		c, err := f.d.c.Sessions.Completion(ctx, r.Session)
		return &delivery{Completion: c, due: r.At, asked: r.Number}, err
	case "retry":
		r, err := f.d.c.Sessions.DecodeRetry(m.Subject(), m.Data())
		if err != nil {
			return nil, err
		}
		c, err := f.d.c.Sessions.Completion(ctx, r.Session)
		return &delivery{Completion: c, due: r.Since, asked: r.Asked, tries: r.Tries}, err
	default:
		return nil, fmt.Errorf("a message on subject %q: no such kind", m.Subject())
	}
}

// delivery is one completion on its way through a destination.
type delivery struct {
	sessions.Completion
	msg     jetstream.Msg
	given   int        // how often JetStream gave this message out
	first   bool       // nobody can have tried it before
	target  target.URL // its callback URL
	refused error      // why the callback URL is refused: the operator's policy has changed since the session was started

	tries int       // how often a dispatcher took it up, this time included
	due   time.Time // since when it is to be sent: its completion, or the wish to send it again
	asked int       // the attempt that somebody asked for; 0: the delivery of the completion itself
}

// host gives the host and port of the callback. A URL that is refused has none: such deliveries share one actor. Tests have an actor
// beside that of live callbacks: whoever listens with a test key and answers nothing holds up tests alone.
func (dl *delivery) host() string {
	switch {
	case dl.refused != nil:
		return "refused"
	case dl.Test:
		return dl.target.HostPort() + " (tests)"
	}
	return dl.target.HostPort()
}
