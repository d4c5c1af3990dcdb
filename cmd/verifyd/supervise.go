package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/thejerf/suture/v4"
)

// service is what every actor of the project is.
type service interface {
	Serve(ctx context.Context) error
}

// actor gives a service a name under its supervisor, tells the boot of its failures, and lets tests kill it.
type actor struct {
	name    string
	service service
	kill    chan struct{}
	failed  chan error // the last failure, for who waits for the start
}

func newActor(name string, s service) *actor {
	return &actor{name: name, service: s, kill: make(chan struct{}), failed: make(chan error, 1)}
}

// String names the actor in the supervisor's log.
func (a *actor) String() string { return a.name }

var (
	errKilled = errors.New("killed")
	errEnded  = errors.New("ended by itself")
)

// Serve runs the service. Whatever ends it but its own context is a failure, which the supervisor answers with a restart.
func (a *actor) Serve(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-a.kill:
			cancel(errKilled)
		case <-inner.Done():
		}
	}()
	defer func() { cancel(nil); <-watched }()
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
	return fmt.Errorf("%s: %w", a.name, err)
}

const (
	// restartPause is how long a supervisor waits once an actor has failed several times in a row: long enough not to spin on
	// a lasting fault, short enough to be back when it passes.
	restartPause = time.Second
	// stopMost bounds the stop of one layer. The dispatcher's drain is the longest: an attempt of a minute at most, its margin, its result.
	stopMost = 2 * time.Minute
)

// supervision configures every supervisor of the process.
func supervision(log zerolog.Logger) suture.Spec {
	return suture.Spec{
		FailureBackoff: restartPause,
		Timeout:        stopMost,
		EventHook:      func(e suture.Event) { logEvent(log, e) },
	}
}

func logEvent(log zerolog.Logger, e suture.Event) {
	switch e := e.(type) {
	case suture.EventServicePanic:
		log.Error().Str("actor", e.ServiceName).Str("panic", e.PanicMsg).Str("stack", e.Stacktrace).Msg("an actor panicked, restarting it")
	case suture.EventServiceTerminate:
		log.Error().Str("actor", e.ServiceName).Str("cause", fmt.Sprint(e.Err)).Msg("an actor failed, restarting it")
	case suture.EventBackoff:
		log.Warn().Str("supervisor", e.SupervisorName).Msg("actors fail in a row, pausing before the next restart")
	case suture.EventResume:
		log.Info().Str("supervisor", e.SupervisorName).Msg("restarting actors again")
	case suture.EventStopTimeout:
		log.Error().Str("actor", e.ServiceName).Msg("an actor did not stop in time")
	}
}

// layer is a supervisor with the actors that start and stop together.
type layer struct {
	supervisor *suture.Supervisor
	cancel     context.CancelFunc
	done       chan struct{}
}

// startLayer starts actors. Layers outlive the context that asked for them: they stop in the program's order.
func startLayer(name string, log zerolog.Logger, actors ...*actor) *layer {
	ctx, cancel := context.WithCancel(context.Background())
	l := &layer{supervisor: suture.New(name, supervision(log)), cancel: cancel, done: make(chan struct{})}
	for _, a := range actors {
		l.supervisor.Add(a)
	}
	go func() {
		defer close(l.done)
		_ = l.supervisor.Serve(ctx)
	}()
	return l
}

// stop ends the actors and waits for them.
func (l *layer) stop() {
	l.cancel()
	<-l.done
}

// await waits until an actor is up. A failure before that ends the start: at boot a fault is for the operator to mend, while
// later it is for the supervisor.
func await(ctx context.Context, a *actor, up <-chan struct{}) error {
	select {
	case <-up:
		return nil
	case err := <-a.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("start %s: %w", a.name, ctx.Err())
	}
}
