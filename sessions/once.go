package sessions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/sessions/tracing"
)

const (
	// onceTries bounds how often one write is tried; each try may wait for the writer's own time-out of 5 s.
	onceTries = 3
	// oncePause lets another publish that is in flight on the subject arrive before the next read.
	oncePause = 20 * time.Millisecond
)

// nonceHeader carries who wrote a message. It is not a message id: the server would remember each for two
// minutes, for what the condition on the subject already ensures.
const nonceHeader = "Verifyd-Nonce"

// errTaken says that another message holds the subject.
var errTaken = errors.New("another message holds this subject")

// write is one write-once message.
type write struct {
	writer          *natsconf.Writer
	stream, subject string
	data            []byte
	// after which the message may go, in whole seconds; 0: with the stream's age
	life          time.Duration
	trace         string // a traceparent to keep with it; empty: none
	before, after string // crash points
}

// once stores a message on a subject that has none. It returns nil when this very message is stored,
// errTaken and the existing message when another is, and natsconf's errors when neither is known.
//
// The nonce distinguishes our own message from another's when the answer was lost. A conflict is believed
// only after reading the subject from the leader, since repeating our own write conflicts too.
//
// It is not natsconf.Update, which reads before each write and begins again when another came first: a fact
// is nearly always the first on its subject, and who is not the first has lost.
func (st *Store) once(ctx context.Context, w write) (existing *jetstream.RawStreamMsg, err error) {
	crashpoint.Reach(w.before)
	defer crashpoint.Reach(w.after)
	return st.onceAs(ctx, w, rand.Text())
}

func (st *Store) onceAs(ctx context.Context, w write, nonce string) (existing *jetstream.RawStreamMsg,
	err error) {
	uncertain := false
	for range onceTries {
		_, err = w.writer.Publish(ctx, onceMsg(w, nonce))
		if err == nil {
			return nil, nil //nolint:nilnil // it is ours, and no other stands
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			break
		}
		uncertain = uncertain || errors.Is(err, natsconf.ErrUncertain)
		m, rerr := st.conn.Last(ctx, w.stream, w.subject)
		if rerr == nil {
			return compareNonce(m, nonce)
		}
		if !errors.Is(rerr, natsconf.ErrNotFound) {
			return nil, fmt.Errorf("%w: %w", natsconf.ErrUncertain, rerr)
		}
		// Nothing there yet: another publish is in flight, or ours is lost or late. Trying again is safe,
		// one of them wins.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", natsconf.ErrUncertain, ctx.Err())
		case <-time.After(oncePause):
		}
	}
	if uncertain && !errors.Is(err, natsconf.ErrUncertain) {
		err = fmt.Errorf("%w: %w", natsconf.ErrUncertain, err) // an earlier try may still land
	}
	return nil, err
}

func onceMsg(w write, nonce string) *nats.Msg {
	m := &nats.Msg{Subject: w.subject, Data: w.data, Header: nats.Header{
		nonceHeader:                         {nonce},
		jetstream.ExpectedLastSubjSeqHeader: {"0"},
	}}
	tracing.Inject(m, w.trace)
	if w.life > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, w.life.String())
	}
	return m
}

func compareNonce(m *jetstream.RawStreamMsg, nonce string) (existing *jetstream.RawStreamMsg, err error) {
	if m.Header.Get(nonceHeader) == nonce {
		return nil, nil //nolint:nilnil // it is ours, and no other stands
	}
	return m, errTaken
}
