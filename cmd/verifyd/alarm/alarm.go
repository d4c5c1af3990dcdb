// Package alarm notifies operators of conditions that need attention: once for each cause, and once more when
// it is over, however many processes see it.
//
// The same mechanism notifies accounts of conditions that last, with records of its own (Config.Stream).
//
// The law:
//
//  1. A cause is a type and what it is about. Its record in the stream is changed only by a process that has
//     read it (a conditional write). The process that opens or ends a cause sends the event; if it dies
//     before that, another takes over after notifierLease.
//  2. A cause stays open while any process reports it. A process that is silent for reporterLease no longer
//     reports anything.
//  3. A cause that was sent as raised is sent as resolved. A cause that ended before it could be sent is not
//     sent at all.
//  4. An event is sent at least once, with the same id each time, so that a receiver recognizes a repeat.
package alarm

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	// Every is the interval between checks of the causes, and so about how long it takes until operators are
	// notified.
	Every = 10 * time.Second
	// reporterLease is how long a report of a cause is valid; it is renewed every reporterRenewal.
	reporterLease   = 2 * time.Minute
	reporterRenewal = 30 * time.Second
	// notifierLease is how long one process tries to notify before another may.
	notifierLease = time.Minute
	// keptResolved is how long the record of a resolved cause is kept, for people who look.
	keptResolved = time.Hour
	// checkTimeout bounds one check of the causes.
	checkTimeout = 30 * time.Second
	// noteTimeout bounds the note that a notification was sent.
	noteTimeout = 5 * time.Second

	recordVersion = 1
	// Subject is the prefix of the subjects of events: the type follows.
	Subject = topology.SubjectAlarms + "."
)

// ToOperators announces events in the log, and on the subject that monitoring listens to.
func ToOperators(conn *natsconf.Conn, log zerolog.Logger) func(Event) {
	return func(e Event) {
		log.Warn().Str("type", string(e.Type)).Str("status", string(e.Status)).Str("about", e.About).
			Str("alarm", e.ID).Str("detail", e.Detail).Msg("operator event")
		if data, err := json.Marshal(e); err == nil {
			conn.Emit(Subject+string(e.Type), data)
		}
	}
}

// record is a cause as it is stored.
type record struct {
	Version   int                  `json:"v"`
	Event     Event                `json:"event"`
	Until     time.Time            `json:"until,omitzero"`
	Reporters map[string]time.Time `json:"reporters,omitempty"` // when each last reported it
	Notified  bool                 `json:"told"`
	Tries     int                  `json:"tries"`
	Notifier  time.Time            `json:"teller,omitzero"` // until when the present notifier has time

	sequence uint64 // of the message; 0: there is none
}

// Config is what a Keeper needs.
type Config struct {
	Conn *natsconf.Conn
	// Stream and Prefix select where the records are stored; if empty, in the operators' bucket.
	Stream, Prefix string
	// Name is what the log calls the keeper; "alarms" if empty.
	Name    string
	Sources []func(ctx context.Context) []Condition
	// Announce is called once for each event before it is sent; it may be nil.
	Announce func(e Event)
	// Notify sends an event to its recipients; nil: announcing it is enough. After an error it is tried
	// again.
	Notify  func(ctx context.Context, e Event) error
	Log     zerolog.Logger
	Metrics prometheus.Registerer // nil: no metrics
	Now     func() time.Time      // the store's time when nil
}

// Keeper is the actor that checks the causes and notifies operators.
type Keeper struct {
	c        Config
	self     string
	notified *prometheus.CounterVec
	pending  prometheus.Gauge

	looking sync.Mutex // one check at a time: sources remember what they saw
	judges  bool       // in this check, what others reported may be ended by the time
}

// New returns a keeper. It does nothing until served.
func New(c Config) *Keeper {
	if c.Now == nil {
		c.Now = c.Conn.Clock.Now
	}
	if c.Stream == "" {
		c.Stream = topology.BucketStream(topology.BucketAlarms)
		c.Prefix = topology.BucketSubject(topology.BucketAlarms, "")
	}
	c.Name = cmp.Or(c.Name, "alarms")
	k := &Keeper{
		c: c, self: rand.Text(),
		notified: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_alarms_total",
			Help: "Operator events that this process reported, by type and status.",
		}, []string{"type", "status"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_alarms_untold",
			Help: "Operator events of the whole service that could not be reported yet.",
		}),
	}
	if c.Metrics != nil {
		c.Metrics.MustRegister(k.notified, k.pending)
	}
	return k
}

