package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/thejerf/suture/v4"

	"verifyd/dispatcher"
	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/simtest"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/topology"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

const (
	timeout  = 5 * time.Second
	retryFor = time.Minute
)

var (
	storeKey = secretbox.Key{1} // constant: each process that plays a schedule stores the same
	policy   = urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
)

type secrets struct{}

func (secrets) SigningSecrets(string) ([]string, bool) {
	return []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, true
}

// process is what edges and dispatchers have in common: a connection to the broker, and a store.
type process struct {
	w        *world
	name     string
	ahead    *atomic.Int64 // by how much the clock of its machine is
	endpoint *simtest.Endpoint
	conn     *natsconf.Conn
	store    *store.Store
	stop     context.CancelFunc // of its actors
	actors   sync.WaitGroup
}

// start starts a process on a machine whose clock is ahead, and waits for the broker. ok is false if ctx ends
// first.
func (w *world) start(ctx context.Context, name string, ahead *atomic.Int64) (p *process, ok bool) {
	p = &process{w: w, name: name, ahead: ahead, endpoint: w.broker.Endpoint(name)}
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		Embedded: p.endpoint, Name: name, Log: zerolog.Nop(),
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	if err != nil {
		return nil, false
	}
	p.conn = conn
	var actors context.Context
	actors, p.stop = context.WithCancel(context.Background())
	serve := func(writer *natsconf.Writer) *natsconf.Writer {
		p.actors.Go(func() { _ = writer.Serve(actors) })
		return writer
	}
	p.actors.Go(func() { _ = storetime.NewKeeper(conn.Clock, zerolog.Nop()).Serve(actors) })
	p.store = store.New(store.Config{
		Conn: conn, Key: storeKey,
		Completions: serve(natsconf.NewWriter(conn, topology.StreamCompletions)),
		Pending:     serve(natsconf.NewWriter(conn, topology.BucketStream(topology.BucketSessions))),
		Retries:     serve(natsconf.NewSingleWriter(conn, topology.StreamRetries)),
		Identities:  serve(natsconf.NewWriter(conn, topology.BucketStream(topology.BucketIdentities))),
	})
	return p, true
}

// close ends what start began.
func (p *process) close() {
	p.stop()
	p.actors.Wait()
	p.conn.Close()
}

// worker is a dispatcher or an edge: a process, and those that replace it.
type worker struct {
	w     *world
	name  string
	work  context.Context
	ahead atomic.Int64 // by how much the clock of its machine is
	// returns the function that a process runs until its context ends
	part func(l *life) (serve func(context.Context), err error)
	all  sync.WaitGroup // of its lives

	mu    sync.Mutex
	life  *life
	lives int // how many have started
}

// life is one process of a worker.
type life struct {
	*process

	number int             // of the worker's lives
	pages  http.Handler    // of an edge
	ctx    context.Context // ends with the process
	kill   context.CancelFunc
	died   chan struct{} // closed when the process is killed

	mu    sync.Mutex
	conns []*simtest.Conn // to receivers and identity networks
}

// begin starts a life, after a pause.
func (k *worker) begin(pause time.Duration) {
	k.all.Go(func() {
		select {
		case <-time.After(pause):
		case <-k.work.Done():
			return
		}
		p, ok := k.w.start(k.work, k.name, &k.ahead)
		if !ok {
			return
		}
		defer p.close()
		for p.conn.Clock.Read(k.work) != nil { // as a service does before it begins
			if k.work.Err() != nil {
				return
			}
			time.Sleep(time.Second) // in virtual time
		}
		k.mu.Lock()
		k.lives++
		l := &life{process: p, number: k.lives, died: make(chan struct{})}
		k.mu.Unlock()
		l.ctx, l.kill = context.WithCancel(k.work)
		defer l.kill()
		serve, err := k.part(l)
		if err != nil {
			k.w.fail("%s: %v", k.name, err)
			return
		}
		k.mu.Lock()
		k.life = l
		k.mu.Unlock()
		serve(l.ctx)
	})
}

// runDispatcher makes a process a dispatcher.
func runDispatcher(l *life) (func(context.Context), error) {
	d, err := dispatcher.New(dispatcher.Config{
		Conn: l.conn, Sessions: l.store, Secrets: secrets{}, Policy: policy, Log: zerolog.Nop(),
		Timeout: timeout, RetryFor: retryFor,
		// with the defaults hardly anything would wait in a schedule, or be taken for stray
		ScheduleFrom: 4 * time.Second, Reconcile: 5 * time.Second,
		// not the default, which has the id of this process: decoding JSON allocates a string only if it is
		// not in a cache by hash, allocations decide when stacks grow, and for that the runtime draws from
		// the scheduler's random stream
		Worker: fmt.Sprintf("%s.%d", l.name, l.number),
		Random: func() float64 { return l.w.draw("pause of %s", l.name).Float64() },
		Now:    l.now,
		Client: callback.New(callback.Config{
			RootCAs: receiverCA.Pool(), Policy: policy, Timeout: timeout, Dial: l.dial,
		}),
		Supervise: suture.Spec{FailureBackoff: time.Second, EventHook: func(suture.Event) {}},
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		_ = d.Serve(ctx)
		l.w.noteStrays(d.Strays())
	}, nil
}

// now is the clock of the process. The last read before the first byte of a callback may be long after the
// claim, as if the process had been paused. The other reads are made under locks, where virtual time would
// not advance.
func (l *life) now() time.Time {
	caller, _, _, _ := runtime.Caller(1)
	if strings.HasSuffix(runtime.FuncForPC(caller).Name(), "connSender).send") {
		l.w.pauseOf(l.name)
	}
	return l.conn.Clock.Now()
}

// gone reports whether the process was killed.
func (l *life) gone() bool {
	select {
	case <-l.died:
		return true
	default:
		return false
	}
}

func (l *life) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if l.gone() {
		return nil, errGone
	}
	conn, err := l.w.dial(ctx, l.name, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone() {
		conn.Reset()
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

// current returns the running life; nil if there is none.
func (k *worker) current() *life {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.life
}

// cut cuts the connections to the broker. New ones can be opened.
func (k *worker) cut() {
	if l := k.current(); l != nil {
		l.endpoint.Cut()
	}
}

// replace kills the process, after which nothing that it does is seen, and starts another.
func (k *worker) replace(pause time.Duration) {
	k.mu.Lock()
	l := k.life
	k.life = nil
	k.mu.Unlock()
	if l == nil {
		return // one is starting
	}
	l.endpoint.Kill()
	l.mu.Lock()
	close(l.died)
	for _, c := range l.conns {
		c.Reset()
	}
	l.mu.Unlock()
	l.kill()
	k.begin(pause)
}

// ask makes the running process do something. If the process was killed in that time, its answer is lost.
func (k *worker) ask(do func(ctx context.Context, l *life) error) error {
	l := k.current()
	if l == nil {
		return errGone
	}
	if err := do(l.ctx, l); !l.gone() {
		return err
	}
	return errGone
}

// unanswered reports whether an error allows that a call is repeated.
func unanswered(err error) bool {
	return errors.Is(err, natsconf.ErrUncertain) || errors.Is(err, natsconf.ErrUnavailable) ||
		errors.Is(err, natsconf.ErrConflict) || errors.Is(err, errGone)
}
