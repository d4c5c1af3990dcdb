package bench

import (
	"context"
	"fmt"
	"net/http"
)

// initClients are the numbers of clients at once of init and its ceiling.
var initClients = []int{1, 16, 64, 256}

// halfLoadAt is the number of clients whose rate the paced init takes half of.
const halfLoadAt = 64

// httpLoad is clients that post the same request again and again.
type httpLoad struct {
	conns []*httpConn
	steps []step
}

func newHTTPLoad(clients int, address string, request []byte) *httpLoad {
	l := &httpLoad{}
	for range clients {
		c := newHTTPConn(address)
		l.conns = append(l.conns, c)
		l.steps = append(l.steps, func(ctx context.Context) error {
			a, err := c.do(ctx, request)
			if err != nil {
				return err
			}
			return judgeInit(a)
		})
	}
	return l
}

// minInitBytes is what an answer to init has at least: a token twice, and an instant.
const minInitBytes = 100

func judgeInit(a answer) error {
	if a.status != http.StatusOK || len(a.body) < minInitBytes {
		return fmt.Errorf("%d %s", a.status, a.body)
	}
	return nil
}

func (l *httpLoad) close() {
	for _, c := range l.conns {
		c.close()
	}
}

// measurable is a child whose use is measured.
type measurable interface{ measure() usage }

// closedHTTP measures a closed loop against a child, after a warm-up.
func (b *bench) closedHTTP(ctx context.Context, p measurable, row string, clients int, address string,
	request []byte) sample {
	l := newHTTPLoad(clients, address, request)
	defer l.close()
	closedLoop(ctx, b.o.warmUp(), l.steps)
	u := p.measure()
	s := loadSample(row, "", clients, closedLoop(ctx, b.o.Duration, l.steps))
	u.into(&s)
	return s
}

// generator measures the generator itself.
func (b *bench) generator(ctx context.Context) error {
	server, err := b.o.startChild(ctx, kindGenerator, childConfig{})
	if err != nil {
		return err
	}
	defer server.end()
	request := httpRequest(http.MethodPost, server.address, initPath, jsonHeader,
		initBody("https://127.0.0.1:8443"+receiverPath))
	for run := range b.o.Runs {
		for _, c := range initClients {
			b.announce(run, "generator, c = %d", c)
			b.add(ctx, b.closedHTTP(ctx, server.process, rowGenerator, c, server.address, request))
		}
	}
	return ctx.Err()
}

