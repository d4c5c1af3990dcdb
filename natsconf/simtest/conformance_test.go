package simtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/simtest"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) {
	os.Exit(natstest.Tests(m).Run())
}

// TestConformance applies each rule to the real server and to the simulated broker, and compares the
// observations.
func TestConformance(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			natstest.NeedsEmbedded(t, "the simulated broker is one server")
			var simulated []string
			synctest.Test(t, func(t *testing.T) {
				o := open(t, connect(t, simtest.New(simtest.Options{Unknown: func(what string) {
					t.Errorf("the simulated broker does not know: %s", what)
				}})))
				rule(o)
				simulated = o.seen
			})
			o := open(t, natstest.Start(t))
			rule(o)
			if len(o.seen) == 0 {
				t.Error("nothing was seen")
			}
			if !slices.Equal(o.seen, simulated) {
				t.Errorf("the real server:\n  %s\nthe simulated broker:\n  %s",
					strings.Join(o.seen, "\n  "), strings.Join(simulated, "\n  "))
			}
		})
	}
}

func connect(t *testing.T, b *simtest.Broker) *natsconf.Conn {
	t.Helper()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		Embedded: b.Endpoint("test"), Name: t.Name(), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
	return conn
}

// observer acts on a store, and records what it sees.
type observer struct {
	*testing.T

	conn *natsconf.Conn
	ctx  context.Context
	seen []string
}

func open(t *testing.T, c *natsconf.Conn) *observer {
	t.Helper()
	return &observer{T: t, conn: c, ctx: t.Context()}
}

func (o *observer) note(format string, args ...any) {
	o.seen = append(o.seen, fmt.Sprintf(format, args...))
}

// publish stores a message, and records the answer.
func (o *observer) publish(subject, data string, header ...string) {
	o.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{}}
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	ack, err := o.conn.JS.PublishMsg(o.ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		o.note("publish %s: %s", subject, describe(err))
		return
	}
	o.note("publish %s: stored %s %d, duplicate %t", subject, ack.Stream, ack.Sequence, ack.Duplicate)
}

// describe formats an error by its kind.
func describe(err error) string {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return fmt.Sprintf("%d %d %s", api.Code, api.ErrorCode, api.Description)
	}
	for _, known := range []error{
		natsconf.ErrConflict, natsconf.ErrNotFound, natsconf.ErrUnavailable, natsconf.ErrUncertain,
		jetstream.ErrNoStreamResponse, nats.ErrNoResponders, jetstream.ErrNoHeartbeat, nats.ErrTimeout,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

// last records the last message on a subject.
func (o *observer) last(stream, subject string) {
	o.Helper()
	m, err := o.conn.Last(o.ctx, stream, subject)
	o.raw("last on "+subject, m, err)
}

func (o *observer) raw(what string, m *jetstream.RawStreamMsg, err error) {
	if err != nil {
		o.note("%s: %s", what, describe(err))
		return
	}
	o.note("%s: %s %d %q, dated %t", what, m.Subject, m.Sequence, m.Data,
		time.Since(m.Time).Abs() < time.Minute)
}

// anyTime is the bound of what may happen at once.
var anyTime time.Time

// gone waits until a subject has no message, which must not be so before an instant.
func (o *observer) gone(stream, subject string, notBefore time.Time) {
	o.Helper()
	natstest.Await(o, subject+" is gone", func() bool {
		_, err := o.conn.Last(o.ctx, stream, subject)
		return errors.Is(err, natsconf.ErrNotFound)
	})
	o.note("%s is gone, early %t", subject, time.Now().Before(notBefore))
}

// consume creates a durable consumer on the retries, where the newest message of a subject replaces the one
// before.
func (o *observer) consume(config jetstream.ConsumerConfig) jetstream.Consumer {
	o.Helper()
	config.Durable, config.FilterSubjects = "c", []string{"retry.*"}
	config.AckPolicy = jetstream.AckExplicitPolicy
	c, err := o.conn.JS.CreateOrUpdateConsumer(o.ctx, topology.StreamRetries, config)
	if err != nil {
		o.Fatal(err)
	}
	return c
}

const ackWait = 4 * time.Second

// take takes the next message, which must not arrive before an instant, and records it.
func (o *observer) take(c jetstream.Consumer, notBefore time.Time) jetstream.Msg {
	o.Helper()
	m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		o.note("take: %s", describe(err))
		o.Fatal(o.seen)
	}
	meta, err := m.Metadata()
	if err != nil {
		o.Fatal(err)
	}
	o.note("take: %s %q, given %d, sequences %d and %d, left %d, early %t", m.Subject(), m.Data(),
		meta.NumDelivered, meta.Sequence.Stream, meta.Sequence.Consumer, meta.NumPending,
		time.Now().Before(notBefore))
	return m
}

// counted waits until the consumer has counted the messages that it has not delivered yet. The server counts
// a message a moment after it has acknowledged it.
func (o *observer) counted(waiting uint64) {
	o.Helper()
	natstest.Await(o, fmt.Sprint(waiting, " messages wait"), func() bool {
		s, err := o.conn.ConsumerState(o.ctx, topology.StreamRetries, "c")
		return err == nil && s.Waiting == waiting
	})
}

// asked waits until the consumer holds a number of requests. The server takes them up one after another, a
// moment after it has received them, and a message may come in between.
func (o *observer) asked(c jetstream.Consumer, requests int) {
	o.Helper()
	natstest.Await(o, fmt.Sprint(requests, " requests wait"), func() bool {
		info, err := c.Info(o.ctx)
		return err == nil && info.NumWaiting == requests
	})
}

// none records whether there is nothing to take at this moment.
func (o *observer) none(c jetstream.Consumer) {
	o.Helper()
	batch, err := c.FetchNoWait(5)
	if err != nil {
		o.Fatal(err)
	}
	for m := range batch.Messages() {
		o.note("there is: %s %q", m.Subject(), m.Data())
	}
	o.note("taken: %v", batch.Error())
}

// state records the position of a consumer, once it has a number of messages pending.
func (o *observer) state(given uint64) {
	o.Helper()
	var s natsconf.ConsumerState
	natstest.Await(o, fmt.Sprint(given, " messages are pending"), func() (is bool) {
		var err error
		s, err = o.conn.ConsumerState(o.ctx, topology.StreamRetries, "c")
		return err == nil && s.Given == given
	})
	o.note("waiting %d, given %d, floor %d", s.Waiting, s.Given, s.Floor)
}

func (o *observer) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.ctx, 10*time.Second)
	defer cancel()
	if err := o.conn.NC.FlushWithContext(ctx); err != nil {
		o.Fatal(err)
	}
}

func (o *observer) messages(what string, msgs []jetstream.Msg, err error) {
	var all []string
	for _, m := range msgs {
		all = append(all, fmt.Sprintf("%s %q", m.Subject(), m.Data()))
	}
	if what == "newest" {
		slices.Sort(all) // it has no order
	}
	o.note("%s: %s, %v", what, strings.Join(all, ", "), err)
}
