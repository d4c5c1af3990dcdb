package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/store"
)

const (
	// backlog is the number of waiting completions at the start of a drain.
	backlog = 20_000
	// manyHosts is the number of hosts of the second drain.
	manyHosts = 1000
	// clientConns is how many connections the bare client has: as many as a destination may have.
	clientConns = 64
	// drainWithin is added to the duration of a drain at 100 deliveries a second; a slower one counts as
	// stuck.
	drainWithin = time.Minute
	// settlePoll is the interval at which the consumer is asked whether all is settled: long enough to cost
	// nothing.
	settlePoll = 20 * time.Millisecond
	// missingAfter is how long a consumer must have nothing left before missing callbacks are given up.
	missingAfter = 2 * time.Second
)

// dispatches measures the drain of waiting completions in turns with the bare client.
func (b *bench) dispatches(ctx context.Context) error {
	one, err := b.outside.receiver(1)
	if err != nil {
		return err
	}
	defer one.Close()
	client, err := b.o.startChild(ctx, child.BareClient,
		child.Config{Target: one.URL(0), CA: b.outside.ca.PEM()})
	if err != nil {
		return err
	}
	defer client.End()
	if !b.o.wants(rowDispatch) {
		for run := range b.o.Runs {
			if _, err := b.bareClient(ctx, run, client, one); err != nil {
				return err
			}
		}
		return nil
	}
	hosts := min(manyHosts, b.o.scaled(manyHosts))
	many, err := b.outside.receiver(hosts)
	if err != nil {
		return err
	}
	defer many.Close()
	for run := range b.o.Runs {
		for _, r := range []*load.Receiver{one, many} {
			ceiling, err := b.bareClient(ctx, run, client, one)
			if err != nil {
				return err
			}
			got, err := b.drain(ctx, run, r)
			if err != nil {
				return err
			}
			got.Ceiling = &ceiling
			b.add(ctx, got)
		}
	}
	return nil
}

func (b *bench) bareClient(ctx context.Context, run int, client *child.Child,
	r *load.Receiver) (report.Sample, error) {
	b.announce(run, "bare-client, c = %d", clientConns)
	t := r.Count(0)
	if err := client.Do(ctx, child.Order{Clients: clientConns, Duration: b.o.warmUp()}); err != nil {
		return report.Sample{}, err
	}
	s, err := client.Measured(ctx, child.Order{Clients: clientConns, Duration: b.o.Duration})
	s.Row = rowBareClient
	_, s.Duplicates, _ = t.Seen() // ids are new for each POST: net/http would have sent again by itself
	b.add(ctx, s)
	return s, err
}

// drain fills a store with completions while no dispatcher runs, starts the service, and measures until all
// is delivered and stored.
func (b *bench) drain(ctx context.Context, run int, r *load.Receiver) (report.Sample, error) {
	n := b.o.scaled(backlog)
	what := fmt.Sprintf("to %d hosts", len(r.Hosts))
	if len(r.Hosts) == 1 {
		what = "to 1 host"
	}
	b.announce(run, "dispatch %s, filling the store with %d completions", what, n)
	s, end, err := b.freshService(ctx, roleEdge)
	if err != nil {
		return report.Sample{}, err
	}
	defer end()
	if err := s.fill(ctx, n, r); err != nil {
		return report.Sample{}, err
	}
	s.disconnect()
	s.Stop()
	b.announce(run, "dispatch %s", what)
	ctx, cancel := context.WithTimeout(ctx, drainWithin+time.Duration(n)*10*time.Millisecond)
	defer cancel()
	t := r.Count(n)
	if err := s.start(ctx, rolesBoth); err != nil {
		return report.Sample{}, err
	}
	return s.drained(ctx, t, report.Sample{Row: rowDispatch, Variant: what, Ops: int64(n)})
}

// fill completes n sessions.
func (s *service) fill(ctx context.Context, n int, r *load.Receiver) error {
	st := load.OpenSessions(s.conn, s.site.key, s.site.sync)
	defer st.Close()
	ids, err := st.CreateAll(ctx, n, s.account.ID, r.URL)
	if err != nil {
		return err
	}
	return st.CompleteAll(ctx, ids)
}

// drained waits until every delivery has ended. Those that ended without a callback count as errors.
func (s *service) drained(ctx context.Context, t *load.Tally, got report.Sample) (report.Sample, error) {
	// Counted from the start of the process on: a drain begins before the process is ready.
	u := s.profiled(s.SinceStart())
	if err := s.connect(ctx); err != nil {
		return got, err
	}
	settled, err := s.settled(ctx, t, int(got.Ops))
	if err != nil {
		return got, err
	}
	enter(&got, u)
	n, duplicates, took := t.Seen()
	got.Duplicates, got.Took = duplicates, took
	if missing := got.Ops - int64(n); missing > 0 {
		got.Errors += missing
		got.FirstErr = fmt.Sprintf("%d deliveries ended without a callback%s", missing, s.explain(ctx))
	}
	got.Ops = int64(n)
	got.Note("settled_per_s", float64(got.Ops)/settled.Sub(t.First()).Seconds())
	got.Note("first_post_ms", report.Milliseconds(t.First().Sub(s.Began)))
	if disk := s.diskBytes(); disk > 0 {
		got.Note("kept_bytes_each", float64(disk)/float64(max(1, got.Ops)))
	}
	return got, nil
}

