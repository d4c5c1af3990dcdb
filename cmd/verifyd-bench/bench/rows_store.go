package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	{"batches of 128", 4, 128}, // what more than one batch under way brings
}

const (
	// completeClients is how many callers complete at once.
	completeClients = 64
	// completionsPerSecond is more than any store takes that syncs: so many sessions a second are started
	// ahead.
	completionsPerSecond = 15_000
)

// writes measures Complete beside raw publishes.
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

// publishOnce returns the fastest of one publisher, which is what a writer could be at most.
func (b *bench) publishOnce(ctx context.Context, run int) (*sample, error) {
	p, err := b.o.startChild(ctx, kindPublish, childConfig{Store: b.childStore()})
	if err != nil {
		return nil, err
	}
	defer p.end()
	var fastest *sample
	for _, how := range publishes {
		b.announce(run, "publish %s, c = %d", how.variant, how.clients)
		o := order{Clients: how.clients, Batch: how.batch, Duration: b.o.Duration}
		if _, err := p.tell(ctx, order{
			Clients: how.clients, Batch: how.batch, Duration: b.o.warmUp(),
		}); err != nil {
			return nil, err
		}
		s, err := p.measured(ctx, o)
		if err != nil {
			return nil, err
		}
		s.row, s.variant = rowPublish, how.variant
		b.add(ctx, s)
		if how.clients == 1 && (fastest == nil || s.rate() > fastest.rate()) {
			fastest = &s
		}
	}
	return fastest, nil
}

func (b *bench) completeOnce(ctx context.Context, run int, ceiling *sample) error {
	b.announce(run, "complete, starting sessions")
	c, err := b.o.startChild(ctx, kindComplete, childConfig{Store: b.childStore()})
	if err != nil {
		return err
	}
	defer c.end()
	n := completeClients + int(completionsPerSecond*(b.o.Duration+b.o.warmUp()).Seconds())
	if _, err := c.tell(ctx, order{Prepare: n}); err != nil {
		return err
	}
	b.announce(run, "complete, c = %d", completeClients)
	if _, err := c.tell(ctx, order{Clients: completeClients, Duration: b.o.warmUp()}); err != nil {
		return err
	}
	s, err := c.measured(ctx, order{Clients: completeClients, Duration: b.o.Duration})
	if err != nil {
		return err
	}
	s.row, s.ceiling = rowComplete, ceiling
	b.add(ctx, s)
	return external{b.o}.wipe(ctx)
}

// idle measures a service that has nothing to do: how soon it is ready on an empty folder and on its own
// store, and its memory.
func (b *bench) idle(ctx context.Context) error {
	r, err := newReceiver(1)
	if err != nil {
		return err
	}
	defer r.close()
	for run := range b.o.Runs {
		if err := b.idleOnce(ctx, run, r); err != nil {
			return err
		}
	}
	return nil
}

// idleFor is when an idle service's memory is read: what its start took is collected by then.
const idleFor = time.Second

func (b *bench) idleOnce(ctx context.Context, run int, r *receiver) error {
	b.announce(run, "idle")
	s, end, err := b.freshService(ctx, r, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	got := sample{row: rowIdle, cpu: -1}
	got.note("first_ready_ms", milliseconds(s.ready))
	s.disconnect()
	s.stop()
	if err := s.start(ctx, rolesBoth); err != nil {
		return err
	}
	got.note("ready_ms", milliseconds(s.ready))
	select {
	case <-time.After(min(idleFor, b.o.Duration)):
	case <-ctx.Done():
		return ctx.Err()
	}
	if resident := s.memory(residentNow); resident > 0 {
		got.note("resident_mb", float64(resident)/1e6)
	}
	got.peak = s.memory(residentPeak)
	b.add(ctx, got)
	return nil
}

const (
	// pendingSessions is how many are started for the row million, in tenths whose rates are told.
	pendingSessions = 1_000_000
	tenths          = 10
	millionClients  = 256
	// tenthNote begins the names of the tenths' rates, which are for the document: the table has no room for
	// them.
	tenthNote = "tenth_"
)

// million starts a million sessions, then kills the service and starts it again.
func (b *bench) million(ctx context.Context) error {
	r, err := newReceiver(1)
	if err != nil {
		return err
	}
	defer r.close()
	b.progress.step("million, starting the service")
	s, end, err := b.freshService(ctx, r, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	u := s.measure()
	got := b.startPending(ctx, s, r)
	u.into(&got)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	pending, err := s.messages(ctx, topology.BucketStream(topology.BucketSessions))
	if err != nil {
		return err
	}
	got.note("pending", float64(pending))
	got.note("resident_mb", float64(s.memory(residentNow))/1e6)
	got.note("disk_mb", float64(s.diskBytes())/1e6)
	b.progress.step("million, killed and started again")
	s.disconnect()
	s.kill()
	if err := s.start(ctx, rolesBoth); err != nil {
		return err
	}
	got.note("ready_after_kill_ms", milliseconds(s.ready))
	got.note("peak_after_kill_mb", float64(s.memory(residentPeak))/1e6)
	b.add(ctx, got)
	return nil
}

// startPending starts the sessions and notes the rate of each tenth.
func (b *bench) startPending(ctx context.Context, s *service, r *receiver) sample {
	l := newHTTPLoad(millionClients, s.listen, s.initRequest(r.url(0)))
	defer l.close()
	whole, rates := load{}, [tenths]float64{}
	for tenth := range tenths {
		b.progress.step(fmt.Sprintf("million, tenth %d, so far %d sessions", tenth+1, whole.ops()))
		part := closedNumber(ctx, b.o.scaled(pendingSessions)/tenths, l.steps)
		rates[tenth] = part.rate()
		whole.latencies = append(whole.latencies, part.latencies...)
		whole.took += part.took
		whole.errors += part.errors
		whole.firstErr = errors.Join(whole.firstErr, part.firstErr)
	}
	whole = gather([]client{{latencies: whole.latencies, errors: whole.errors, firstErr: whole.firstErr}},
		whole.took)
	got := loadSample(rowMillion, "", millionClients, whole)
	for tenth, rate := range rates {
		got.note(fmt.Sprintf("%s%02d_per_s", tenthNote, tenth+1), rate)
	}
	got.note("last_tenth_share_of_first", rates[tenths-1]/max(rates[0], 1))
	return got
}
