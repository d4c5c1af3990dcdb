package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
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

// Serve pulls until ctx ends. A consumer that was deleted starts from the beginning: the facts stop what was
// delivered before.
func (f *fetcher) Serve(ctx context.Context) error {
	return f.d.c.Conn.Pull(ctx, f.from, prefetch, func(m jetstream.Msg) {
		f.d.claims.Wait(ctx)
		f.dispatch(ctx, m)
	})
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
		f.d.c.Log.Error().Err(err).Str("sid", string(facts.OfFact(m.Subject()))).
			Msg("a delivery cannot be read; it stays and is tried again")
		_ = m.NakWithDelay(f.d.c.UnreadablePause) // from a newer build, whose dispatchers may take it
	// canceled, or closed without an outcome
	case dl.State != sessions.Verified && dl.State != sessions.Failed:
		_ = m.Ack() // the integrator's own act: no callback
	default:
		dl.msg, dl.given = m, given
		dl.first = dl.first && given == 1
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

// read makes a delivery from a completion, from a request to send one again, or from one whose next try has
// come due.
func (f *fetcher) read(ctx context.Context, m jetstream.Msg) (*delivery, error) {
	switch kind, _, _ := strings.Cut(m.Subject(), "."); kind {
	case "completion":
		c, err := f.d.c.Sessions.DecodeCompletion(ctx, m.Subject(), m.Headers(), m.Data())
		return &delivery{Completion: c, due: c.CompletedAt, first: true}, err
	case "resend":
		r, err := f.d.c.Sessions.DecodeResend(m.Subject(), m.Data())
		if err != nil {
			return nil, err
		}
		c, err := f.d.c.Sessions.Completion(ctx, r.Session)
		return &delivery{Completion: c, due: r.At, requested: r.Number}, err
	case "retry":
		r, err := f.d.c.Sessions.DecodeRetry(m.Subject(), m.Data())
		if errors.Is(err, facts.ErrUnreadable) && r.Session != "" { // the subject is hint enough
			_ = f.d.c.Sessions.CheckUnreadable(m, err)
			err = nil
		}
		if err != nil {
			return nil, err
		}
		c, err := f.d.c.Sessions.Completion(ctx, r.Session)
		if r.Since.IsZero() {
			r.Since = c.CompletedAt
		}
		return &delivery{Completion: c, due: r.Since, tries: r.Tries}, err
	default:
		return nil, fmt.Errorf("a message on subject %q: no such kind", m.Subject())
	}
}

// dispose is the only place that acknowledges. Acknowledgements are hints: the facts decide what a redelivery
// leads to. A long wait becomes a message schedule, so that the consumer need not carry it; if the schedule
// cannot be stored, the consumer carries it.
func (d *shared) dispose(dl *delivery, f disposition) {
	scheduled := f.schedules(d.c.ScheduleFrom) && d.schedule(dl, f.after)
	if !f.acknowledges(scheduled) {
		_ = dl.msg.NakWithDelay(max(f.after, time.Millisecond))
		return
	}
	crashpoint.Reach(crashpoint.BeforeAck)
	_ = dl.msg.Ack()
	crashpoint.Reach(crashpoint.AfterAck)
}

func (d *shared) schedule(dl *delivery, after time.Duration) (stored bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scheduleWait)
	defer cancel()
	err := d.c.Sessions.Schedule(ctx, facts.Retry{
		Session: dl.ID, RequestedAttempt: dl.requested, Tries: dl.tries, Since: dl.due,
		At: d.c.Now().Add(after),
	})
	if err != nil {
		d.c.Log.Warn().Err(err).Str("sid", string(dl.ID)).Msg("a delivery waits with its consumer")
	}
	return err == nil
}
