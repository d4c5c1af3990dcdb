package bench

import (
	"context"
	"fmt"
	"time"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/natsconf/topology"
)

// publishes are the shapes of raw publishing.
var publishes = []struct {
	variant string
	clients int
	batch   int
}{
	{"singly", 64, 0},
	{"batches of 32", 1, 32},
	{"batches of 128", 1, 128},
	{"batches of 128", 4, 128}, // the gain of several concurrent batches
}

const (
	// completeClients is the number of concurrent callers.
	completeClients = 64
	// completionsPerSecond is more than any store with synced writes accepts: so many sessions a second are
	// started ahead.
	completionsPerSecond = 15_000
)

// writes measures Complete in turns with raw publishes.
func (b *bench) writes(ctx context.Context) error {
	for run := range b.o.Runs {
		ceiling, err := b.publishOnce(ctx, run)
		if err != nil {
			return err
		}
		if !b.o.wants(rowComplete) {
			continue
		}
		if err := b.completeOnce(ctx, run, ceiling); err != nil {
			return err
		}
	}
	return nil
}

// publishOnce returns the fastest shape of one publisher, which is the limit for a writer.
func (b *bench) publishOnce(ctx context.Context, run int) (*report.Sample, error) {
	p, err := b.o.startChild(ctx, child.Publish, child.Config{Store: b.childStore()})
	if err != nil {
		return nil, err
	}
	defer p.End()
	var fastest *report.Sample
	for _, how := range publishes {
		b.announce(run, "publish %s, c = %d", how.variant, how.clients)
		o := child.Order{Clients: how.clients, Batch: how.batch, Duration: b.o.warmUp()}
		if err := p.Do(ctx, o); err != nil {
			return nil, err
		}
		o.Duration = b.o.Duration
		s, err := p.Measured(ctx, o)
		if err != nil {
			return nil, err
		}
		s.Row, s.Variant = rowPublish, how.variant
		b.add(ctx, s)
		if how.clients == 1 && (fastest == nil || s.Rate() > fastest.Rate()) {
			fastest = &s
		}
	}
	return fastest, nil
}

func (b *bench) completeOnce(ctx context.Context, run int, ceiling *report.Sample) error {
	b.announce(run, "complete, starting sessions")
	c, err := b.o.startChild(ctx, child.Complete, child.Config{Store: b.childStore()})
	if err != nil {
		return err
	}
	defer c.End()
	n := completeClients + int(completionsPerSecond*(b.o.Duration+b.o.warmUp()).Seconds())
	if err := c.Do(ctx, child.Order{Prepare: n}); err != nil {
		return err
	}
	b.announce(run, "complete, c = %d", completeClients)
	if err := c.Do(ctx, child.Order{Clients: completeClients, Duration: b.o.warmUp()}); err != nil {
		return err
	}
	s, err := c.Measured(ctx, child.Order{Clients: completeClients, Duration: b.o.Duration})
	if err != nil {
		return err
	}
	s.Row, s.Ceiling = rowComplete, ceiling
	b.add(ctx, s)
	return external{b.o}.wipe(ctx)
}

// idleFor is when an idle service's memory is read: the garbage of its start is collected by then.
const idleFor = time.Second

// idle measures a service that has nothing to do: how soon it is ready on an empty folder and on its own
// store, and its memory.
func (b *bench) idle(ctx context.Context, run int, _ *load.Receiver) error {
	b.announce(run, "idle")
	s, end, err := b.freshService(ctx, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	got := report.Sample{Row: rowIdle, CPU: -1}
	got.Note("first_ready_ms", report.Milliseconds(s.ready))
	s.disconnect()
	s.Stop()
	if err := s.start(ctx, rolesBoth); err != nil {
		return err
	}
	got.Note("ready_ms", report.Milliseconds(s.ready))
	select {
	case <-time.After(min(idleFor, b.o.Duration)):
	case <-ctx.Done():
		return ctx.Err()
	}
	if resident := s.Resident(); resident > 0 {
		got.Note("resident_mb", float64(resident)/1e6)
	}
	got.Peak = s.Peak()
	b.add(ctx, got)
	return nil
}

const (
	// pendingSessions is how many are started for the row million, in tenths with a rate each.
	pendingSessions = 1_000_000
	tenths          = 10
	millionClients  = 256
)

// million starts a million sessions, then kills the service and starts it again.
func (b *bench) million(ctx context.Context) error {
	r, err := b.outside.receiver(1)
	if err != nil {
		return err
	}
	defer r.Close()
	b.progress.Step("million, starting the service")
	s, end, err := b.freshService(ctx, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	u := s.Measure()
	got := b.startPending(ctx, s, r)
	enter(&got, u)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	pending, err := s.messages(ctx, topology.BucketStream(topology.BucketSessions))
	if err != nil {
		return err
	}
	got.Note("pending", float64(pending))
	got.Note("resident_mb", float64(s.Resident())/1e6)
	got.Note("disk_mb", float64(s.diskBytes())/1e6)
	b.progress.Step("million, killed and started again")
	s.disconnect()
	s.Kill()
	if err := s.start(ctx, rolesBoth); err != nil {
		return err
	}
	got.Note("ready_after_kill_ms", report.Milliseconds(s.ready))
	got.Note("peak_after_kill_mb", float64(s.Peak())/1e6)
	b.add(ctx, got)
	return nil
}

// startPending starts the sessions and notes the rate of each tenth.
func (b *bench) startPending(ctx context.Context, s *service, r *load.Receiver) report.Sample {
	l := load.NewInits(millionClients, s.listen, s.initRequest(r.URL(0)))
	defer l.Close()
	var parts [tenths]load.Result
	var begun int64
	for tenth := range parts {
		b.progress.Step(fmt.Sprintf("million, tenth %d, so far %d sessions", tenth+1, begun))
		parts[tenth] = load.ClosedNumber(ctx, b.o.scaled(pendingSessions)/tenths, l.Steps)
		begun += parts[tenth].Ops()
	}
	got := loadSample(rowMillion, "", millionClients, load.Join(parts[:]))
	for tenth, part := range parts {
		got.Note(fmt.Sprintf("%s%02d_per_s", report.DocumentOnly, tenth+1), part.Rate())
	}
	got.Note("last_tenth_share_of_first", parts[tenths-1].Rate()/max(parts[0].Rate(), 1))
	return got
}
