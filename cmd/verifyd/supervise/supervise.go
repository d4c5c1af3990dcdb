// Package supervise runs the actors of a process: each has a name, and its supervisor restarts it when it
// fails. Actors that start and stop together are a layer. It is small: packages service, store and demo run
// actors, and store knows neither of the others.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/thejerf/suture/v4"
)

// Service is what every actor of the project is.
type Service interface {
	Serve(ctx context.Context) error
}

// Actor names a service under its supervisor, reports its failures to the start, and lets tests kill it.
type Actor struct {
	Name string
	// Up, if it is set before the start, is closed once the actor is up; Await waits for it.
	Up <-chan struct{}

	service Service
	running chan context.CancelCauseFunc // of the service while it runs, for tests of its restart
	failed  chan error                   // the last failure, for the caller that waits for the start
}

// New returns an actor for a service.
func New(name string, s Service) *Actor {
	return &Actor{
		Name: name, service: s, running: make(chan context.CancelCauseFunc, 1), failed: make(chan error, 1),
	}
}

// Kill makes the actor fail, for tests of its restart, once it runs.
func (a *Actor) Kill() { (<-a.running)(errKilled) }

// String names the actor in the supervisor's log.
func (a *Actor) String() string { return a.Name }

var (
	errKilled = errors.New("killed")
	errEnded  = errors.New("ended by itself")
)

// Serve runs the service. Any end except that of its own context is a failure, after which the supervisor
// restarts it.
func (a *Actor) Serve(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(ctx)
	a.running <- cancel
	defer func() {
		select {
		case <-a.running:
		default: // Kill has it
		}
		cancel(nil)
	}()
	err := a.service.Serve(inner)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cause := context.Cause(inner); cause != nil {
		err = cause
	} else if err == nil {
		err = errEnded
	}
	select {
	case a.failed <- err:
	default:
	}
	return fmt.Errorf("%s: %w", a.Name, err)
}

const (
	// restartPause is how long a supervisor waits once an actor has failed several times in a row: long
	// enough not to spin on a lasting fault, short enough to recover when it passes.
	restartPause = time.Second
	// maxStop bounds the stop of one layer. The dispatcher's drain is the longest: an attempt of a minute at
	// most, its margin, its result.
	maxStop = 2 * time.Minute
)

// Spec configures every supervisor of the process.
func Spec(log zerolog.Logger) suture.Spec {
	return suture.Spec{
		FailureBackoff: restartPause,
		Timeout:        maxStop,
		EventHook:      func(e suture.Event) { logEvent(log, e) },
	}
}

func logEvent(log zerolog.Logger, e suture.Event) {
	switch e := e.(type) {
	case suture.EventServicePanic:
		log.Error().Str("actor", e.ServiceName).Str("panic", e.PanicMsg).Str("stack", e.Stacktrace).
			Msg("an actor panicked, restarting it")
	case suture.EventServiceTerminate:
		log.Error().Str("actor", e.ServiceName).Str("cause", fmt.Sprint(e.Err)).
			Msg("an actor failed, restarting it")
	case suture.EventBackoff:
		log.Warn().Str("supervisor", e.SupervisorName).
			Msg("actors fail in a row, pausing before the next restart")
	case suture.EventResume:
		log.Info().Str("supervisor", e.SupervisorName).Msg("restarting actors again")
	case suture.EventStopTimeout:
		log.Error().Str("actor", e.ServiceName).Msg("an actor did not stop in time")
	}
}

// Layer is a supervisor with the actors that start and stop together.
type Layer struct {
	supervisor *suture.Supervisor
	cancel     context.CancelFunc
	done       chan struct{}
}

// Start starts actors. Layers outlive the context of the caller: they stop in the program's order.
func Start(name string, log zerolog.Logger, actors ...*Actor) *Layer {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Layer{supervisor: suture.New(name, Spec(log)), cancel: cancel, done: make(chan struct{})}
	for _, a := range actors {
		l.supervisor.Add(a)
	}
	go func() {
		defer close(l.done)
		_ = l.supervisor.Serve(ctx)
	}()
	return l
}

// Stop ends the actors and waits for them.
func (l *Layer) Stop() {
	l.cancel()
	<-l.done
}

// Await waits until an actor is up, if it has Up. A failure before that ends the start: at boot a fault is
// for the operator to fix, while later it is for the supervisor.
func Await(ctx context.Context, a *Actor) error {
	if a.Up == nil {
		return nil
	}
	select {
	case <-a.Up:
		return nil
	case err := <-a.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("start %s: %w", a.Name, ctx.Err())
	}
}
