// Package scrub reads the checksums of the embedded store's files again, while the store is served. Without
// it a damaged record is noticed when the store starts, or when somebody needs it and it reads as not found.
//
// A pass reads every record of every stream, on a twentieth of a processor. What seems damaged may be in the
// middle of a write: it counts if it is the same after a pause.
package scrub

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/natsconf/embedded"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

const (
	// idleShare is how much longer the pause after each file is than its reading took.
	idleShare = 19
	// againAfter is when what seems damaged is read again; a write of the server takes milliseconds.
	againAfter = 2 * time.Second
)

// Store is the store that is read.
type Store interface {
	// Examine reads the records of a stream, and calls pause after each file.
	Examine(stream string, pause func() error) ([]embedded.Damage, error)
	NoteDamage(d embedded.Damage)
	Failure() error
}

// Scrubber is the actor that reads the store.
type Scrubber struct {
	store Store
	every time.Duration
	log   zerolog.Logger

	ended   atomic.Int64 // when all records had been read the last time, in Unix nanoseconds
	damaged atomic.Int64 // places that were found damaged, in the last pass or since

	sleep func(context.Context, time.Duration) error // tests replace it
}

// New returns a scrubber that begins a pass so often. The start of the store has read all records.
func New(store Store, every time.Duration, log zerolog.Logger) *Scrubber {
	s := &Scrubber{store: store, every: every, log: log, sleep: wait.Pause}
	s.ended.Store(time.Now().UnixNano())
	return s
}

// String names the actor in the supervisor's log.
func (s *Scrubber) String() string { return "scrubber" }

// Serve makes one pass after another until ctx ends.
func (s *Scrubber) Serve(ctx context.Context) error {
	next := time.Now().Add(s.every)
	for {
		if err := s.sleep(ctx, time.Until(next)); err != nil {
			return err
		}
		next = time.Now().Add(s.every)
		if err := s.PassOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn().Err(err).Msg("the records of the store could not be read again")
		}
	}
}

// PassOnce reads every record once. A store that has failed is not read: its start does that. The error is
// the failure then, or that of a file.
func (s *Scrubber) PassOnce(ctx context.Context) error {
	found := int64(0)
	var unread error
	for _, stream := range topology.StreamNames() {
		if err := s.store.Failure(); err != nil {
			return err
		}
		damages, err := s.examine(ctx, stream)
		if ctx.Err() != nil {
			return err
		}
		if err != nil { // a file that cannot be read is a damaged place, too
			found++
			unread = errors.Join(unread, err)
		}
		for _, d := range damages {
			found++
			s.damaged.Store(max(s.damaged.Load(), found))
			s.store.NoteDamage(d)
		}
	}
	s.damaged.Store(found)
	if unread == nil {
		s.ended.Store(time.Now().UnixNano())
	}
	return unread
}

// examine returns what is damaged in a stream, and stays so.
func (s *Scrubber) examine(ctx context.Context, stream string) ([]embedded.Damage, error) {
	damages, err := s.read(ctx, stream)
	if err != nil || len(damages) == 0 {
		return nil, err
	}
	if err := s.sleep(ctx, againAfter); err != nil {
		return nil, err
	}
	again, err := s.read(ctx, stream)
	return slices.DeleteFunc(again, func(d embedded.Damage) bool {
		return !slices.ContainsFunc(damages, func(before embedded.Damage) bool {
			return before.File == d.File && before.What == d.What && before.First == d.First
		})
	}), err
}

func (s *Scrubber) read(ctx context.Context, stream string) ([]embedded.Damage, error) {
	began := time.Now()
	return s.store.Examine(stream, func() error {
		err := s.sleep(ctx, idleShare*time.Since(began))
		began = time.Now()
		return err
	})
}

// State returns when all records had been read the last time, and how many places were found damaged.
func (s *Scrubber) State() (ended time.Time, damaged int) {
	return time.Unix(0, s.ended.Load()).UTC(), int(s.damaged.Load())
}

// Measure shows the state in a registry.
func (s *Scrubber) Measure(r prometheus.Registerer) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "verifyd_store_scrub_age_seconds",
			Help: "How long ago every record of the embedded store had been read, by the start or since.",
		}, func() float64 {
			ended, _ := s.State()
			return time.Since(ended).Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "verifyd_store_damaged_records",
			Help: "Places in the files of the embedded store that the last reading found damaged.",
		}, func() float64 {
			_, damaged := s.State()
			return float64(damaged)
		}),
	)
}
