package dispatcher

import (
	"cmp"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/thejerf/suture/v4"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/bounds"
	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/pauses"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

// Secrets looks up what signs an account's callbacks, in the order of their signatures: signing secrets,
// newest first, and private keys.
type Secrets interface {
	SigningSecrets(account string) ([]string, bool)
}

// Config is what a Dispatcher needs. Zero durations and counts get their defaults.
type Config struct {
	Conn     *natsconf.Conn
	Sessions *store.Store
	Secrets  Secrets
	Client   *callback.Client
	Policy   *urlpolicy.Policy
	// Pauses knows which receiver hosts an operator has paused; none when nil.
	Pauses *pauses.Mirror
	// Listeners are developers' own machines, where callbacks of test sessions go instead, while a developer
	// listens there; none when nil.
	Listeners *devtunnel.Relay
	Log       zerolog.Logger
	Metrics   prometheus.Registerer // none when nil
	Tracer    trace.Tracer          // nothing is traced when nil
	// Worker is the name of this process in the facts that it writes. No other process may have it, and none
	// may have had it. Default its host, its process id and six random characters.
	Worker string
	// TraceReceivers: callbacks of traced sessions carry their trace context.
	TraceReceivers bool
	// OnAttempt is called with each try at a live delivery that has ended; may be nil. It must not block.
	OnAttempt func(AttemptEnd)
	// Supervise configures the supervisor of this package's actors.
	Supervise suture.Spec
	// Timeout is the timeout of a whole attempt, as the client has it. Default 10 s.
	Timeout time.Duration
	// RetryFor is how long a callback that was not sent is tried again after it became due, by its completion
	// or the request to send it again. Default 15 min.
	RetryFor time.Duration
	// EndBefore is how long before an outcome leaves the store its delivery is brought to an end. It leaves
	// room for a stop of all dispatchers. Default 30 min.
	EndBefore time.Duration
	// DefaultPolicy is the policy of keys that have none of their own. Default PolicyOnce.
	DefaultPolicy sessions.Policy
	// Connections bounds the connections to one destination, and so the number of callbacks that are on their
	// way to it at once. Default 64, at most MaxConnections.
	Connections int
	// Attempts bounds all attempts that this process has under way, and AccountAttempts those of one account.
	// While other accounts have attempts, an account gets less: fewer than are free. Defaults 2048, and half
	// of Attempts.
	Attempts, AccountAttempts int
	// DrainTimeout is how long work under way may go on after Serve's context ended. Default 15 s: a whole
	// attempt and a margin.
	DrainTimeout time.Duration
	// Idle is how long a destination waits for work before it retires. Default 5 s.
	Idle time.Duration
	// ScheduleFrom is the shortest pause for which a delivery waits as a message schedule, instead of with
	// its consumer. Default 30 s.
	ScheduleFrom time.Duration
	// BreakerOpen is how long a destination that does not answer is left alone before one delivery probes it.
	// Default 10 s.
	BreakerOpen time.Duration
	// UnreadablePause is how long a message that this process cannot read waits for its next try. Default 1
	// min.
	UnreadablePause time.Duration
	// Reconcile is how long after a look for deliveries that no dispatcher has the next one follows, at the
	// latest. Default 2 min.
	Reconcile time.Duration
	// LosesFacts is set if the store may lose facts that it has confirmed, and go on: it does not sync each.
	LosesFacts bool
	Now        func() time.Time // the store's time when nil
	// Random draws the pauses, in [0, 1); rand.Float64 when nil.
	Random func() float64
}

// AttemptEnd is how a try at a delivery ended.
type AttemptEnd struct {
	Session  sessions.ID
	Account  string
	Receiver string        // host and port
	Verdict  facts.Verdict // empty: provably nothing was sent
	Class    failure.Class
	Status   int  // the receiver's HTTP status; 0: none was read
	Again    bool // another try follows by itself
}

func (c Config) withDefaults() Config {
	if c.Worker == "" {
		c.Worker = workerName()
	}
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.RetryFor = cmp.Or(c.RetryFor, 15*time.Minute)
	c.EndBefore = cmp.Or(c.EndBefore, 30*time.Minute)
	c.Connections = cmp.Or(c.Connections, 64)
	c.Attempts = cmp.Or(c.Attempts, defaultAttempts)
	c.AccountAttempts = cmp.Or(c.AccountAttempts, max(1, c.Attempts/2))
	c.DrainTimeout = cmp.Or(c.DrainTimeout, c.Timeout+5*time.Second)
	c.Idle = cmp.Or(c.Idle, 5*time.Second)
	c.ScheduleFrom = cmp.Or(c.ScheduleFrom, topology.AckWait)
	c.BreakerOpen = cmp.Or(c.BreakerOpen, 10*time.Second)
	c.UnreadablePause = cmp.Or(c.UnreadablePause, time.Minute)
	c.Reconcile = cmp.Or(c.Reconcile, 2*time.Minute)
	if c.Now == nil {
		c.Now = c.Conn.Clock.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return c
}

func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "." + strconv.Itoa(os.Getpid()) + "." + crypto.Text()[:6]
}

func (c Config) validate() error {
	if c.Conn == nil || c.Sessions == nil || c.Secrets == nil || c.Client == nil || c.Policy == nil {
		return errors.New("dispatcher: Conn, Sessions, Secrets, Client and Policy are all needed")
	}
	if c.Connections < 0 || c.Connections > MaxConnections {
		return fmt.Errorf("dispatcher: %d connections to a destination; use 1 to %d, or 0 for the default",
			c.Connections, MaxConnections)
	}
	if c.Attempts < 0 || c.Attempts > MaxAttempts || c.AccountAttempts < 0 ||
		c.AccountAttempts > MaxAttempts {
		return fmt.Errorf("dispatcher: %d attempts under way in all and %d of an account; "+
			"use 1 to %d, or 0 for the defaults", c.Attempts, c.AccountAttempts, MaxAttempts)
	}
	return nil
}

// MaxAttempts is the maximum of Config.Attempts and Config.AccountAttempts: some 70 KB and up to ten
// descriptors each.
const MaxAttempts = 100_000

// defaultAttempts is how many attempts 512 MB and the usual limits of descriptors carry while all of them
// hang.
const defaultAttempts = 2048

// MaxConnections is the maximum of Config.Connections. As many deliveries may wait at a destination, which
// must have room for all that it may send at once.
const MaxConnections = 1024

// metrics are this package's measurements; labels come from bounded sets of the domain.
type metrics struct {
	attempts  *prometheus.CounterVec // by verdict and class
	notSent   *prometheus.CounterVec // by class
	conflicts prometheus.Counter
	inFlight  prometheus.Gauge
	held      prometheus.Gauge
	breakers  *prometheus.GaugeVec // by state
	backlog   *prometheus.GaugeVec // by where it waits
	oldest    prometheus.Gauge
	retryFor  prometheus.Gauge
	strays    prometheus.Counter
	known     prometheus.Gauge
	took      prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_delivery_attempts_total",
			Help: "Callback attempts that ended with a result, by verdict and class.",
		}, []string{"verdict", "class"}),
		notSent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_delivery_not_sent_total",
			Help: "Tries in which provably nothing was sent, by class.",
		}, []string{"class"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verifyd_delivery_claim_conflicts_total", Help: "Claims lost to another owner.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_deliveries_in_flight", Help: "Deliveries being dialled or sent.",
		}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_deliveries_held",
			Help: "Completions held by this process, under way or waiting at their destination.",
		}),
		known: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_destinations", Help: "Receiver hosts that have an actor at this moment.",
		}),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "verifyd_delivery_breakers",
			Help: "Destinations by the state of their circuit breaker: closed; open, left alone because " +
				"nobody answers there; half-open, being probed.",
		}, []string{"state"}),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "verifyd_delivery_backlog",
			Help: "Deliveries of the whole service that have not ended: not yet with a dispatcher " +
				"(waiting), under way or pausing (given), or scheduled for later.",
		}, []string{"where"}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_delivery_oldest_seconds",
			Help: "Age of the oldest delivery of the whole service that has not ended; 0 when there is none.",
		}),
		retryFor: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_delivery_retry_for_seconds",
			Help: "How long a delivery that could not be sent is retried, a setting.",
		}),
		strays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verifyd_delivery_strays_total",
			Help: "Deliveries that had not ended and that no message brought to a dispatcher any more; " +
				"they were handed in.",
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "verifyd_delivery_receipt_seconds",
			Help: "From when the callback became due (the completion, or the request to send it again) to " +
				"the end of the receiver's answer.",
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 900},
		}),
	}
	if r != nil {
		r.MustRegister(m.attempts, m.notSent, m.conflicts, m.inFlight, m.held, m.breakers, m.backlog,
			m.oldest, m.retryFor, m.strays, m.known, m.took)
	}
	return m
}

