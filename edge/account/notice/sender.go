package notice

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	// tryFor is how long a notice is tried: one that was not accepted within a day is read on the dashboard.
	tryFor = 24 * time.Hour
	// places is how many POSTs of notices one process has under way.
	places = 8
	// tryWithin bounds one POST, whatever its client allows itself. It is below the consumer's AckWait.
	tryWithin = 20 * time.Second
	// minPause and maxPause bound the pause after a POST that failed. In between it is half of the notice's
	// age, so that a day has some twenty tries.
	minPause, maxPause = 5 * time.Second, time.Hour
	// busyPause is the pause before an account's next notice is tried again while one is under way.
	busyPause = time.Second
)

// Directory knows accounts and their signing secrets; a *keymirror.Mirror.
type Directory interface {
	Account(id string) (account.Account, bool)
	SigningSecrets(id string) ([]string, bool)
}

// Post is one POST to an account's address.
type Post struct {
	URL, ID string
	Body    []byte
	Secrets []string
	At      time.Time
}

// SenderConfig is what a Sender needs.
type SenderConfig struct {
	Conn      *natsconf.Conn
	Directory Directory
	// Post sends one POST; its error is why that was not accepted, without the URL's path and query.
	Post    func(context.Context, Post) error
	Log     zerolog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
	// MinPause is the shortest pause after a POST that failed; minPause when zero.
	MinPause time.Duration
}

// Sender is the actor that posts notices to the accounts' addresses. All dispatcher processes have one.
type Sender struct {
	c      SenderConfig
	posts  *prometheus.CounterVec
	places chan struct{}

	mu   sync.Mutex
	busy map[string]bool      // by account: whether a POST is under way
	held map[string]time.Time // by account: until when none is begun
}

// NewSender returns a sender. Nothing is posted until it is served.
func NewSender(c SenderConfig) *Sender {
	c.MinPause = cmp.Or(c.MinPause, minPause)
	s := &Sender{
		c: c, places: make(chan struct{}, places), busy: map[string]bool{}, held: map[string]time.Time{},
		posts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_notices_total",
			Help: "Notices to accounts, by what became of a try: delivered, failed, or given_up after a day.",
		}, []string{"result"}),
	}
	c.Metrics.MustRegister(s.posts)
	return s
}

// String names the actor in the supervisor's log.
func (s *Sender) String() string { return "notice sender" }

// Serve posts until ctx ends, and returns when no POST is under way any more.
func (s *Sender) Serve(ctx context.Context) error {
	var posting sync.WaitGroup
	defer posting.Wait()
	return consume(ctx, s.c.Conn, topology.ConsumerNotices, func(m jetstream.Msg) {
		n, p, ok := s.prepare(m)
		if !ok {
			return
		}
		select {
		case s.places <- struct{}{}:
		case <-ctx.Done():
			s.release(n.Account, time.Time{})
			_ = m.Nak()
			return
		}
		posting.Go(func() {
			defer func() { <-s.places }()
			s.post(ctx, m, n, p)
		})
	})
}

// prepare decides whether a message is to be posted now, and otherwise settles it. If ok, the account is held
// until release.
func (s *Sender) prepare(m jetstream.Msg) (n Notice, p Post, ok bool) {
	n, err := decode(m.Subject(), m.Data())
	switch {
	case errors.Is(err, natsconf.ErrNewer):
		_ = m.NakWithDelay(time.Minute) // a dispatcher of that build takes it
		return n, p, false
	case err != nil:
		s.c.Log.Error().Err(err).Msg("a notice cannot be read")
		_ = m.TermWithReason("it cannot be read")
		return n, p, false
	}
	a, known := s.c.Directory.Account(n.Account)
	secrets, signs := s.c.Directory.SigningSecrets(n.Account)
	switch {
	case s.c.Now().Sub(n.At) >= tryFor && s.c.Conn.Clock.Check() == nil:
		if known && a.NoticeURL != "" {
			s.posts.WithLabelValues("given_up").Inc()
			s.c.Log.Warn().Str("account", n.Account).Str("notice", n.ID).Str("type", string(n.Type)).
				Msg("a notice was not taken within a day; its account reads it on the dashboard")
		}
		_ = m.Ack()
		return n, p, false
	case !known || !a.InService() || a.NoticeURL == "" || !signs:
		_ = m.Ack() // it is shown only on the dashboard
		return n, p, false
	}
	body, err := n.Body()
	if err != nil {
		_ = m.TermWithReason("it cannot be written")
		return n, p, false
	}
	if wait := s.hold(n.Account); wait > 0 {
		_ = m.NakWithDelay(jittered(wait))
		return n, p, false
	}
	return n, Post{URL: a.NoticeURL, ID: n.ID, Body: body, Secrets: secrets}, true
}

// hold takes the account's one place, or returns when to ask again.
func (s *Sender) hold(account string) (wait time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[account] {
		return busyPause
	}
	if wait = s.held[account].Sub(now); wait > 0 {
		return wait
	}
	s.busy[account] = true
	return 0
}

// release lets the account's next POST begin, from an instant on; zero: at once.
func (s *Sender) release(account string, from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, account)
	delete(s.held, account)
	if !from.IsZero() {
		s.held[account] = from
	}
}

func (s *Sender) post(ctx context.Context, m jetstream.Msg, n Notice, p Post) {
	began := time.Now()
	try, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	p.At = s.c.Now()
	err := s.c.Post(try, p)
	line := s.c.Log.Info().Str("account", n.Account).Str("notice", n.ID).Str("type", string(n.Type)).
		Dur("took", time.Since(began))
	if err == nil {
		s.posts.WithLabelValues("delivered").Inc()
		line.Msg("notice posted")
		s.release(n.Account, time.Time{})
		_ = m.Ack()
		return
	}
	pause := s.pause(s.c.Now().Sub(n.At))
	s.posts.WithLabelValues("failed").Inc()
	line.Err(err).Dur("next", pause).Msg("notice not taken")
	s.release(n.Account, time.Now().Add(pause))
	_ = m.NakWithDelay(pause)
}

// pause returns how long to wait after a try of a notice of that age.
func (s *Sender) pause(age time.Duration) time.Duration {
	return min(max(age/2, s.c.MinPause), maxPause)
}

// jittered spreads messages that wait for the same thing.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/4+time.Millisecond) //nolint:gosec // jitter
}
