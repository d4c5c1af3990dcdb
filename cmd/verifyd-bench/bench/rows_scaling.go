package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/report"
)

const (
	// slowAnswer is how long a receiver takes in the row scaling, so that deliveries wait for the receiver,
	// not for the machine.
	slowAnswer = 100 * time.Millisecond
	// eachDrainsFor is how long a dispatcher's share of the waiting callbacks keeps all of its connections
	// busy.
	eachDrainsFor = 5 * time.Second
	// The rate is that between these parts of the arrivals: before, sessions are still being completed;
	// after, some dispatchers have nothing left.
	steadyFrom, steadyTo = 0.3, 0.9
	// connectionsNote is the figure that records what was bounded.
	connectionsNote = "connections_each"
)

// scalingDispatchers are the numbers of processes that share the work, the one that the others are compared
// with first.
var scalingDispatchers = []int{1, 2, 4}

// scaling measures how many callbacks a second several dispatcher processes make together, each with a
// bounded number of connections, to a slow receiver. So bounded, each process can do what its connections
// allow, as long as the machine has time for all of them.
func (b *bench) scaling(ctx context.Context) error {
	if b.o.NATSURL == "" {
		return errors.New("several processes share a store on external NATS servers alone: " +
			"name some with --nats-url")
	}
	r, err := b.outside.receiver(1)
	if err != nil {
		return err
	}
	defer r.Close()
	r.Delay = slowAnswer
	for run := range b.o.Runs {
		var one float64
		for _, n := range scalingDispatchers {
			got, err := b.scalingOnce(ctx, run, r, n)
			if err != nil {
				return err
			}
			if n == 1 {
				one = got.Rate()
			}
			if one > 0 {
				got.Note("of_linear_share", got.Rate()/(one*float64(n)))
			}
			b.add(ctx, got)
		}
	}
	return ctx.Err()
}

func (b *bench) scalingOnce(ctx context.Context, run int, r *load.Receiver,
	dispatchers int) (report.Sample, error) {
	what := "1 dispatcher"
	if dispatchers > 1 {
		what = fmt.Sprintf("%d dispatchers", dispatchers)
	}
	n := b.o.scaled(b.o.Connections*int(eachDrainsFor/slowAnswer)) * dispatchers
	b.announce(run, "scaling, %s, starting %d sessions", what, n)
	s, end, err := b.freshService(ctx, roleEdge)
	if err != nil {
		return report.Sample{}, err
	}
	defer end()
	st := load.OpenSessions(s.conn, s.site.key, s.site.sync)
	defer st.Close()
	ids, err := st.CreateAll(ctx, n, s.account.ID, r.URL)
	if err != nil {
		return report.Sample{}, err
	}
	h := s.site
	h.env = append(slices.Clone(h.env), fmt.Sprintf("VERIFYD_CALLBACK_CONNECTIONS=%d", b.o.Connections))
	for range dispatchers {
		d, err := b.o.startService(ctx, h, roleDispatcher)
		if err != nil {
			return report.Sample{}, err
		}
		defer d.Stop()
	}
	b.announce(run, "scaling, %s", what)
	ctx, cancel := context.WithTimeout(ctx, drainWithin+time.Duration(n)*slowAnswer)
	defer cancel()
	t := r.Count(n)
	if err := st.CompleteAll(ctx, ids); err != nil {
		return report.Sample{}, err
	}
	if _, err := s.settled(ctx, t, n); err != nil {
		return report.Sample{}, err
	}
	got := steady(t, report.Sample{Row: rowScaling, Variant: what, CPU: -1}, n)
	got.Note(connectionsNote, float64(b.o.Connections))
	got.Note("of_bound_share", got.Rate()/(scalingBound(b.o.Connections)*float64(dispatchers)))
	got.Note("under_way_most", float64(t.MaxAtOnce()))
	return got, nil
}

// scalingBound is the maximum number of callbacks a second over the connections of one process.
func scalingBound(connections int) float64 { return float64(connections) / slowAnswer.Seconds() }

// scalingRemarks describe above a table what the row scaling bounded, if it was measured.
func scalingRemarks(results []report.Result) []string {
	i := slices.IndexFunc(results, func(r report.Result) bool { return r.Row == rowScaling })
	if i < 0 {
		return nil
	}
	c := int(results[i].More[connectionsNote])
	return []string{fmt.Sprintf("scaling: each dispatcher process has at most %d callbacks under way at "+
		"once (--connections), to one receiver that takes %s for each: %g/s at most for each process.",
		c, slowAnswer, scalingBound(c))}
}

// steady adds the rate of the arrivals while all dispatchers had work. Callbacks that did not arrive count as
// errors.
func steady(t *load.Tally, got report.Sample, want int) report.Sample {
	at := t.Arrivals()
	if missing := want - len(at); missing > 0 {
		got.Errors, got.FirstErr = int64(missing), "the callback did not arrive"
	}
	_, got.Duplicates, _ = t.Seen()
	from, to := int(steadyFrom*float64(len(at))), int(steadyTo*float64(len(at)))
	if from < to {
		got.Ops, got.Took = int64(to-from), at[to].Sub(at[from])
	}
	return got
}
