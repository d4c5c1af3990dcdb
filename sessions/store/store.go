// Package store keeps sessions in JetStream: Store combines all the parts. Packages records, lists, erasure,
// recovery and stats hold the parts that stand alone. This package holds those of one sign-in (its
// idempotency reservation, its sign-in lease, its identity hold, its events), and the watch that signals
// that facts were stored.
package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/records"
	"verifyd/sessions/recovery"
	"verifyd/sessions/stats"
)

// Config is what a Store needs.
type Config struct {
	Conn        *natsconf.Conn
	Pending     *natsconf.Writer // of the sessions bucket's stream
	Completions *natsconf.Writer // of StreamCompletions
	Retries     *natsconf.Writer // of StreamRetries; only dispatchers need it
	// of the identities bucket's stream; only edges whose networks hold identities need it
	Identities  *natsconf.Writer
	Idempotency *natsconf.Writer      // of the idempotency bucket's stream; only edges need it
	Meter       *stats.Meter          // nil: nothing is counted
	Metrics     prometheus.Registerer // none when nil
	Steps       *Steps                // nil: the steps of users are on the timeline, and not counted
	// OnUnreadable is called with each message that cannot be read, every time that it is read; may be nil.
	// It must not block.
	OnUnreadable func(*facts.UnreadableError)
	Key          secretbox.Master
	// Plain stores new sessions as builds did before these were sealed under keys of their own, so that such
	// builds can read them.
	Plain bool
	Now   func() time.Time // the store's time when nil
}

// Store is everything that is stored of sessions. Its methods, which are those of its parts, are safe for
// concurrent use.
type Store struct {
	*records.Reader
	*records.Writer
	*lists.Lists
	*Reservations
	*Leases
	*IdentityHolds
	*Proofs
	*Events
	*stats.Statistics
	*erasure.Eraser
	*recovery.Recovery
}

// New returns a store.
func New(c Config) *Store {
	if c.Now == nil {
		c.Now = c.Conn.Clock.Now
	}
	r := records.NewReader(c.Conn, c.Key, c.Now, c.Metrics, c.OnUnreadable)
	w := &records.Writer{
		Reader: r, Pending: c.Pending, Completions: c.Completions, Retries: c.Retries, Meter: c.Meter,
		Plain: c.Plain,
	}
	identities := c.Key.Hash(identityHashUse)
	return &Store{
		Reader: r, Writer: w, Lists: lists.New(r), Leases: &Leases{w},
		Reservations:  &Reservations{w, c.Idempotency, c.Key.Box(reservationUse), c.Key.Hash(requestHashUse)},
		IdentityHolds: &IdentityHolds{r, c.Identities, identities},
		Proofs:        &Proofs{w, c.Key.Hash(codeUse), c.Key.Hash(digestUse)},
		Events:        &Events{r, c.Meter, c.Steps},
		Statistics:    stats.NewStatistics(c.Conn, c.Meter, c.Now),
		Eraser:        erasure.New(r, identities),
		Recovery:      recovery.New(w),
	}
}

// identityHashUse is the use of the keyed hash of identities and of the users they stand for.
const identityHashUse = "identity"
