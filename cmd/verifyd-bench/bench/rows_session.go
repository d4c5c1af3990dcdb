package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
)

const (
	// walkers is how many users go through sessions concurrently.
	walkers = 64
	// signinRate is the rate of sessions a second at which the users' waits are measured.
	signinRate = 100
	// pageBytes is the length of the ceiling's pages if no page of the service was seen.
	pageBytes = 6 << 10
)

// walked is what users go through sessions on: the service, or its ceiling.
type walked struct {
	measurable

	address      string
	init         []byte
	waits, whole string // the rows
}

// sessions measures whole sessions in turns with the ceiling: init, sign-in, callback.
func (b *bench) sessions(ctx context.Context, run int, r *load.Receiver) error {
	var got []report.Sample
	page := pageBytes
	if b.o.wants(rowSignin) || b.o.wants(rowEndToEnd) {
		b.announce(run, "sessions, starting the service")
		s, end, err := b.freshService(ctx, rolesBoth)
		if err != nil {
			return err
		}
		defer end()
		w := walked{s, s.listen, s.initRequest(r.URL(0)), rowSignin, rowEndToEnd}
		got, page = w.walk(ctx, b, run, r)
	}
	n := b.outside.network.Settings()
	c, err := b.o.startChild(ctx, child.BareSession, child.Config{
		Target: r.URL(0), CA: b.outside.ca.PEM(), PageBytes: page,
		Network: child.Network{Issuer: n.Issuer, ClientID: n.ClientID, ClientSecret: n.ClientSecret},
	})
	if err != nil {
		return err
	}
	defer c.End()
	b.outside.network.AllowRedirect(c.ReturnURL())
	w := walked{c, c.Address, load.InitRequest(c.Address, "", r.URL(0)), rowBareSession, rowBareSession}
	bare, _ := w.walk(ctx, b, run, r)
	for i := range bare {
		b.add(ctx, bare[i])
		if got != nil {
			got[i].Ceiling = &bare[i]
			b.add(ctx, got[i])
		}
	}
	return ctx.Err()
}

// walk measures what users wait for at a fixed rate, and whole sessions in a closed loop. It returns the
// samples, and how long a page is.
func (w walked) walk(ctx context.Context, b *bench, run int, r *load.Receiver) ([]report.Sample, int) {
	t := r.Count(0)
	users := load.NewWalks(walkers, load.Site{
		Service: w.address, Init: w.init, Issuer: b.outside.network.Issuer(), Tally: t,
		TLS: &tls.Config{RootCAs: b.outside.ca.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12},
	})
	defer users.Close()
	b.announce(run, "%s, %d/s", w.waits, signinRate)
	load.Closed(ctx, b.o.warmUp(), users.Steps)
	users.Forget()
	used := w.Measure()
	paced := loadSample(w.waits, fmt.Sprintf("%d/s", signinRate), walkers,
		load.Paced(ctx, signinRate, b.o.Duration, users.Steps))
	enter(&paced, used)
	all := waited(paced, users)
	page := users.PageBytes()

	b.announce(run, "%s, c = %d", w.whole, walkers)
	users.Forget()
	handshakes := b.outside.handshakes.Load()
	used = w.Measure()
	whole := loadSample(w.whole, "", walkers, load.Closed(ctx, b.o.Duration, users.Steps))
	enter(&whole, used)
	whole.Note("handshakes_each", float64(b.outside.handshakes.Load()-handshakes)/float64(max(1, whole.Ops)))
	whole.Note("whole_session_p50_ms", report.Milliseconds(whole.P50))
	receipts := users.Waited(func(w load.Waits) time.Duration { return w.Receipt })
	whole.P50, whole.P99 = load.Percentile(receipts, 0.50), load.Percentile(receipts, 0.99)
	_, whole.Duplicates, _ = t.Seen()
	return append(all, whole), page
}

// waited returns a sample of each of the users' waits. The resource usage is that of whole sessions.
func waited(s report.Sample, users *load.Walks) (all []report.Sample) {
	for _, of := range []struct {
		answer string
		wait   func(load.Waits) time.Duration
	}{
		{"page", func(w load.Waits) time.Duration { return w.Page }},
		{"press", func(w load.Waits) time.Duration { return w.Press }},
		{"return", func(w load.Waits) time.Duration { return w.Return }},
		{"outcome", func(w load.Waits) time.Duration { return w.Outcome }},
	} {
		one, waits := s, users.Waited(of.wait)
		one.Variant = of.answer + ", " + s.Variant
		one.P50, one.P99 = load.Percentile(waits, 0.50), load.Percentile(waits, 0.99)
		all = append(all, one)
		s.Errors = 0 // reported once
	}
	return all
}

const (
	// manyAccounts is how many accounts the second measurement of the page has.
	manyAccounts = 50_000
	// pagesPerSecond is more than one user opens: so many sessions a second are started ahead.
	pagesPerSecond = 4000
)

// accounts measures the page in a store of one account and in one of many.
func (b *bench) accounts(ctx context.Context, run int, r *load.Receiver) error {
	b.announce(run, "accounts, starting the service")
	s, end, err := b.freshService(ctx, rolesBoth)
	if err != nil {
		return err
	}
	defer end()
	b.announce(run, "accounts, the page with 1")
	few, err := s.pages(ctx, r, 1)
	if err != nil {
		return err
	}
	b.add(ctx, few)
	n := b.o.scaled(manyAccounts)
	b.announce(run, "accounts, making %d", n)
	all, err := accountstore.New(ctx, s.conn, s.site.key)
	if err != nil {
		return err
	}
	for i := 1; i < n; i++ {
		name := fmt.Sprintf("Account %d", i)
		if _, err := all.CreateAccount(ctx, access.Operator("bench"), name); err != nil {
			return err
		}
	}
	b.announce(run, "accounts, the page with %d", n)
	many, err := s.pages(ctx, r, n)
	if err != nil {
		return err
	}
	many.Ceiling = &few
	b.add(ctx, many)
	return ctx.Err()
}

// pages measures how long one user waits for the pages of many sessions.
func (s *service) pages(ctx context.Context, r *load.Receiver, accounts int) (report.Sample, error) {
	n := 1 + int(pagesPerSecond*(s.o.Duration+s.o.warmUp()).Seconds())
	tokens, err := load.StartSessions(ctx, walkers, n, s.listen, s.initRequest(r.URL(0)))
	if err != nil {
		return report.Sample{}, err
	}
	p := load.NewPages(s.listen, tokens)
	defer p.Close()
	load.Closed(ctx, s.o.warmUp(), p.Steps)
	u := s.Measure()
	got := loadSample(rowAccounts, fmt.Sprintf("page with %d", accounts), 1,
		load.Closed(ctx, s.o.Duration, p.Steps))
	enter(&got, u)
	return got, nil
}
