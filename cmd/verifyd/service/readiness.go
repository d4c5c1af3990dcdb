package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/cmd/verifyd/version"
	"verifyd/edge/account"
	"verifyd/edge/web"
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

const (
	// CheckStore is the check of whether new sessions have room.
	CheckStore = "store"
	// checkDeliveries is the check of whether deliveries begin.
	checkDeliveries = "deliveries"
)

// readiness is the checks of /readyz, in addition to assetChecks. Requests are turned away if this process
// can do nothing with them: no connection, no keys, no answer to its writes, none from any stream. The state
// of each stream, the settings of the store, its room and the clock are the same for every process, so they
// are advisory: turning requests away from all processes would help nobody, and would keep the users of open
// sessions from the room that is left for them. A store that is about to be moved still accepts sessions and
// outcomes, so that is advisory, too. Once it is being sealed it accepts nothing, and requests to this
// process must go to one on the new store.
//
// External servers may be without a leader, or this process without one of them, for as long as requests
// wait; until then it is ready.
func (p *Program) readiness() []web.Check {
	var pause time.Duration
	if p.Store.Embedded == nil {
		pause = p.storeWait()
	}
	checks := []web.Check{
		{Name: "jetstream", Check: func() (string, error) {
			if err := p.Store.Conn.Noticed(); err != nil { // a filesystem that is asked may not answer
				return "", err
			}
			if lost := p.Store.Conn.LostSince(); !p.Store.Conn.Connected() && time.Since(lost) >= pause {
				return "", lostError(p.Store.Conn.Servers.Unusable())
			}
			nc := p.Store.Conn.NC
			if p.Store.Embedded != nil {
				return "NATS " + nc.ConnectedServerVersion() + " in this process", nil
			}
			return fmt.Sprintf("NATS %s at %s", nc.ConnectedServerVersion(), nc.ConnectedUrlRedacted()), nil
		}},
		{Name: "streams", Check: p.Observer.Check},
		{Name: "keys", Check: func() (string, error) {
			if !p.Mirror.Ready() {
				return "", account.ErrNotReady
			}
			return keysState(p.Mirror.BlindSince(), p.Mirror.InDoubt(), pause)
		}},
		{Name: "writers",
			Check: func() (string, error) { return "", storestate.CheckWriters(pause, p.writers...) }},
		{Name: "standing", Check: func() (string, error) { return "", p.stateMonitor.Check() }},
		{Name: "clock", Advisory: true, Check: func() (string, error) {
			skew := p.Store.Conn.Clock.Skew().Abs().Round(time.Millisecond)
			return fmt.Sprintf("%s off the store's", skew), p.Store.Conn.Clock.Check()
		}},
		{Name: checkDeliveries, Advisory: true,
			Check: func() (string, error) { return "", p.stateMonitor.CheckDeliveries() }},
		{Name: CheckStore, Advisory: true, Check: func() (string, error) {
			used, limit := p.gauge.Use()
			return StoreUseText(used, limit), p.gauge.Check()
		}},
	}
	if p.copier != nil {
		checks = append(checks, p.copyCheck())
	}
	if p.Store.Embedded != nil {
		checks = append(checks, recordsCheck(p))
	}
	return checks
}

// lostError reports that there is no connection, with why if that is known.
func lostError(why error) error {
	if why == nil {
		return errors.New("not connected, reconnecting")
	}
	return fmt.Errorf("not connected, reconnecting: %w", why)
}

// keysState is the state of keys that were seen until an instant, zero while they are as stored. A doubt
// about them that lasts longer than requests wait is an error: no key is accepted meanwhile.
func keysState(blindSince time.Time, inDoubt bool, pause time.Duration) (string, error) {
	if blindSince.IsZero() {
		return "as they are stored now", nil
	}
	blind := time.Since(blindSince)
	if inDoubt && blind > pause {
		return "", account.ErrNotReady
	}
	return fmt.Sprintf("as of %s ago", blind.Round(time.Second)), nil
}

