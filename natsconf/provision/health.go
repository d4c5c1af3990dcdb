package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/topology"
)

// healthWait bounds one look at everything. A stream without a leader answers nothing.
const healthWait = 1500 * time.Millisecond

// Health is what the server reported about verifyd's assets.
type Health struct {
	At        time.Time
	Streams   []StreamHealth   // in the topology's order
	Consumers []ConsumerHealth // the same
	// Skew is how far the clock of the server that is furthest off is ahead of this machine's, within the
	// time that an answer takes; Known reports whether one came.
	Skew      time.Duration
	SkewKnown bool
}

// ConsumerHealth is the state of one durable consumer.
type ConsumerHealth struct {
	Name   string
	Leader string
	State  natsconf.ConsumerState
	Err    error
}

// Check returns the state of the consumer, and, if it is not healthy, why.
func (c ConsumerHealth) Check() (state string, err error) {
	if c.Err != nil {
		return "", c.Err
	}
	state = fmt.Sprintf("%d waiting, %d given out", c.State.Waiting, c.State.Given)
	if c.Leader != "" { // a single server does not report it
		state = "led by " + c.Leader + ", " + state
	}
	return state, nil
}

// CheckTopology returns an error unless the server's settings are the table's.
func (h Health) CheckTopology() (state string, err error) {
	var differ []string
	for _, s := range h.Streams {
		for _, d := range s.Differences {
			if d.Kind == Missing {
				differ = append(differ, d.Asset+" is missing")
				continue
			}
			differ = append(differ, fmt.Sprintf("%s: %s is %s, these settings ask for %s", d.Asset, d.Field,
				d.Have, d.Want))
		}
	}
	switch {
	case len(differ) > 0:
		return "", errors.New(strings.Join(differ, "; "))
	case !answered(h.Streams):
		return "", errors.New("no stream answered, so that its settings are not known")
	}
	return "as it should be", nil
}

// CheckClock returns how far the server's clock is from this machine's.
func (h Health) CheckClock() (state string, err error) {
	if !h.SkewKnown {
		return "", errors.New("no stream answered, so that the server's clock is not known")
	}
	if h.Skew.Abs() >= storetime.MaxSkew {
		return "", fmt.Errorf("a server's clock is %s off this machine's", h.Skew)
	}
	return fmt.Sprintf("%s off the server's", h.Skew.Abs()), nil
}

// Health asks for everything at once, each with its own answer, and changes nothing. An asset that does not
// answer within 1.5 s is reported as such.
func (e Ensurer) Health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	h := Health{
		At: time.Now(), Streams: make([]StreamHealth, len(e.Topology.Streams)),
		Consumers: make([]ConsumerHealth, len(e.Topology.Consumers)),
	}
	skews := make([]*time.Duration, len(h.Streams))
	var all sync.WaitGroup
	for i, want := range e.Topology.Streams {
		all.Go(func() { h.Streams[i], skews[i] = e.streamHealth(ctx, want) })
	}
	for i, want := range e.Topology.Consumers {
		all.Go(func() { h.Consumers[i] = e.consumerHealth(ctx, want) })
	}
	all.Wait()
	for _, s := range skews {
		if s != nil && (!h.SkewKnown || s.Abs() > h.Skew.Abs()) { // of several servers, one may be off
			h.Skew, h.SkewKnown = *s, true
		}
	}
	return h
}

func (e Ensurer) streamHealth(ctx context.Context, want jetstream.StreamConfig) (h StreamHealth,
	skew *time.Duration) {
	h.Name, h.Copies = want.Name, want.Replicas
	asked := time.Now()
	s, err := e.Conn.JS.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		h.Differences = []Difference{{Asset: "stream " + want.Name, Kind: Missing}}
		h.Err = errors.New("there is no such stream")
		return h, nil
	case err != nil:
		h.Err = fmt.Errorf("nobody answers for it: %w", err)
		return h, nil
	}
	info := s.CachedInfo()
	skew = skewOf(info, asked)
	h = healthOf(settled(ctx, s))
	h.Differences, h.Err = inspectConfig(info.Config, want)
	return h, skew
}

func (e Ensurer) consumerHealth(ctx context.Context, want topology.Consumer) ConsumerHealth {
	h := ConsumerHealth{Name: want.Config.Durable}
	c, err := e.Conn.JS.Consumer(ctx, want.Stream, want.Config.Durable)
	if err != nil {
		h.Err = fmt.Errorf("nobody answers for it: %w", err)
		return h
	}
	info := c.CachedInfo()
	if info.Cluster != nil {
		h.Leader = info.Cluster.Leader
	}
	h.State = natsconf.ConsumerStateOf(info)
	return h
}
