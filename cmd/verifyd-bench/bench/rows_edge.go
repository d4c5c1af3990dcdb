package bench

import (
	"context"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/report"
)

// initClients are the numbers of clients at once of init and its ceiling.
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

// inits measures POST /verify/init beside the bare handler, in turns.
func (b *bench) inits(ctx context.Context) error {
	r, err := load.NewReceiver(1)
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
		fresh, end, err := b.freshService(ctx, r, rolesBoth)
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

// signinClients is how many users sign in at once.
const signinClients = 64

// signinRate is more than any two cores do: so many sessions a second are started ahead.
const signinRate = 1500

// signin measures the way of users from the page to the outcome.
func (b *bench) signin(ctx context.Context, run int, r *load.Receiver) error {
	b.announce(run, "signin, starting the service and sessions")
	s, end, err := b.freshService(ctx, r, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	tokens, err := s.begin(ctx, signinClients+int(signinRate*(b.o.Duration+b.o.warmUp()).Seconds()), r)
	if err != nil {
		return err
	}
	b.announce(run, "signin, c = %d", signinClients)
	steps := make([]load.Step, signinClients)
	for i := range steps {
		u := load.NewUser(s.listen, b.network.Issuer())
		defer u.Close()
		steps[i] = func(ctx context.Context) error {
			select {
			case token := <-tokens:
				return u.SignIn(ctx, token)
			default:
				return load.ErrNoMore
			}
		}
	}
	load.Closed(ctx, b.o.warmUp(), steps)
	used := s.Measure()
	got := loadSample(rowSignin, "", signinClients, load.Closed(ctx, b.o.Duration, steps))
	enter(&got, used)
	b.add(ctx, got)
	return ctx.Err()
}

// begin starts sessions and returns their tokens.
func (s *service) begin(ctx context.Context, n int, r *load.Receiver) (tokens chan string, err error) {
	conns := make(chan *load.Conn, signinClients)
	for range signinClients {
		conns <- load.NewConn(s.listen)
	}
	defer func() {
		for range signinClients {
			(<-conns).Close()
		}
	}()
	tokens = make(chan string, n)
	request := s.initRequest(r.URL(0))
	err = load.InParallel(ctx, signinClients, n, func(ctx context.Context, _ int) error {
		c := <-conns
		defer func() { conns <- c }()
		token, err := c.StartSession(ctx, request)
		if err != nil {
			return err
		}
		tokens <- token
		return nil
	})
	return tokens, err
}

// endToEnd measures whole sessions: init, sign-in, callback. A session counts when its callback has arrived,
// and its latency begins with the user's last request.
func (b *bench) endToEnd(ctx context.Context, run int, r *load.Receiver) error {
	b.announce(run, "end-to-end, c = %d", signinClients)
	s, end, err := b.freshService(ctx, r, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	request := s.initRequest(r.URL(0))
	t := r.Count(0)
	waits := make([]load.Result, signinClients) // from the last request to the receipt
	steps := make([]load.Step, signinClients)
	for i := range steps {
		u := load.NewUser(s.listen, b.network.Issuer())
		defer u.Close()
		steps[i] = func(ctx context.Context) error {
			token, err := u.Service.StartSession(ctx, request)
			if err != nil {
				return err
			}
			if err := u.SignIn(ctx, token); err != nil {
				return err
			}
			at, err := t.Wait(ctx, load.WebhookID(token))
			if err != nil {
				return err
			}
			waits[i].Latencies = append(waits[i].Latencies, at.Sub(u.Returned))
			return nil
		}
	}
	load.Closed(ctx, b.o.warmUp(), steps)
	for i := range waits {
		waits[i].Latencies = nil
	}
	used := s.Measure()
	l := load.Closed(ctx, b.o.Duration, steps)
	whole := loadSample(rowEndToEnd, "", signinClients, l)
	enter(&whole, used)
	receipts := load.Join(waits).Latencies
	whole.Note("whole_session_p50_ms", report.Milliseconds(whole.P50))
	whole.P50, whole.P99 = load.Percentile(receipts, 0.50), load.Percentile(receipts, 0.99)
	_, whole.Duplicates, _ = t.Seen()
	b.add(ctx, whole)
	return ctx.Err()
}
