package child

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

	"verifyd/cmd/verifyd-bench/bench/proc"
	"verifyd/cmd/verifyd-bench/bench/report"
)

// The kinds of child.
const (
	Generator   = "generator"    // answers prepared bytes: the limit of the generator
	BareHandler = "bare-handler" // the same JSON in and out, and nothing else
	BareClient  = "bare-client"  // net/http's client, against the same receiver
	BareSession = "bare-session" // the requests of a whole session, and nothing else
	Publish     = "publish"      // synced publishes, and nothing else
	Complete    = "complete"     // store.Store.Complete, without HTTP
)

// Command is the command under which the bench's own binary is one of these children.
const Command = "child"

// Config is the first line that a child reads; orders follow, one a line. At the end of its input a child
// ends, so that none outlives a killed bench.
type Config struct {
	Store  StoreConfig `json:"store,omitzero"`
	Target string      `json:"target,omitempty"` // URL of the receiver
	CA     []byte      `json:"ca,omitempty"`     // its authority and the network's, PEM

	Network   Network `json:"network,omitzero"`     // where codes are redeemed
	PageBytes int     `json:"page_bytes,omitempty"` // length of a page
}

// Network is an identity network, and the client id of a child there.
type Network struct {
	Issuer       string `json:"issuer"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// StoreConfig configures the store of a child that writes.
type StoreConfig struct {
	Dir       string `json:"dir"`
	Sync      string `json:"sync"`
	NATSURL   string `json:"nats_url,omitempty"`
	NATSCreds string `json:"nats_creds,omitempty"`
	Replicas  int    `json:"replicas,omitempty"`
}

// Order is one measurement, or its preparation.
type Order struct {
	Prepare  int           `json:"prepare,omitempty"` // how many to prepare; nothing is measured
	Clients  int           `json:"clients,omitempty"`
	Batch    int           `json:"batch,omitempty"` // messages per atomic batch; 0: published singly
	Duration time.Duration `json:"duration,omitempty"`
}

// reply answers an order, and the configuration.
type reply struct {
	Address string        `json:"address,omitempty"` // where it listens, for a child that does
	Ops     int64         `json:"ops"`
	Took    time.Duration `json:"took"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Errors  int64         `json:"errors"`
	Error   string        `json:"error,omitempty"` // the first one
	Failed  string        `json:"failed,omitempty"`
}

// Child is the bench's own binary as a child, as the bench sees it.
type Child struct {
	*proc.Process

	Address string // where it listens, if it does

	orders  *os.File // its standard input
	answers *os.File // its standard output
	replies *bufio.Reader
}

// Start runs a binary whose command named Command runs Main, with additional variables, as a child of a kind.
func Start(ctx context.Context, file string, env []string, kind string, c Config) (*Child, error) {
	stdin, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	answers, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), stdin.Close(), orders.Close())
	}
	p, err := proc.Start(file, []string{Command, kind}, env, stdin, stdout)
	err = errors.Join(err, stdin.Close(), stdout.Close()) // the child has its own
	ch := &Child{Process: p, orders: orders, answers: answers, replies: bufio.NewReader(answers)}
	var r reply
	if err == nil {
		r, err = ch.exchange(ctx, c)
	}
	if err != nil {
		ch.End()
		return nil, err
	}
	ch.Address = r.Address
	return ch, nil
}

// exchange sends one line and returns the reply to it.
func (c *Child) exchange(ctx context.Context, line any) (reply, error) {
	stop := context.AfterFunc(ctx, c.Kill)
	defer stop()
	var r reply
	b, err := json.Marshal(line)
	if err == nil {
		_, err = c.orders.Write(append(b, '\n'))
	}
	if err == nil {
		b, err = c.replies.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		<-c.Exited
		return r, c.Failure()
	case err != nil:
		return r, fmt.Errorf("talk to the child: %w", err)
	case r.Failed != "":
		return r, errors.New(r.Failed)
	}
	return r, nil
}

// Do makes the child carry out an order.
func (c *Child) Do(ctx context.Context, o Order) error {
	_, err := c.exchange(ctx, o)
	return err
}

// Measured makes the child carry out an order, and returns its report and its resource usage.
func (c *Child) Measured(ctx context.Context, o Order) (report.Sample, error) {
	u := c.Measure()
	r, err := c.exchange(ctx, o)
	if err != nil {
		return report.Sample{}, err
	}
	s := report.Sample{
		Clients: o.Clients, Ops: r.Ops, Took: r.Took, P50: r.P50, P99: r.P99, Errors: r.Errors,
		FirstErr: r.Error,
	}
	s.CPU, s.Peak = u.Used()
	return s, nil
}

// End closes the child's input and waits for it.
func (c *Child) End() {
	_ = c.orders.Close()
	if c.Process != nil {
		c.Await()
	}
	_ = c.answers.Close()
}
