package dispatcher

import (
	"context"
	"time"

	"github.com/thejerf/suture/v4"

	"verifyd/dispatcher/bounds"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/topology"
)

const (
	// maxPendingClaims is how many claims may wait for their acknowledgement before no more deliveries are
	// begun: a few batches. Each delivery that waits for its claim holds a connection and a goroutine, and
	// one that waits too long must not be sent. Slow receivers do not count: a delivery that hangs there has
	// its claim.
	maxPendingClaims = 512
	// addressHosts is how many receiver hosts' connections an account may have to one address. A name costs
	// nothing: anyone who makes all names of a domain lead to one machine has as many hosts there as they
	// like. But machines that carry many honest hosts are common, and one host that hangs must leave room for
	// the others.
	addressHosts = 4
)

// Dispatcher delivers completions. Several processes may run one each on the same JetStream.
type Dispatcher struct {
	*shared

	destinations *registry
	meter        *meter
	reconciler   *reconciler
}

// New returns a dispatcher. It does nothing until served.
func New(c Config) (*Dispatcher, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	m := newMetrics(c.Metrics)
	m.retryFor.Set(c.RetryFor.Seconds())
	d := &shared{
		c: c, metrics: m, held: newHeldSet(m.held),
		budget:    bounds.NewBudget(c.Attempts, c.AccountAttempts),
		addresses: bounds.NewAddresses(addressHosts * c.Connections),
		claims:    bounds.NewGate(maxPendingClaims),
	}
	d.budget.Measure(c.Metrics)
	return &Dispatcher{
		shared: d, destinations: newRegistry(d), meter: &meter{d: d}, reconciler: &reconciler{d: d},
	}, nil
}

// String names the actor in the supervisor's log.
func (d *Dispatcher) String() string { return "dispatcher" }

// Serve delivers until ctx ends and the work under way is done or, after DrainTimeout, aborted. It may be
// served again.
func (d *Dispatcher) Serve(ctx context.Context) error {
	spec := d.c.Supervise
	// a supervisor that gave up earlier would leave goroutines behind
	spec.Timeout = d.c.DrainTimeout + storeResultFor + claimMargin
	supervisor := suture.New("dispatcher", spec)
	d.readKeptFor(ctx)
	d.beginGrace()
	work, abort := d.abortable(ctx)
	defer abort()
	d.destinations.open(work, supervisor)
	defer d.destinations.close()
	supervisor.Add(d.held)
	supervisor.Add(d.meter)
	supervisor.Add(d.reconciler)
	supervisor.Add(actor{"dispatcher rescheduler", d.reschedule})
	supervisor.Add(actor{"dispatcher grace", d.renewGrace})
	if d.c.Pauses != nil {
		supervisor.Add(actor{"dispatcher pauser", d.destinations.followPauses})
	}
	for _, from := range topology.DispatcherConsumers() {
		supervisor.Add(&fetcher{d: d.shared, destinations: d.destinations, from: from})
	}
	return supervisor.Serve(ctx)
}

// actor is an actor that has nothing of its own.
type actor struct {
	name  string
	serve func(context.Context) error
}

// String names the actor in the supervisor's log.
func (a actor) String() string { return a.name }

// Serve runs until ctx ends.
func (a actor) Serve(ctx context.Context) error { return a.serve(ctx) }

// abortable returns the context for work that was begun under ctx: it ends DrainTimeout after ctx does.
func (d *Dispatcher) abortable(ctx context.Context) (context.Context, context.CancelFunc) {
	work, abort := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d.c.DrainTimeout, abort)
		context.AfterFunc(work, func() { timer.Stop() })
	})
	return work, func() { stop(); abort() }
}

// Hosts returns the receiver hosts at which something waits in this process, or that do not answer, worst
// first.
func (d *Dispatcher) Hosts() []fleet.Host { return d.destinations.worst() }

// Backlog returns the last measured backlog of the whole service; nil before the first measurement.
func (d *Dispatcher) Backlog() *fleet.Backlog { return d.meter.backlog.Load() }

// Strays returns the deliveries that this process has handed in because no dispatcher had them; nil if there
// were none.
func (d *Dispatcher) Strays() *fleet.Strays { return d.reconciler.strays.Load() }
