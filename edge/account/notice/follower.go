package notice

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions/timeline"
)

const (
	// maxRecordAge is the maximum age of a record of the audit log that causes a notice: one that was copied
	// from another store is not news.
	maxRecordAge = 24 * time.Hour
	// followPause is the pause before a record whose notice could not be stored is delivered again.
	followPause = 10 * time.Second
)

// Follower is the actor that notifies accounts of changes in the audit log: every change is there, whichever
// process made it and whatever became of that process.
type Follower struct {
	Conn *natsconf.Conn
	Log  zerolog.Logger
	Now  func() time.Time
}

// String names the actor in the supervisor's log.
func (f *Follower) String() string { return "notice follower" }

// Serve follows the log until ctx ends.
func (f *Follower) Serve(ctx context.Context) error {
	store := NewStore(f.Conn)
	return consume(ctx, f.Conn, topology.ConsumerAudit, func(m jetstream.Msg) {
		r, err := audit.Decode(m.Data())
		if errors.Is(err, natsconf.ErrNewer) {
			_ = m.NakWithDelay(followPause) // a dispatcher of that build takes it
			return
		}
		n, ok := ofRecord(r)
		if err == nil && ok && f.Now().Sub(r.At) < maxRecordAge {
			err = store.Raise(ctx, n)
		}
		switch {
		case err == nil:
			_ = m.Ack()
		case Later(err):
			_ = m.NakWithDelay(followPause)
		default:
			f.Log.Warn().Err(err).Str("subject", m.Subject()).
				Msg("an account is not notified of a record of its audit log")
			_ = m.Ack()
		}
	})
}

// ofRecord returns an account's notice about a record of its audit log; ok is false for a record that is not
// news to it. It is pure.
func ofRecord(r audit.Record) (n Notice, ok bool) {
	if !account.IsID(r.Account) {
		return Notice{}, false // the service's own
	}
	by := timeline.Legible(r.Who.String())
	switch r.What {
	case audit.SecretRotated:
		return New(r.Account, SecretRotated, r.ID, r.At, "The callback signing secret was rotated by "+by+
			". Put the new one into your receiver before the old one ends.",
			map[string]any{"by": by, "old_signs_until": r.Detail["until"]}), true
	case audit.MemberJoined, audit.MemberAdded, audit.MemberMovedIn:
		name := timeline.Legible(r.Detail["name"])
		if strings.TrimSpace(name) == "" {
			name = timeline.Legible(r.On)
		}
		return New(r.Account, MemberJoined, r.ID, r.At, name+" is now "+r.Detail["role"]+" of the account.",
			map[string]any{"name": name, "role": r.Detail["role"], "by": by}), true
	}
	return Notice{}, false
}
