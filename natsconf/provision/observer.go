package provision

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

const (
	// observeEvery is the pause between two passes of an Observer: each costs the leaders some thirty
	// requests of each process.
	observeEvery = 5 * time.Second
	// silentAfter is how old an answer may be. An election takes up to 9 s, during which requests wait, for
	// 14 s at most; a pass that met one is repeated after observeEvery.
	silentAfter = 30 * time.Second
)

// Observer is the actor that asks for the health of the assets again and again. Callers get the last answer
// at once, whether the store answers now or not.
type Observer struct {
	ensurer  Ensurer
	answered chan struct{} // closed with the first answer of a leader

	mu    sync.Mutex
	last  Health
	heard time.Time // when the pass began in which a leader answered last; zero: none has
}

// NewObserver returns an observer of a topology. It knows nothing until it is served.
func NewObserver(c *natsconf.Conn, t topology.Topology) *Observer {
	return &Observer{ensurer: Ensurer{Conn: c, Topology: t}, answered: make(chan struct{})}
}

// String names the actor in the supervisor's log.
func (o *Observer) String() string { return "stream observer" }

// Serve asks until ctx ends.
func (o *Observer) Serve(ctx context.Context) error {
	return wait.Every(ctx, observeEvery, o.AskOnce)
}

// AskOnce asks for everything, for 1.5 s at most.
func (o *Observer) AskOnce(ctx context.Context) {
	h := o.ensurer.Health(ctx)
	if ctx.Err() != nil {
		return // that nobody answered says nothing of the store
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = h
	if !answered(h.Streams) {
		return
	}
	if o.heard.IsZero() {
		close(o.answered)
	}
	o.heard = h.At
}

// answered reports whether the leader of a stream has answered.
func answered(streams []StreamHealth) bool {
	return slices.ContainsFunc(streams, func(s StreamHealth) bool { return s.Leader != "" })
}

// Answered returns a channel that is closed when the leader of a stream has answered for the first time.
func (o *Observer) Answered() <-chan struct{} { return o.answered }

// Check returns when a leader last answered. The error says that none has for silentAfter, or none yet: then
// this process can do nothing with requests. It sends no request.
func (o *Observer) Check() (state string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := tooOld("no leader of a stream has answered", o.heard); err != nil {
		return "", err
	}
	return fmt.Sprintf("their leaders answered %s ago", time.Since(o.heard).Round(time.Second)), nil
}

// Health returns what the last pass has found. If that is too long ago, each asset has it as its error. It
// sends no request.
func (o *Observer) Health() Health {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := tooOld("nobody has asked for it", o.last.At)
	if err == nil {
		return o.last
	}
	var h Health
	for _, s := range o.ensurer.Topology.Streams {
		h.Streams = append(h.Streams, StreamHealth{Name: s.Name, Copies: s.Replicas, Err: err})
	}
	for _, c := range o.ensurer.Topology.Consumers {
		h.Consumers = append(h.Consumers, ConsumerHealth{Name: c.Config.Durable, Err: err})
	}
	return h
}

// tooOld returns what has not happened, if that is so since silentAfter.
func tooOld(what string, last time.Time) error {
	age := time.Since(last)
	switch {
	case last.IsZero():
		return fmt.Errorf("%s yet", what)
	case age > silentAfter:
		return fmt.Errorf("%s for %s", what, age.Round(time.Second))
	}
	return nil
}

// figures shows the last answers as metrics.
type figures struct {
	o                       *Observer
	wanted, current, leader *prometheus.Desc
}

// Measure shows the copies of each stream in a registry.
func (o *Observer) Measure(r prometheus.Registerer) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"stream"}, nil)
	}
	r.MustRegister(figures{
		o: o,
		wanted: desc("verifyd_stream_copies_wanted",
			"Copies that the stream is configured to have."),
		current: desc("verifyd_stream_copies_current",
			"Copies of the stream that hold everything and can be reached; 0 while no leader is known."),
		leader: desc("verifyd_stream_leader_known",
			"1 if a leader of the stream answered when it was last asked, 0 if none did."),
	})
}

// Describe is of prometheus.Collector.
func (f figures) Describe(to chan<- *prometheus.Desc) {
	to <- f.wanted
	to <- f.current
	to <- f.leader
}

// Collect is of prometheus.Collector.
func (f figures) Collect(to chan<- prometheus.Metric) {
	for _, s := range f.o.Health().Streams {
		current, leader := 0, 0.0
		if s.Leader != "" {
			current, leader = s.Current, 1
		}
		show := func(d *prometheus.Desc, v float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Name)
		}
		show(f.wanted, float64(s.Copies))
		show(f.current, float64(current))
		show(f.leader, leader)
	}
}
