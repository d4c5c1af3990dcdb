package bench

import (
	"context"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/report"
)

// initClients are the numbers of concurrent clients of init and its ceiling.
var initClients = []int{1, 16, 64, 256}

// halfLoadAt is the number of clients whose rate the paced init takes half of.
const halfLoadAt = 64

// generator measures the generator itself.
func (b *bench) generator(ctx context.Context) error {
	server, err := b.o.startChild(ctx, child.Generator, child.Config{})
	if err != nil {
		return err
	}
	defer server.End()
	request := load.InitRequest(server.Address, "", "https://127.0.0.1:8443"+load.ReceiverPath)
	for run := range b.o.Runs {
		for _, c := range initClients {
			b.announce(run, "generator, c = %d", c)
			b.add(ctx, b.o.closedInits(ctx, server, rowGenerator, c, server.Address, request))
		}
	}
	return ctx.Err()
}

// inits measures POST /verify/init in turns with the bare handler.
func (b *bench) inits(ctx context.Context) error {
	r, err := b.outside.receiver(1)
	if err != nil {
		return err
	}
	defer r.Close()
	handler, err := b.o.startChild(ctx, child.BareHandler, child.Config{})
	if err != nil {
		return err
	}
	defer handler.End()
	for run := range b.o.Runs {
		if err := b.initsOnce(ctx, run, r, handler); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (b *bench) initsOnce(ctx context.Context, run int, r *load.Receiver, handler *child.Child) error {
	bare := load.InitRequest(handler.Address, "", r.URL(0))
	var s *service
	if b.o.wants(rowInit) {
		b.announce(run, "init, starting the service")
		fresh, end, err := b.freshService(ctx, rolesBoth)
		if err != nil {
			return err
		}
		defer end()
		s = fresh
	}
	half := 0.0
	for _, c := range initClients {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.announce(run, "bare-handler, c = %d", c)
		ceiling := b.o.closedInits(ctx, handler, rowBareHandler, c, handler.Address, bare)
		b.add(ctx, ceiling)
		if s == nil {
			continue
		}
		b.announce(run, "init, c = %d", c)
		got := b.o.closedInits(ctx, s, rowInit, c, s.listen, s.initRequest(r.URL(0)))
		got.Ceiling = &ceiling
		b.add(ctx, got)
		if c == halfLoadAt {
			half = got.Rate() / 2
		}
	}
	if s == nil || half == 0 {
		return ctx.Err()
	}
	b.announce(run, "init at half load, %.0f/s", half)
	b.add(ctx, s.halfLoad(ctx, r, half))
	return ctx.Err()
}

// halfLoad measures init on a schedule, at half of the rate that a closed loop reached.
func (s *service) halfLoad(ctx context.Context, r *load.Receiver, rate float64) report.Sample {
	l := load.NewInits(halfLoadAt, s.listen, s.initRequest(r.URL(0)))
	defer l.Close()
	load.Paced(ctx, rate, s.o.warmUp(), l.Steps)
	u := s.Measure()
	got := loadSample(rowInit, "at half load", halfLoadAt, load.Paced(ctx, rate, s.o.Duration, l.Steps))
	enter(&got, u)
	return got
}
