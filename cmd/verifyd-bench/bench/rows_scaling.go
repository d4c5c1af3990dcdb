package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// slowAnswer is how long a receiver takes in the row scaling: then a dispatcher's deliveries wait for the
	// receiver, not for the machine.
	slowAnswer = 100 * time.Millisecond
	// eachDrainsFor is how long the callbacks that wait for a dispatcher keep all of its connections busy.
	eachDrainsFor = 5 * time.Second
	// The rate is that between these parts of the arrivals: before, sessions are still being completed;
	// after, some dispatchers have nothing left.
	steadyFrom, steadyTo = 0.3, 0.9
	// connectionsNote is the further figure that says what was bounded.
	connectionsNote = "connections_each"
)

// scalingDispatchers are the numbers of processes that share the work, the one that the others are held
// against first.
var scalingDispatchers = []int{1, 2, 4}

// scaling measures how many callbacks a second several dispatcher processes make together, each with so many
// connections and no more, to a receiver that takes its time. So bounded, each process can do what its
// connections can, wherever the machine has time for them all.
func (b *bench) scaling(ctx context.Context) error {
	if b.o.NATSURL == "" {
		return errors.New("several processes share a store on external NATS servers alone: name some with --nats-url")
	}
	r, err := newReceiver(1)
	if err != nil {
		return err
	}
	defer r.close()
	r.delay = slowAnswer
	for run := range b.o.Runs {
		var one float64
		for _, n := range scalingDispatchers {
			got, err := b.scalingOnce(ctx, run, r, n)
			if err != nil {
				return err
			}
			if n == 1 {
				one = got.rate()
			}
			if one > 0 {
				got.note("of_linear_share", got.rate()/(one*float64(n)))
			}
			b.add(ctx, got)
		}
	}
	return ctx.Err()
}

func (b *bench) scalingOnce(ctx context.Context, run int, r *receiver, dispatchers int) (sample, error) {
	what := "1 dispatcher"
	if dispatchers > 1 {
		what = fmt.Sprintf("%d dispatchers", dispatchers)
	}
	n := b.o.scaled(b.o.Connections*int(eachDrainsFor/slowAnswer)) * dispatchers
	b.announce(run, "scaling, %s, starting %d sessions", what, n)
	s, end, err := b.freshService(ctx, r, roleEdge)
	if err != nil {
		return sample{}, err
	}
	defer end()
	st := newSessionStore(s.conn, s.site.key, s.site.sync)
	defer st.writers.stop()
	ids, err := st.create(ctx, n, s.account.ID, r.url)
	if err != nil {
		return sample{}, err
	}
	h := s.site
	h.env = append(slices.Clone(h.env), fmt.Sprintf("VERIFYD_CALLBACK_CONNECTIONS=%d", b.o.Connections))
	for range dispatchers {
		d, err := b.o.startService(ctx, h, roleDispatcher)
		if err != nil {
			return sample{}, err
		}
		defer d.stop()
	}
	b.announce(run, "scaling, %s", what)
	ctx, cancel := context.WithTimeout(ctx, drainWithin+time.Duration(n)*slowAnswer)
	defer cancel()
	t := r.count(n)
	err = inParallel(ctx, fillers, n, func(ctx context.Context, i int) error {
		_, err := st.Complete(ctx, ids[i], verified)
		return err
	})
	if err != nil {
		return sample{}, err
	}
	if _, err := s.settled(ctx, t, n); err != nil {
		return sample{}, err
	}
	got := t.steady(sample{row: rowScaling, variant: what, cpu: -1}, n)
	got.note(connectionsNote, float64(b.o.Connections))
	got.note("of_bound_share", got.rate()/(scalingBound(b.o.Connections)*float64(dispatchers)))
	got.note("under_way_most", float64(t.maxAtOnce()))
	return got, nil
}

// scalingBound is how many callbacks a second so many connections of one process can make at most.
func scalingBound(connections int) float64 { return float64(connections) / slowAnswer.Seconds() }

// scalingSays says in a table's head what the row scaling bounded; empty where the row is not there.
func scalingSays(results []Result) string {
	i := slices.IndexFunc(results, func(r Result) bool { return r.Row == rowScaling })
	if i < 0 {
		return ""
	}
	c := int(results[i].More[connectionsNote])
	return fmt.Sprintf("\nscaling: each dispatcher process has at most %d callbacks under way at once (--connections), to one receiver that takes %s for each: "+
		"%g/s at most for each process.", c, slowAnswer, scalingBound(c))
}

// steady enters the rate of the arrivals while all dispatchers had work. Callbacks that did not arrive count
// as errors.
func (t *tally) steady(got sample, want int) sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	var at []time.Time
	for _, a := range t.at {
		at = append(at, a)
	}
	slices.SortFunc(at, time.Time.Compare)
	if missing := want - len(at); missing > 0 {
		got.errors, got.firstErr = int64(missing), "the callback did not arrive"
	}
	got.duplicates = t.duplicates
	from, to := int(steadyFrom*float64(len(at))), int(steadyTo*float64(len(at)))
	if from < to {
		got.ops, got.took = int64(to-from), at[to].Sub(at[from])
	}
	return got
}
