// Package service is the running program: serve, the demo and the end-to-end tests boot the same Program.
//
// It starts inside out (store, writers, dispatcher, edge) and stops outside in, so that no part is asked for
// something that is gone already: order (layers.go) is the table of all actors. Every actor runs by name
// under a supervisor, which restarts it when it fails, and the job goes on.
package service

import (
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/cmd/verifyd/trace"
	"verifyd/dispatcher"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/account/keyuse"
	"verifyd/edge/account/notice"
	"verifyd/edge/limit"
	"verifyd/natsconf"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/scrub"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/transfer"
	"verifyd/sessions/pauses"
	sessionstore "verifyd/sessions/store"
)

// Program is the whole service. main and the end-to-end tests both boot it; it is served once.
type Program struct {
	Config   config.Config
	Registry *prometheus.Registry

	// Ready is closed when everything is up; the next fields may be read from then on.
	Ready  chan struct{}
	own    func() time.Time // the clock for what this process measures itself
	Base   string           // {base_url}
	Admin  string           // address of the operators' server; empty: none
	Store  *store.Store
	Mirror *keymirror.Mirror
	uses   *keyuse.Uses // nil if this process runs no edge
	// of the streams' leaders and copies
	Observer *provision.Observer
	nets     networks
	sender   *dispatcher.Dispatcher // nil: this process delivers nothing
	Paused   *pauses.Mirror         // the same
	traces   *trace.Exporter        // nil: no tracing
	Alarms   *alarm.Keeper
	// of what accounts are notified of; nil: this process delivers nothing
	AccountAlarms *alarm.Keeper
	copier        *transfer.Copier // nil: there is no copy of the store
	scrubber      *scrub.Scrubber  // nil: the store's records are not read again
	quota         *limit.Quota     // nil if this process runs no edge

	notices *notice.Queue

	Receivers   *receivers // what the dispatcher learns about them
	Unreadables *unreadables

	// what edge and dispatcher share
	sessions     *sessionstore.Store
	gauge        *storestate.Gauge
	watch        *sessionstore.Watch
	stateMonitor *storestate.Monitor
	usage        *natsconf.Writer
	writers      []*natsconf.Writer

	actors map[string]*supervise.Actor
	added  map[string]*supervise.Actor // those of them that have not been started yet
	layers []*supervise.Layer          // in the order of their start
	// opened is what listens before its server runs. Once that one has taken it over, Close does nothing.
	opened []io.Closer
}

// Kill makes an actor fail once it runs, for tests of its restart, and reports whether there is one of this
// name.
func (p *Program) Kill(name string) bool {
	a := p.actors[name]
	if a != nil {
		a.Kill()
	}
	return a != nil
}
