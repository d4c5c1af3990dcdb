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
	"verifyd/edge/places"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	// tryFor is how long a notice is tried: one that was not accepted within a day is read on the dashboard.
	tryFor = 24 * time.Hour
	// tryWithin bounds one POST, whatever its client allows itself. It is below the consumer's AckWait.
	tryWithin = 20 * time.Second
	// minPause and maxPause bound the pause after a POST that failed. In between it is half of the notice's
	// age, so that a day has some twenty tries.
	minPause, maxPause = 5 * time.Second, time.Hour
	// busyPause is the pause before an account's next notice is tried again while one is under way, and
	// ownerPause while its owner has as many as may be: there may be thousands that come back so.
	busyPause, ownerPause = time.Second, tryWithin / 2
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
	places *places.Places

	mu   sync.Mutex
	held map[string]time.Time // by account: until when no POST is begun
}

// NewSender returns a sender. Nothing is posted until it is served.
func NewSender(c SenderConfig) *Sender {
	c.MinPause = cmp.Or(c.MinPause, minPause)
	s := &Sender{
		c: c, places: places.New(places.Pools.Notices), held: map[string]time.Time{},
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
		n, p, owner, ok := s.prepare(m)
		if !ok {
			return
		}
		release, wait := s.hold(ctx, n.Account, owner)
		if wait > 0 {
			_ = m.NakWithDelay(jittered(wait))
			return
		}
		posting.Go(func() {
			defer release()
			s.post(ctx, m, n, p)
		})
	})
}

// prepare decides whether a message is to be posted, and otherwise settles it.
func (s *Sender) prepare(m jetstream.Msg) (n Notice, p Post, owner string, ok bool) {
	n, err := decode(m.Subject(), m.Data())
	switch {
	case errors.Is(err, natsconf.ErrNewer):
		_ = m.NakWithDelay(time.Minute) // a dispatcher of that build takes it
		return n, p, "", false
	case err != nil:
		s.c.Log.Error().Err(err).Msg("a notice cannot be read")
		_ = m.TermWithReason("it cannot be read")
		return n, p, "", false
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
		return n, p, "", false
	case !known || !a.InService() || a.NoticeURL == "" || !signs:
		_ = m.Ack() // it is shown only on the dashboard
		return n, p, "", false
	}
	body, err := n.Body()
	if err != nil {
		_ = m.TermWithReason("it cannot be written")
		return n, p, "", false
	}
	return n, Post{URL: a.NoticeURL, ID: n.ID, Body: body, Secrets: secrets}, a.Owner(), true
}

// hold takes a place for a POST of an account, or returns when to ask again. It waits only while others have
// all places.
func (s *Sender) hold(ctx context.Context, account, owner string) (release func(), wait time.Duration) {
	who := places.Request{Of: owner, Part: account}
	release, err := s.places.Acquire(who)
	s.mu.Lock()
	wait = time.Until(s.held[account]) // set before the place of the POST that failed was free
	s.mu.Unlock()
	share, full := errors.AsType[*places.ShareError](err)
	switch {
	case wait > 0:
		release()
	case full && share.Of == account:
		wait = busyPause
	case full:
		wait = ownerPause
	case err != nil:
		if release, err = s.places.Wait(ctx, who); err != nil {
			wait = busyPause
		}
	}
	return release, wait
}

// putOff lets the account's next POST begin from an instant on; zero: at once.
func (s *Sender) putOff(account string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, account)
	if !until.IsZero() {
		s.held[account] = until
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
		s.putOff(n.Account, time.Time{})
		_ = m.Ack()
		return
	}
	pause := s.pause(s.c.Now().Sub(n.At))
	s.posts.WithLabelValues("failed").Inc()
	line.Err(err).Dur("next", pause).Msg("notice not taken")
	s.putOff(n.Account, time.Now().Add(pause))
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