// inits measures POST /verify/init beside the bare handler, in turns.
func (b *bench) inits(ctx context.Context) error {
	r, err := newReceiver(1)
	if err != nil {
		return err
	}
	defer r.close()
	handler, err := b.o.startChild(ctx, kindBareHandler, childConfig{})
	if err != nil {
		return err
	}
	defer handler.end()
	for run := range b.o.Runs {
		if err := b.initsOnce(ctx, run, r, handler); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (b *bench) initsOnce(ctx context.Context, run int, r *receiver, handler *child) error {
	bare := httpRequest(http.MethodPost, handler.address, initPath, jsonHeader, initBody(r.url(0)))
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
		ceiling := b.closedHTTP(ctx, handler.process, rowBareHandler, c, handler.address, bare)
		b.add(ctx, ceiling)
		if s == nil {
			continue
		}
		b.announce(run, "init, c = %d", c)
		got := b.closedHTTP(ctx, s, rowInit, c, s.listen, s.initRequest(r.url(0)))
		got.ceiling = &ceiling
		b.add(ctx, got)
		if c == halfLoadAt {
			half = got.rate() / 2
		}
	}
	if s == nil || half == 0 {
		return ctx.Err()
	}
	b.announce(run, "init at half load, %.0f/s", half)
	b.add(ctx, b.halfLoad(ctx, s, r, half))
	return ctx.Err()
}

// halfLoad measures init on a schedule, at half of the rate that a closed loop reached.
func (b *bench) halfLoad(ctx context.Context, s *service, r *receiver, rate float64) sample {
	l := newHTTPLoad(halfLoadAt, s.listen, s.initRequest(r.url(0)))
	defer l.close()
	pacedLoop(ctx, rate, b.o.warmUp(), l.steps)
	u := s.measure()
	got := loadSample(rowInit, "at half load", halfLoadAt, pacedLoop(ctx, rate, b.o.Duration, l.steps))
	u.into(&got)
	return got
}

// signinClients is how many users sign in at once.
const signinClients = 64

// signinRate is more than any two cores do: so many sessions a second are started ahead.
const signinRate = 1500

// signinRow measures the way of users from the page to the outcome.
func (b *bench) signinRow(ctx context.Context) error {
	r, err := newReceiver(1)
	if err != nil {
		return err
	}
	defer r.close()
	for run := range b.o.Runs {
		if err := b.signinOnce(ctx, run, r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (b *bench) signinOnce(ctx context.Context, run int, r *receiver) error {
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
	steps := make([]step, signinClients)
	for i := range steps {
		u := newUser(s, b.network)
		defer u.close()
		steps[i] = func(ctx context.Context) error {
			select {
			case token := <-tokens:
				return u.signIn(ctx, token)
			default:
				return errNoMore
			}
		}
	}
	closedLoop(ctx, b.o.warmUp(), steps)
	used := s.measure()
	got := loadSample(rowSignin, "", signinClients, closedLoop(ctx, b.o.Duration, steps))
	used.into(&got)
	b.add(ctx, got)
	return ctx.Err()
}

// begin starts sessions and returns their tokens.
func (s *service) begin(ctx context.Context, n int, r *receiver) (tokens chan string, err error) {
	conns := make(chan *httpConn, signinClients)
	for range signinClients {
		conns <- newHTTPConn(s.listen)
	}
	defer func() {
		for range signinClients {
			(<-conns).close()
		}
	}()
	tokens = make(chan string, n)
	request := s.initRequest(r.url(0))
	err = inParallel(ctx, signinClients, n, func(ctx context.Context, _ int) error {
		c := <-conns
		defer func() { conns <- c }()
		a, err := c.do(ctx, request)
		if err == nil {
			err = judgeInit(a)
		}
		if err != nil {
			return fmt.Errorf("start a session: %w", err)
		}
		tokens <- tokenOf(a.body)
		return nil
	})
	return tokens, err
}

// endToEnd measures whole sessions: init, sign-in, callback. A session counts when its callback has arrived,
// and its latency begins with the user's last request.
func (b *bench) endToEnd(ctx context.Context) error {
	r, err := newReceiver(1)
	if err != nil {
		return err
	}
	defer r.close()
	for run := range b.o.Runs {
		if err := b.endToEndOnce(ctx, run, r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (b *bench) endToEndOnce(ctx context.Context, run int, r *receiver) error {
	b.announce(run, "end-to-end, c = %d", signinClients)
	s, end, err := b.freshService(ctx, r, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	request := s.initRequest(r.url(0))
	t := r.count(0)
	waits := make([]client, signinClients) // from the last request to the receipt
	steps := make([]step, signinClients)
	for i := range steps {
		u := newUser(s, b.network)
		defer u.close()
		steps[i] = func(ctx context.Context) error {
			a, err := u.service.do(ctx, request)
			if err == nil {
				err = judgeInit(a)
			}
			if err != nil {
				return fmt.Errorf("start a session: %w", err)
			}
			token := tokenOf(a.body)
			if err := u.signIn(ctx, token); err != nil {
				return err
			}
			at, err := t.wait(ctx, webhookID(token))
			if err != nil {
				return err
			}
			waits[i].latencies = append(waits[i].latencies, at.Sub(u.returned))
			return nil
		}
	}
	closedLoop(ctx, b.o.warmUp(), steps)
	for i := range waits {
		waits[i].latencies = nil
	}
	used := s.measure()
	l := closedLoop(ctx, b.o.Duration, steps)
	whole := loadSample(rowEndToEnd, "", signinClients, l)
	used.into(&whole)
	receipts := gather(waits, l.took)
	whole.note("whole_session_p50_ms", milliseconds(whole.p50))
	whole.p50, whole.p99 = percentile(receipts.latencies, 0.50), percentile(receipts.latencies, 0.99)
	_, whole.duplicates, _ = t.seen()
	b.add(ctx, whole)
	return ctx.Err()
}
