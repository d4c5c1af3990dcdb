// Package alarm notifies operators of what they should look at: once for each cause, and once more when it is
// over, however many processes see it.
//
// The same mechanism notifies accounts of what has been open for a while, with records of its own
// (Config.Stream).
//
// The law:
//
//  1. A cause is a type and what it is about. Its record in the stream is changed only by a process that has
//     read it (a conditional write). The process that opens or ends a cause sends the event; if it dies
//     before that, another takes over after tellerLease.
//  2. A cause stays open while any process reports it. A process that is silent for reporterLease no longer
//     reports anything.
//  3. A cause that was sent as raised is sent as resolved. A cause that ended before it could be sent is not
//     sent at all.
//  4. An event is sent at least once, with the same id each time, by which a receiver recognizes a repeat.
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
	// Every is how often the causes are looked at, and so about how long it takes until operators are told.
	Every = 10 * time.Second
	// reporterLease is after how long without a word a process no longer reports a cause; it says one each
	// reporterWord.
	reporterLease = 2 * time.Minute
	reporterWord  = 30 * time.Second
	// tellerLease is how long one process tries to tell, before another may.
	tellerLease = time.Minute
	// keptResolved is how long the record of a cause that is over stays, for people who look.
	keptResolved = time.Hour
	// lookWait bounds one look.
	lookWait = 30 * time.Second

	recordVersion = 1
	// Subject is below which events are published: its type follows.
	Subject = topology.SubjectAlarms + "."
)

// Type names a kind of cause. The names are part of what operators build on: none is ever changed.
type Type string

// The types.
const (
	StoreHigh          Type = "store.high"
	QuotaNear          Type = "account.quota_near"
	ReceiverFailing    Type = "receiver.failing"
	DeliveriesUnknown  Type = "deliveries.unknown"
	BacklogOld         Type = "backlog.old"
	NetworkUnavailable Type = "network.unavailable"
	FactsUnreadable    Type = "facts.unreadable"
	CopyBehind         Type = "copy.behind"
)

// Status is whether a cause is there.
type Status string

// The states of a cause.
const (
	Raised   Status = "raised"
	Resolved Status = "resolved"
)

// Condition is a cause as one process sees it now.
type Condition struct {
	Type   Type
	About  string         // what it is about, as a host or an id; empty: the whole service
	Detail string         // one sentence for people, without secrets and without anything of a user
	Data   map[string]any // the figures in it
	// Until is until when it holds by itself, though nobody reports it; zero: while it is reported.
	Until time.Time
	// Over says that it is known not to be so, which ends it whatever Until says.
	Over bool
}

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

// Event is what operators are told, as JSON.
type Event struct {
	ID     string         `json:"id"` // the same for every copy
	Type   Type           `json:"type"`
	Status Status         `json:"status"`
	About  string         `json:"about,omitempty"`
	At     time.Time      `json:"at"`
	Since  time.Time      `json:"since"` // when it was raised
	Detail string         `json:"detail"`
	Data   map[string]any `json:"data,omitempty"`
}

// record is a cause as it is stored.
type record struct {
	Version   int                  `json:"v"`
	Event     Event                `json:"event"`
	Until     time.Time            `json:"until,omitzero"`
	Reporters map[string]time.Time `json:"reporters,omitempty"` // when each last said so
	Told      bool                 `json:"told"`
	Tries     int                  `json:"tries"`
	Teller    time.Time            `json:"teller,omitzero"` // until when the present teller has time

	sequence uint64 // of the message; 0: there is none
}

// Config is what a Keeper needs.
type Config struct {
	Conn *natsconf.Conn
	// Stream and Prefix are where the records are: operators' in their bucket where empty.
	Stream, Prefix string
	// Name is the actor's in the supervisor's log; "alarms" where empty.
	Name    string
	Sources []func(ctx context.Context) []Condition
	// Announce is called once for each event before it is told; nil: nobody listens.
	Announce func(e Event)
	// Tell brings an event to whom it concerns; nil: that it was announced is enough. An error means that it
	// is tried again.
	Tell    func(ctx context.Context, e Event) error
	Log     zerolog.Logger
	Metrics prometheus.Registerer // nil: nothing is measured
	Now     func() time.Time      // time.Now when nil
}

// Keeper is the actor that looks at the causes and tells operators.
type Keeper struct {
	c      Config
	self   string
	told   *prometheus.CounterVec
	untold prometheus.Gauge

	looking sync.Mutex // one look at a time: sources remember what they saw
}

// New makes a keeper. It does nothing until served.
func New(c Config) *Keeper {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Stream == "" {
		c.Stream = topology.BucketStream(topology.BucketAlarms)
		c.Prefix = topology.BucketSubject(topology.BucketAlarms, "")
	}
	c.Name = cmp.Or(c.Name, "alarms")
	k := &Keeper{
		c: c, self: rand.Text(),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_alarms_total", Help: "Operator events that this process told, by type and status.",
		}, []string{"type", "status"}),
		untold: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_alarms_untold",
			Help: "Operator events of the whole service that nobody could be told of yet.",
		}),
	}
	if c.Metrics != nil {
		c.Metrics.MustRegister(k.told, k.untold)
	}
	return k
}