// Serve checks the causes until ctx ends.
func (k *Keeper) Serve(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := k.CheckOnce(ctx); err != nil && ctx.Err() == nil {
				k.c.Log.Warn().Err(err).Str("of", k.c.Name).
					Msg("the alarms cannot be looked at")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CheckOnce compares what this process sees with what is stored, and sends the notifications that are this
// process's to send. Its error is natsconf.ErrUnavailable.
func (k *Keeper) CheckOnce(ctx context.Context) error {
	k.looking.Lock()
	defer k.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	records, err := k.read(ctx)
	if err != nil {
		return err
	}
	k.judges = k.c.Conn.Clock.Judge(ctx) == nil
	seen := map[string]Condition{}
	for _, source := range k.c.Sources {
		for _, c := range source(ctx) {
			seen[k.subject(c.Type, c.About)] = c
		}
	}
	for s, c := range seen {
		if _, ok := records[s]; !ok && !c.Over {
			records[s] = record{
				Version: recordVersion, Event: Event{Type: c.Type, About: c.About, Status: Resolved},
				Notified: true,
			}
		}
	}
	pending := 0
	for s, r := range records {
		c, is := seen[s]
		if next, changed := k.next(r, c, is); changed {
			r = k.change(ctx, s, next)
		}
		if !r.Notified {
			pending++
		}
	}
	k.pending.Set(float64(pending))
	return nil
}

// next returns the next state of a record. It is pure except for the clock and new ids.
func (k *Keeper) next(r record, c Condition, is bool) (record, bool) {
	now := k.c.Now().UTC()
	holds := is && !c.Over
	switch {
	case !r.Notified && now.Before(r.Notifier):
		return r, false // another process is notifying
	case r.Event.Status == Resolved && r.Notified && holds:
		return record{
			Version: recordVersion, sequence: r.sequence, Until: c.Until,
			Reporters: map[string]time.Time{k.self: now}, Tries: 1, Notifier: now.Add(notifierLease),
			Event: Event{
				ID: "alarm_" + rand.Text(), Type: c.Type, About: c.About, Status: Raised, At: now, Since: now,
				Detail: c.Detail, Data: c.Data,
			},
		}, true
	case r.Event.Status == Resolved && r.Notified:
		return r, false
	case r.Event.Status == Raised:
		changed := k.report(&r, holds, now)
		if over := c.Over || k.judges && !now.Before(r.Until); len(r.Reporters) == 0 && over {
			return resolved(r, now), true
		} else if r.Notified {
			return r, changed
		}
	}
	r.Tries, r.Notifier = r.Tries+1, now.Add(notifierLease) // the notifier did not finish
	return r, true
}

// report updates the reporters of a raised record.
func (k *Keeper) report(r *record, holds bool, now time.Time) (changed bool) {
	reporters := maps.Clone(r.Reporters)
	if k.judges {
		maps.DeleteFunc(reporters, func(_ string, at time.Time) bool { return now.Sub(at) >= reporterLease })
	}
	last, mine := reporters[k.self]
	switch {
	case !holds:
		delete(reporters, k.self)
	case !mine || now.Sub(last) >= reporterRenewal:
		if reporters == nil {
			reporters = map[string]time.Time{}
		}
		reporters[k.self] = now
		changed = true
	}
	changed = changed || len(reporters) != len(r.Reporters)
	r.Reporters = reporters
	return changed
}

// resolved ends a record: a cause that was not notified needs no resolution.
func resolved(r record, now time.Time) record {
	was := r.Notified
	r.Event.Status, r.Event.At = Resolved, now
	r.Reporters, r.Until = nil, time.Time{}
	r.Notified, r.Tries, r.Notifier = !was, 0, time.Time{}
	if was {
		r.Tries, r.Notifier = 1, now.Add(notifierLease)
	}
	return r
}

// change stores a record and, if that made this process the notifier, notifies. It returns what is stored as
// far as is known.
func (k *Keeper) change(ctx context.Context, s string, r record) record {
	notify := !r.Notified
	stored, err := k.store(ctx, s, r)
	if err != nil {
		if !errors.Is(err, natsconf.ErrConflict) {
			k.c.Log.Warn().Err(err).Str("type", string(r.Event.Type)).Msg("an alarm cannot be stored")
		}
		return r // another process was faster, or the next check finds out
	}
	r.sequence = stored
	if !notify || !k.notify(ctx, r) {
		return r
	}
	r.Notified = true
	// A notification may take all of the check's time. If this is not stored, a cause that ends now is not
	// sent as resolved.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	if _, err := k.store(ctx, s, r); err != nil {
		k.c.Log.Warn().Err(err).Str("type", string(r.Event.Type)).
			Msg("an alarm was sent, and will be sent again")
	}
	return r
}

// notify sends an event to its recipients, and reports whether they were reached.
func (k *Keeper) notify(ctx context.Context, r record) bool {
	e := r.Event
	// At the second try too: the process of the first may have ended before it announced the event, or not
	// have learnt that its record is stored.
	if k.c.Announce != nil && (r.Tries <= 2 || k.c.Notify == nil) {
		k.c.Announce(e)
	}
	if k.c.Notify != nil {
		if err := k.c.Notify(ctx, e); err != nil {
			k.c.Log.Warn().Err(err).Str("type", string(e.Type)).Str("alarm", e.ID).
				Msg("an alarm could not be reported")
			return false
		}
	}
	k.notified.WithLabelValues(string(e.Type), string(e.Status)).Inc()
	return true
}

// store replaces the record that was read. Its errors are natsconf's.
func (k *Keeper) store(ctx context.Context, s string, r record) (sequence uint64, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{
		Subject: s, Data: data, Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(r.sequence, 10)},
		},
	}
	if r.Event.Status == Resolved && r.Notified {
		m.Header.Set(jetstream.MsgTTLHeader, keptResolved.String())
	}
	ack, err := k.c.Conn.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, natsconf.Kind(err)
	}
	return ack.Sequence, nil // also of a store that has failed: its alarm may be sent twice, and must be sent
}

// read reads all records. Records of newer builds are left alone.
func (k *Keeper) read(ctx context.Context) (map[string]record, error) {
	msgs, err := k.c.Conn.Newest(ctx, k.c.Stream, k.c.Prefix+">")
	if err != nil {
		return nil, err
	}
	records := map[string]record{}
	for _, m := range msgs {
		var r record
		meta, err := m.Metadata()
		if err != nil || json.Unmarshal(m.Data(), &r) != nil || r.Version != recordVersion {
			continue
		}
		r.sequence = meta.Sequence.Stream
		records[m.Subject()] = r
	}
	return records, nil
}

// subject returns the subject of a cause's record. What the cause is about may be any text, so the subject
// has its hash.
func (k *Keeper) subject(t Type, about string) string {
	sum := sha256.Sum256([]byte(about))
	return k.c.Prefix + string(t) + "." + hex.EncodeToString(sum[:8])
}
