package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// ownStore is JetStream in a child: embedded as in the service, or an external server.
type ownStore struct {
	conn  *natsconf.Conn
	close func()
}

func openOwnStore(ctx context.Context, c StoreConfig) (*ownStore, error) {
	if c.NATSURL != "" {
		conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
			URL: c.NATSURL, CredsFile: c.NATSCreds, Name: "verifyd bench", Log: zerolog.Nop(),
		})
		if err != nil {
			return nil, err
		}
		return &ownStore{conn: conn, close: conn.Close}, nil
	}
	e, err := embedded.Open(embedded.Options{
		DataDir: c.Dir, Sync: embedded.SyncMode(c.Sync), Log: zerolog.Nop(),
	})
	if err != nil {
		return nil, err
	}
	stop := load.Serve(e)
	end := func() { stop(); _ = e.Close() }
	select {
	case <-e.Ready():
	case <-time.After(load.AnswerWithin):
		end()
		return nil, errors.New("the embedded server did not start")
	}
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		Embedded: e, Name: "verifyd bench", Log: zerolog.Nop(),
	})
	if err != nil {
		end()
		return nil, err
	}
	return &ownStore{conn: conn, close: func() { conn.Close(); end() }}, nil
}

// topology is what the service would declare on that store.
func (c StoreConfig) topology() topology.Topology {
	return topology.New(topology.Options{Replicas: c.Replicas, Embedded: c.NATSURL == ""})
}

// publisher writes messages of a fact's size to a stream of its own, and does nothing else.
type publisher struct {
	*ownStore

	data []byte
	next atomic.Int64
}

const (
	// PublishStream is the publisher's stream.
	PublishStream = "VERIFYD_BENCH"
	// publishBytes is about the size of a session's record or a completion.
	publishBytes = 512
)

func newPublisher(ctx context.Context, c Config) (worker, string, error) {
	s, err := openOwnStore(ctx, c.Store)
	if err != nil {
		return nil, "", err
	}
	_, err = s.conn.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: PublishStream, Subjects: []string{"verifyd_bench.*"}, Storage: jetstream.FileStorage,
		Replicas:          max(1, c.Store.Replicas),
		MaxMsgsPerSubject: 1, AllowAtomicPublish: true, Duplicates: 2 * time.Minute,
	})
	if err != nil {
		s.close()
		return nil, "", fmt.Errorf("make the stream: %w", err)
	}
	p := &publisher{ownStore: s, data: make([]byte, publishBytes)}
	if c.Store.NATSURL != "" {
		closeConn := s.close
		s.close = func() {
			_ = s.conn.JS.DeleteStream(context.WithoutCancel(ctx), PublishStream) // others may use the server
			closeConn()
		}
	}
	return p, "", nil
}

func (p *publisher) close() { p.ownStore.close() }

func (p *publisher) do(ctx context.Context, o Order) (reply, error) {
	steps := make([]load.Step, o.Clients)
	for i := range steps {
		steps[i] = p.single
		if o.Batch > 0 {
			steps[i] = func(ctx context.Context) error { return p.batch(ctx, o.Batch) }
		}
	}
	r := replyOf(load.Closed(ctx, o.Duration, steps))
	if o.Batch > 0 {
		r.Ops *= int64(o.Batch)
	}
	return r, nil
}

// msg has a subject of its own, as every fact has.
func (p *publisher) msg() *nats.Msg {
	return &nats.Msg{
		Subject: "verifyd_bench." + strconv.FormatInt(p.next.Add(1), 36), Data: p.data, Header: nats.Header{},
	}
}

func (p *publisher) single(ctx context.Context) error {
	_, err := p.conn.JS.PublishMsg(ctx, p.msg())
	return err
}

// batch publishes an atomic batch (ADR-50): the last message commits it and is answered.
func (p *publisher) batch(ctx context.Context, size int) error {
	id := nuid.Next()
	for i := 1; ; i++ {
		m := p.msg()
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i))
		if i < size {
			if err := p.conn.NC.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		m.Header.Set("Nats-Batch-Commit", "1")
		reply, err := p.conn.NC.RequestMsgWithContext(ctx, m)
		if err != nil {
			return err
		}
		return batchStored(reply.Data, size)
	}
}

func batchStored(answer []byte, size int) error {
	var a struct {
		Error *jetstream.APIError `json:"error"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("read the acknowledgement: %w", err)
	}
	if a.Error != nil {
		return a.Error
	}
	if a.Count != size {
		return fmt.Errorf("the server stored %d of %d messages", a.Count, size)
	}
	return nil
}

// completer completes sessions that it has prepared.
type completer struct {
	store    *ownStore
	sessions *load.Sessions
	ids      []sessions.ID
	next     atomic.Int64
}

func newCompleter(ctx context.Context, c Config) (worker, string, error) {
	s, err := openOwnStore(ctx, c.Store)
	if err != nil {
		return nil, "", err
	}
	if err := (provision.Ensurer{Conn: s.conn, Topology: c.Store.topology(), Update: true}).
		EnsureAtBoot(ctx); err != nil {
		s.close()
		return nil, "", err
	}
	opened := load.OpenSessions(s.conn, secretbox.NewKey(), c.Store.Sync)
	return &completer{store: s, sessions: opened}, "", nil
}

func (c *completer) close() {
	c.sessions.Close()
	c.store.close()
}

func (c *completer) do(ctx context.Context, o Order) (reply, error) {
	if o.Prepare > 0 {
		ids, err := c.sessions.CreateAll(ctx, o.Prepare, "acc_bench", func(int) string {
			return "https://127.0.0.1:8443" + load.ReceiverPath
		})
		c.ids = append(c.ids, ids...)
		return reply{}, err
	}
	steps := make([]load.Step, o.Clients)
	for i := range steps {
		steps[i] = func(ctx context.Context) error {
			i := int(c.next.Add(1)) - 1
			if i >= len(c.ids) {
				return load.ErrNoMore
			}
			return c.sessions.ReadAndComplete(ctx, c.ids[i])
		}
	}
	return replyOf(load.Closed(ctx, o.Duration, steps)), nil
}
