package service

import (
	"context"
	"time"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/edge/web"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/scrub"
)

// addScrubber adds the actor that reads the records of the embedded store again.
func addScrubber(p *Program) {
	if p.Store.Embedded == nil || p.Config.StoreScrub == 0 {
		return
	}
	p.scrubber = scrub.New(p.Store.Embedded, p.Config.StoreScrub, p.Config.Log)
	p.scrubber.Measure(p.Registry)
	p.add("scrubber", p.scrubber)
}

// recordsOf returns what this process knows about the records of its store; nil: it has none of its own, or
// does not read them again.
func recordsOf(p *Program) *fleet.Records {
	if p.scrubber == nil {
		return nil
	}
	r := &fleet.Records{}
	r.Read, r.Damaged = p.scrubber.State()
	r.Read = r.Read.Truncate(time.Second)
	return r
}

// recordsCheck reports damage in the files of the embedded store, also of streams that no session needs.
func recordsCheck(p *Program) web.Check {
	return web.Check{Name: "records", Advisory: true, Check: func() (string, error) {
		for _, f := range p.Store.Embedded.Damages() {
			return "", &f
		}
		if r := recordsOf(p); r != nil {
			return r.String(), nil
		}
		return "none is known to be damaged", nil
	}}
}

// recordsWatch reports each stream of the embedded store that is damaged.
func recordsWatch(p *Program) func(context.Context) []alarm.Condition {
	return func(context.Context) (found []alarm.Condition) {
		if p.Store.Embedded == nil {
			return nil
		}
		for _, f := range p.Store.Embedded.Damages() {
			found = append(found, alarm.Condition{
				Type: alarm.StoreDamaged, About: f.Stream, Detail: f.Error(),
				Data: map[string]any{"stream": f.Stream, "since": f.At.UTC().Truncate(time.Millisecond)},
			})
		}
		return found
	}
}