// presenceOf is what this process reports about itself to operators who ask. The state of each stream is left
// out: they ask the leaders themselves.
func presenceOf(p *Program, checks []web.Check) func() fleet.Process {
	self := fleet.Process{
		PID: os.Getpid(), Version: version.Text(), Since: time.Now().UTC().Truncate(time.Second),
		Key: p.Store.Key.Fingerprint(), Roles: rolesOf(p),
	}
	self.Host, _ = os.Hostname() // empty: unknown
	slices.Sort(self.Roles)
	for _, n := range p.nets.logIn {
		self.Networks = append(self.Networks, n.ID())
	}
	if p.Config.Edge {
		self.Names = p.Config.OwnNames()
	}
	return func() fleet.Process {
		now := self
		var failing []web.Failing
		now.Ready, failing = web.Judge(checks)
		for _, f := range failing {
			now.Degraded = append(now.Degraded, fleet.Failure{Check: f.Name, Reason: f.Reason})
		}
		now.SealsUnder, now.KeyWaits = p.Store.Ring.Seals(), p.Store.Ring.Waits()
		now.Store.Used, now.Store.Limit = p.gauge.Use()
		now.Copy, now.Records, now.Certificates = copyState(p), recordsOf(p), certificates(p)
		if p.sender != nil {
			now.Hosts, now.Backlog, now.Strays = p.sender.Hosts(), p.sender.Backlog(), p.sender.Strays()
		}
		return now
	}
}

// certificates returns those that this process has read, and those that servers have shown to it.
func certificates(p *Program) []certificate.Certificate {
	return slices.Concat(p.Config.Certificates, p.Store.Conn.Servers.Certificates(), p.Config.Met.List())
}

// measureReady shows whether this process is ready, by the roles that it has: alerts count the roles that are
// served, whatever labels a scraper gives to processes.
func measureReady(p *Program, checks []web.Check) {
	for _, role := range rolesOf(p) {
		p.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "verifyd_" + role + "_ready",
			Help: "1 while this process is ready and has the role " + role + ", 0 while it is not ready.",
		}, func() float64 {
			if ready, _ := web.Judge(checks); ready {
				return 1
			}
			return 0
		}))
	}
}

// StoreUseText describes how much of the store is used.
func StoreUseText(used, limit int64) string {
	if limit <= 0 {
		return fmt.Sprintf("%d MiB used", used>>20)
	}
	return fmt.Sprintf("%d of %d MiB used", used>>20, limit>>20)
}

// addObserver adds the actor that asks about the streams. No process is ready before the first answer.
func addObserver(p *Program) {
	p.Observer = provision.NewObserver(p.Store.Conn, topology.New(p.Config.Store.Topology))
	p.Observer.Measure(p.Registry)
	p.add("stream observer", p.Observer).Up = p.Observer.Answered()
}

// assetChecks report the state of JetStream's assets, as the server has last reported it.
func assetChecks(p *Program) []web.Check {
	t := topology.New(p.Config.Store.Topology)
	advisory := func(name string, check func(provision.Health) (string, error)) web.Check {
		return web.Check{Name: name, Advisory: true,
			Check: func() (string, error) { return check(p.Observer.Health()) }}
	}
	checks := []web.Check{
		advisory("topology", provision.Health.CheckTopology),
	}
	for i, s := range t.Streams {
		checks = append(checks, advisory("stream "+s.Name, func(h provision.Health) (string, error) {
			return h.Streams[i].Check()
		}))
	}
	if !p.Config.Dispatcher {
		return checks
	}
	for i, c := range t.Consumers {
		checks = append(checks, advisory("consumer "+c.Config.Durable,
			func(h provision.Health) (string, error) { return h.Consumers[i].Check() }))
	}
	return checks
}

// Knows waits until this process's mirror has seen a new API key, which takes the time of one message.
func (p *Program) Knows(ctx context.Context, secret string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.Mirror.Lookup(secret); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the API key: %w", ctx.Err())
		}
	}
}