// explain returns how a delivery without a callback ended, if one is found.
func (s *service) explain(ctx context.Context) string {
	st := store.New(store.Config{Conn: s.conn, Key: s.site.key})
	for _, state := range []facts.DeliveryState{
		facts.DeliveryUnknown, facts.DeliveryUndeliverable, facts.DeliveryRejected,
	} {
		found, err := st.Deliveries(ctx, state, 1)
		if err != nil || len(found.Views) == 0 {
			continue
		}
		var attempts []string
		for _, a := range found.Views[0].Delivery.Attempts {
			r := a.Result
			if r == nil {
				r = &facts.Result{Verdict: "none"}
			}
			attempts = append(attempts,
				fmt.Sprintf("%s %s (%s; claimed %s by %s, ended %s by %s)", r.Verdict, r.Class, r.Detail,
					a.Claim.At.Format(time.TimeOnly), a.Claim.Worker, r.At.Format(time.TimeOnly), r.By))
		}
		return ": for instance " + string(state) + " after " + strings.Join(attempts, ", ")
	}
	return ""
}

// settled waits until nothing is left for the dispatcher to do, and returns when that was. A completion is
// acknowledged once its result is stored, so that nothing unacknowledged means all settled. If callbacks are
// missing by then, it keeps checking for a while.
func (s *service) settled(ctx context.Context, t *load.Tally, n int) (at time.Time, err error) {
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		left, err := s.undelivered(ctx)
		if err != nil && (!errors.Is(err, natsconf.ErrUnavailable) || ctx.Err() != nil) {
			return at, err
		}
		have, _, _ := t.Seen()
		switch {
		case left > 0 || err != nil: // a store with a busy disk answers a later request
			at = time.Time{}
		case at.IsZero():
			at = time.Now()
		}
		if !at.IsZero() && (have >= n || time.Since(at) > missingAfter) {
			return at, nil
		}
		select {
		case <-tick.C:
		case <-s.Exited:
			return at, s.Failure()
		case <-ctx.Done():
			return at, fmt.Errorf("%d of %d callbacks arrived, %d completions wait: %w", have, n, left,
				ctx.Err())
		}
	}
}

// undelivered returns how many messages wait for a dispatcher or are being worked on.
func (s *service) undelivered(ctx context.Context) (n uint64, err error) {
	b, err := store.New(store.Config{Conn: s.conn, Key: s.site.key}).Backlog(ctx)
	return b.Waiting + b.Given + b.Scheduled, err
}

// pacedRates are the rates of completions.
var pacedRates = []float64{200, 1000}

// paced measures how long a completion takes to its receiver while others arrive at a fixed rate.
func (b *bench) paced(ctx context.Context, run int, r *load.Receiver) error {
	for _, rate := range pacedRates {
		if err := b.pacedOnce(ctx, run, r, rate); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pacedOnce(ctx context.Context, run int, r *load.Receiver, rate float64) error {
	b.announce(run, "paced, %.0f/s", rate)
	s, end, err := b.freshService(ctx, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	st := load.OpenSessions(s.conn, s.site.key, s.site.sync)
	defer st.Close()
	warm := max(1, int(rate*b.o.warmUp().Seconds()))
	n := max(1, int(rate*b.o.Duration.Seconds()))
	ids, err := st.CreateAll(ctx, warm+n, s.account.ID, r.URL)
	if err != nil {
		return err
	}
	t := r.Count(warm + n)
	completeAt(ctx, st, rate, ids[:warm])
	u := s.Measure()
	began := time.Now()
	c := completeAt(ctx, st, rate, ids[warm:])
	took := time.Since(began)
	late := time.NewTimer(load.AnswerWithin)
	defer late.Stop()
	select {
	case <-t.Done:
	case <-late.C: // counted below
	case <-ctx.Done():
		return ctx.Err()
	}
	got := c.sample(t)
	got.Variant, got.Took = fmt.Sprintf("%.0f/s", rate), took
	enter(&got, u)
	b.add(ctx, got)
	return nil
}

// completions are the results of sessions that were completed on a schedule.
type completions struct {
	ids   []sessions.ID
	asked []time.Time     // when ReadAndComplete was called
	took  []time.Duration // until it returned
	errs  []error
}

// completeAt completes the sessions at a rate, each on a goroutine of its own, so that a slow one delays no
// other.
func completeAt(ctx context.Context, s *load.Sessions, rate float64, ids []sessions.ID) completions {
	c := completions{
		ids: ids, asked: make([]time.Time, len(ids)), took: make([]time.Duration, len(ids)),
		errs: make([]error, len(ids)),
	}
	var wg sync.WaitGroup
	next := 0
	load.Pace(ctx, rate, len(ids), func(time.Time) {
		i := next
		next++
		wg.Go(func() {
			c.asked[i] = time.Now()
			c.errs[i] = s.ReadAndComplete(ctx, ids[i])
			c.took[i] = time.Since(c.asked[i])
		})
	})
	wg.Wait()
	return c
}

// sample checks each completion against its arrival.
func (c completions) sample(t *load.Tally) report.Sample {
	var receipts []time.Duration
	var failed error
	s := report.Sample{Row: rowPaced}
	for i, id := range c.ids {
		at, arrived := t.Arrival(callback.ID(id, false))
		switch {
		case c.errs[i] != nil:
			failed = c.errs[i]
		case !arrived:
			failed = errors.New("the callback did not arrive")
		default:
			receipts = append(receipts, at.Sub(c.asked[i]))
			continue
		}
		s.Errors++
		s.FirstErr = failed.Error()
	}
	slices.Sort(receipts)
	took := slices.Sorted(slices.Values(c.took))
	s.Ops = int64(len(receipts))
	s.P50, s.P99 = load.Percentile(receipts, 0.50), load.Percentile(receipts, 0.99)
	s.Note("complete_p50_ms", report.Milliseconds(load.Percentile(took, 0.50)))
	s.Note("complete_p99_ms", report.Milliseconds(load.Percentile(took, 0.99)))
	_, s.Duplicates, _ = t.Seen()
	return s
}
