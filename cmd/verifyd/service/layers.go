package service

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"verifyd/cmd/verifyd/supervise"
	"verifyd/natsconf/storestate"
)

// layer is actors that start together, and stop together.
type layer struct {
	name   string
	actors []string
}

// order is every layer of a process, in the order of their start. They stop in the reverse order: what is
// used stops after what uses it. Actors that a process does not need are left out. The embedded server is not
// among them: its store starts and stops it.
var order = []layer{
	// these show others the state of the service, and so the end of everything else
	{"journal", []string{"journal"}},
	{"spans", []string{"spans"}},
	{"servers", []string{"NATS servers"}},
	// it stops after everything that writes, so that the copy of a stopped store is complete
	{"copy", []string{"copier"}},
	{"watchdog", []string{"store watchdog"}},
	{"scrub", []string{"scrubber"}},
	// what both edge and dispatcher depend on
	{"core", []string{
		"clock", "sessions writer", "completions writer", "retries writer", "idempotency writer",
		"identities writer", "usage writer", "events writer", "key mirror", "session watch",
		"store's standing", "store gauge",
	}},
	{"accounts", []string{"key uses", "account repairer"}},
	{"notice queue", []string{"notice queue"}},
	// above the writers that they use at their stop, below the actors that count
	{"meter", []string{"meter"}},
	{"steps", []string{"steps"}},
	{"stream observer", []string{"stream observer"}},
	{"pauses", []string{"pauses"}},
	{"dispatcher", []string{"dispatcher"}},
	{"dev network", []string{"dev network"}},
	{"networks", []string{"networks keeper"}},
	{"search", []string{"search"}},
	{"rate sharing", []string{"rate sharing"}},
	{"quota", []string{"quota"}},
	{"public server", []string{publicServer}},
	{"admin server", []string{adminServer}},
	{"alarms", []string{"alarms"}},
	{"notices", []string{"notice sender", "notice follower", "receivers of accounts", "notice watch"}},
	// last, so that no process is reported before it is up
	{"presence", []string{"presence"}},
}

// The servers of users and integrators, and of operators.
const (
	publicServer = "public server"
	adminServer  = "admin server"
)

// add returns an actor of the process, which runs once its layer starts.
func (p *Program) add(name string, s supervise.Service) *supervise.Actor {
	a := supervise.New(name, s)
	p.actors[name], p.added[name] = a, a
	return a
}

// startAdded starts the layers of the actors that were added since the last call, and waits for those that
// the start depends on.
func (p *Program) startAdded(ctx context.Context) error {
	for _, l := range order {
		var actors []*supervise.Actor
		for _, name := range l.actors {
			if a := p.added[name]; a != nil {
				actors = append(actors, a)
				delete(p.added, name)
			}
		}
		if actors == nil {
			continue
		}
		p.layers = append(p.layers, supervise.Start(l.name, p.Config.Log, actors...))
		for _, a := range actors {
			if err := supervise.Await(ctx, a); err != nil {
				return err
			}
		}
	}
	if len(p.added) > 0 {
		panic(fmt.Sprintf("service: no layer has the actors %q", slices.Sorted(maps.Keys(p.added))))
	}
	return nil
}

// whileOpen runs a service while the store is in service, and starts it again when the store is back in
// service.
type whileOpen struct {
	stateMonitor *storestate.Monitor
	service      supervise.Service
}

// Serve runs until ctx ends.
func (w whileOpen) Serve(ctx context.Context) error {
	for {
		inner, cancel, err := w.stateMonitor.While(ctx)
		if err != nil {
			return err
		}
		err = w.service.Serve(inner)
		left := inner.Err() != nil
		cancel()
		if ctx.Err() != nil || !left {
			return err
		}
	}
}