// String names the actor in the supervisor's log.
func (k *Keeper) String() string { return k.c.Name }

// Serve looks until ctx ends.
func (k *Keeper) Serve(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := k.LookOnce(ctx); err != nil && ctx.Err() == nil {
				k.c.Log.Warn().Err(err).Str("of", k.c.Name).
					Msg("the alarms cannot be looked at")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// LookOnce compares what this process sees with what is stored, and tells what is its to tell. Its error is
// natsconf.ErrUnavailable.
func (k *Keeper) LookOnce(ctx context.Context) error {
	k.looking.Lock()
	defer k.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	records, err := k.read(ctx)
	if err != nil {
		return err
	}
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
				Told: true,
			}
		}
	}
	untold := 0
	for s, r := range records {
		c, is := seen[s]
		if next, changed := k.next(r, c, is); changed {
			r = k.change(ctx, s, next)
		}
		if !r.Told {
			untold++
		}
	}
	k.untold.Set(float64(untold))
	return nil
}

// next decides what becomes of a record. It is pure but for the clock and new ids.
func (k *Keeper) next(r record, c Condition, is bool) (record, bool) {
	now := k.c.Now().UTC()
	holds := is && !c.Over
	switch {
	case !r.Told && now.Before(r.Teller):
		return r, false // somebody is telling
	case r.Event.Status == Resolved && r.Told && holds:
		return record{
			Version: recordVersion, sequence: r.sequence, Until: c.Until,
			Reporters: map[string]time.Time{k.self: now}, Tries: 1, Teller: now.Add(tellerLease),
			Event: Event{
				ID: "alarm_" + rand.Text(), Type: c.Type, About: c.About, Status: Raised, At: now, Since: now,
				Detail: c.Detail, Data: c.Data,
			},
		}, true
	case r.Event.Status == Resolved && r.Told:
		return r, false
	case r.Event.Status == Raised:
		if changed := k.report(&r, holds, now); len(r.Reporters) == 0 && (c.Over || !now.Before(r.Until)) {
			return resolved(r, now), true
		} else if r.Told {
			return r, changed
		}
	}
	r.Tries, r.Teller = r.Tries+1, now.Add(tellerLease) // who was to tell has not
	return r, true
}

// report brings the reporters of a raised record up to date.
func (k *Keeper) report(r *record, holds bool, now time.Time) (changed bool) {
	reporters := maps.Clone(r.Reporters)
	maps.DeleteFunc(reporters, func(_ string, at time.Time) bool { return now.Sub(at) >= reporterLease })
	last, mine := reporters[k.self]
	switch {
	case !holds:
		delete(reporters, k.self)
	case !mine || now.Sub(last) >= reporterWord:
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

// resolved ends a record: what nobody was told of needs no word.
func resolved(r record, now time.Time) record {
	was := r.Told
	r.Event.Status, r.Event.At = Resolved, now
	r.Reporters, r.Until = nil, time.Time{}
	r.Told, r.Tries, r.Teller = !was, 0, time.Time{}
	if was {
		r.Tries, r.Teller = 1, now.Add(tellerLease)
	}
	return r
}

// change stores a record and, if that made this process the teller, tells. It returns what stands as far as
// is known.
func (k *Keeper) change(ctx context.Context, s string, r record) record {
	tell := !r.Told
	stored, err := k.store(ctx, s, r)
	if err != nil {
		if !errors.Is(err, natsconf.ErrConflict) {
			k.c.Log.Warn().Err(err).Str("type", string(r.Event.Type)).Msg("an alarm cannot be stored")
		}
		return r // another one was faster, or the next look finds out
	}
	r.sequence = stored
	if !tell || !k.tell(ctx, r) {
		return r
	}
	r.Told = true
	if _, err := k.store(ctx, s, r); err != nil {
		k.c.Log.Warn().Err(err).Str("type", string(r.Event.Type)).
			Msg("an alarm was told, and will be told again")
	}
	return r
}

// tell tells whom it concerns, and reports whether they were reached.
func (k *Keeper) tell(ctx context.Context, r record) bool {
	e := r.Event
	if r.Tries == 1 && k.c.Announce != nil {
		k.c.Announce(e)
	}
	if k.c.Tell != nil {
		if err := k.c.Tell(ctx, e); err != nil {
			k.c.Log.Warn().Err(err).Str("type", string(e.Type)).Str("alarm", e.ID).
				Msg("an alarm could not be told")
			return false
		}
	}
	k.told.WithLabelValues(string(e.Type), string(e.Status)).Inc()
	return true
}

// store writes a record over the one that was read. Its errors are natsconf's.
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
	if r.Event.Status == Resolved && r.Told {
		m.Header.Set(jetstream.MsgTTLHeader, keptResolved.String())
	}
	ack, err := k.c.Conn.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, natsconf.Kind(err)
	}
	return ack.Sequence, nil
}

// read reads all records. What a newer build wrote is left to it.
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

// subject is where a cause's record stands. What it is about may be any text: its hash stands there.
func (k *Keeper) subject(t Type, about string) string {
	sum := sha256.Sum256([]byte(about))
	return k.c.Prefix + string(t) + "." + hex.EncodeToString(sum[:8])
}
