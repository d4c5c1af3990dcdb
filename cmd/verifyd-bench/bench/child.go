package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// The kinds of child beside the service itself.
const (
	kindGenerator   = "generator"    // answers prepared bytes: what the generator can do at most
	kindBareHandler = "bare-handler" // the same JSON in and out, and nothing behind it
	kindBareClient  = "bare-client"  // net/http's client, against the same receiver
	kindPublish     = "publish"      // synced publishes, and nothing around them
	kindComplete    = "complete"     // store.Store.Complete, without HTTP
)

// childCommand is the command under which the bench's own binary is one of these children.
const childCommand = "child"

// childConfig is the first line that a child reads; orders follow, one a line. At the end of its input a
// child ends, so that none outlives a bench that was killed.
type childConfig struct {
	Store  storeConfig `json:"store,omitzero"`
	Target string      `json:"target,omitempty"` // URL of the receiver
	CA     []byte      `json:"ca,omitempty"`     // its authority, PEM
}

// storeConfig says where a child that writes has its store.
type storeConfig struct {
	Dir       string `json:"dir"`
	Sync      string `json:"sync"`
	NATSURL   string `json:"nats_url,omitempty"`
	NATSCreds string `json:"nats_creds,omitempty"`
	Replicas  int    `json:"replicas,omitempty"`
}

// order is one measurement, or its preparation.
type order struct {
	Prepare  int           `json:"prepare,omitempty"` // how many to prepare; nothing is measured
	Clients  int           `json:"clients,omitempty"`
	Batch    int           `json:"batch,omitempty"` // messages per atomic batch; 0: published singly
	Duration time.Duration `json:"duration,omitempty"`
}

// report answers an order, and the configuration.
type report struct {
	Address string        `json:"address,omitempty"` // where it listens, for a child that does
	Ops     int64         `json:"ops"`
	Took    time.Duration `json:"took"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Errors  int64         `json:"errors"`
	Error   string        `json:"error,omitempty"` // the first one
	Failed  string        `json:"failed,omitempty"`
}

func reportOf(l load) report {
	r := report{
		Ops: l.ops(), Took: l.took, P50: percentile(l.latencies, 0.50), P99: percentile(l.latencies, 0.99),
		Errors: l.errors,
	}
	if l.firstErr != nil {
		r.Error = l.firstErr.Error()
	}
	return r
}

// child is such a child, as the bench sees it.
type child struct {
	*process

	orders  *os.File // its standard input
	answers *os.File // its standard output
	reports *bufio.Reader
	address string
}

func (o Options) startChild(ctx context.Context, kind string, c childConfig) (*child, error) {
	stdin, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	answers, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), stdin.Close(), orders.Close())
	}
	p, err := o.startProcess(o.Self, []string{childCommand, kind}, nil, stdin, stdout)
	err = errors.Join(err, stdin.Close(), stdout.Close()) // the child has its own
	ch := &child{process: p, orders: orders, answers: answers, reports: bufio.NewReader(answers)}
	var r report
	if err == nil {
		r, err = ch.tell(ctx, c)
	}
	if err != nil {
		ch.end()
		return nil, err
	}
	ch.address = r.Address
	return ch, nil
}

// tell sends one line and returns the answer to it.
func (c *child) tell(ctx context.Context, line any) (report, error) {
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	var r report
	b, err := json.Marshal(line)
	if err == nil {
		_, err = c.orders.Write(append(b, '\n'))
	}
	if err == nil {
		b, err = c.reports.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		<-c.exited
		return r, c.failure()
	case err != nil:
		return r, fmt.Errorf("talk to the child: %w", err)
	case r.Failed != "":
		return r, errors.New(r.Failed)
	}
	return r, nil
}

// measured lets the child do its order, and returns what it reports with what it used.
func (c *child) measured(ctx context.Context, o order) (sample, error) {
	u := c.measure()
	r, err := c.tell(ctx, o)
	if err != nil {
		return sample{}, err
	}
	s := sample{
		c: o.Clients, ops: r.Ops, took: r.Took, p50: r.P50, p99: r.P99, errors: r.Errors, firstErr: r.Error,
	}
	u.into(&s)
	return s, nil
}

// end closes the child's input and waits for it.
func (c *child) end() {
	_ = c.orders.Close()
	if c.process != nil {
		select {
		case <-c.exited:
		case <-time.After(stopWithin):
			c.kill()
		}
	}
	_ = c.answers.Close()
}