// answered records how long after the delivery became due the receiver had answered, with the trace that it
// belongs to, if there is one.
func (m *metrics) answered(after time.Duration, traceID string) {
	if e, ok := m.took.(prometheus.ExemplarObserver); ok && traceID != "" {
		e.ObserveWithExemplar(after.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	m.took.Observe(after.Seconds())
}

// shared is what the actors and the deliveries of a dispatcher have in common.
type shared struct {
	c           Config
	since       atomic.Int64 // when it began to deliver, or reached the store again, in milliseconds
	metrics     *metrics
	held        *heldSet
	unconfirmed unconfirmedClaims
	budget      *bounds.Budget
	addresses   *bounds.Addresses
	claims      *bounds.Gate
	keptFor     atomic.Int64 // for how long outcomes are kept, in nanoseconds; 0: not known
}

func (d *shared) now() time.Time { return d.c.Now().UTC().Truncate(time.Millisecond) }

// policyOf returns the policy that holds for a completion.
func (d *shared) policyOf(c sessions.Completion) sessions.Policy {
	if c.Policy != "" {
		return c.Policy
	}
	return d.c.DefaultPolicy
}

// pauseOf returns the last pause of a receiver, which may have ended.
func (d *shared) pauseOf(receiver string) (pauses.Pause, bool) {
	if d.c.Pauses == nil || receiver == "" {
		return pauses.Pause{}, false
	}
	return d.c.Pauses.Of(receiver)
}
