package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

// background is what runs until it is stopped: actors of the project, outside of the service.
type background struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// runInBackground serves actors. A failure ends the actor; what was asked of it then fails, and is counted
// there.
func runInBackground(actors ...interface {
	Serve(ctx context.Context) error
}) *background {
	ctx, cancel := context.WithCancel(context.Background())
	b := &background{cancel: cancel}
	for _, a := range actors {
		b.wg.Go(func() { _ = a.Serve(ctx) })
	}
	return b
}

func (b *background) stop() {
	b.cancel()
	b.wg.Wait()
}

// ownStore is JetStream in a child: embedded as in the service, or an external server.
type ownStore struct {
	conn  *natsconf.Conn
	close func()
}

func openOwnStore(ctx context.Context, c storeConfig) (*ownStore, error) {
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
	server := runInBackground(e)
	end := func() { server.stop(); _ = e.Close() }
	select {
	case <-e.Ready():
	case <-time.After(answerWithin):
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

// topologyOf is what the service would declare on that store.
func (c storeConfig) topology() topology.Topology {
	return topology.New(topology.Options{Replicas: c.Replicas, Embedded: c.NATSURL == ""})
}

// publisher writes messages of a fact's size to a stream of its own, without anything around it.
type publisher struct {
	*ownStore

	data []byte
	next atomic.Int64
}

const (
	publishStream = "VERIFYD_BENCH"
	// publishBytes is about what a session's record or a completion takes.
	publishBytes = 512
)

func newPublisher(ctx context.Context, c childConfig) (worker, string, error) {
	s, err := openOwnStore(ctx, c.Store)
	if err != nil {
		return nil, "", err
	}
	_, err = s.conn.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: publishStream, Subjects: []string{"verifyd_bench.*"}, Storage: jetstream.FileStorage,
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
			_ = s.conn.JS.DeleteStream(context.WithoutCancel(ctx), publishStream) // the server is somebody's
			closeConn()
		}
	}
	return p, "", nil
}

func (p *publisher) close() { p.ownStore.close() }

func (p *publisher) do(ctx context.Context, o order) (report, error) {
	steps := make([]step, o.Clients)
	for i := range steps {
		steps[i] = p.single
		if o.Batch > 0 {
			steps[i] = func(ctx context.Context) error { return p.batch(ctx, o.Batch) }
		}
	}
	r := reportOf(closedLoop(ctx, o.Duration, steps))
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

// sessionStore is the domain's store on a connection, with the writers it needs.
type sessionStore struct {
	*store.Store

	writers *background
}

func newSessionStore(conn *natsconf.Conn, key secretbox.Key, sync string) *sessionStore {
	newWriter := natsconf.NewWriter
	if sync == syncInterval { // as in the service
		newWriter = natsconf.NewSingleWriter
	}
	pending := newWriter(conn, topology.BucketStream(topology.BucketSessions))
	completions := newWriter(conn, topology.StreamCompletions)
	return &sessionStore{
		Store: store.New(store.Config{
			Conn: conn, Pending: pending, Completions: completions, Key: key,
		}),
		writers: runInBackground(pending, completions),
	}
}

// create starts n sessions. Many go on at once, so that they share batches.
func (s *sessionStore) create(ctx context.Context, n int, account string,
	callbackURL func(i int) string) ([]sessions.ID, error) {
	ids := make([]sessions.ID, n)
	err := inParallel(ctx, fillers, n, func(ctx context.Context, i int) error {
		made, _, err := s.Create(ctx, sessions.Request{
			Account: account, Key: "key_bench", Platform: benchPlatform, PlatformUserID: benchUser,
			GuildID: benchGuild, CallbackURL: callbackURL(i),
		})
		ids[i] = made.ID
		return err
	})
	return ids, err
}

// fillers is how many callers prepare a store at once: as many as one batch takes.
const fillers = 256

// completer completes sessions that it has prepared.
type completer struct {
	store    *ownStore
	sessions *sessionStore
	ids      []sessions.ID
	next     atomic.Int64
}

func newCompleter(ctx context.Context, c childConfig) (worker, string, error) {
	s, err := openOwnStore(ctx, c.Store)
	if err != nil {
		return nil, "", err
	}
	if err := (provision.Ensurer{Conn: s.conn, Topology: c.Store.topology(), Update: true}).
		EnsureAtBoot(ctx); err != nil {
		s.close()
		return nil, "", err
	}
	return &completer{store: s, sessions: newSessionStore(s.conn, secretbox.NewKey(), c.Store.Sync)}, "", nil
}

func (c *completer) close() {
	c.sessions.writers.stop()
	c.store.close()
}

func (c *completer) do(ctx context.Context, o order) (report, error) {
	if o.Prepare > 0 {
		ids, err := c.sessions.create(ctx, o.Prepare, "acc_bench", func(int) string {
			return "https://127.0.0.1:8443" + receiverPath
		})
		c.ids = append(c.ids, ids...)
		return report{}, err
	}
	steps := make([]step, o.Clients)
	for i := range steps {
		steps[i] = func(ctx context.Context) error {
			i := int(c.next.Add(1)) - 1
			if i >= len(c.ids) {
				return errNoMore
			}
			_, err := c.sessions.Complete(ctx, c.ids[i], verified)
			return err
		}
	}
	return reportOf(closedLoop(ctx, o.Duration, steps)), nil
}

// verified is the outcome that every session gets.
var verified = sessions.Outcome{State: sessions.Verified, Network: "default"}
