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
	// oncePause lets another publish that is in flight on the subject land before the next look.
	oncePause = 20 * time.Millisecond
)

// nonceHeader carries who wrote a message. It is no message id: the server would remember each for two minutes, to do what the
// condition on the subject does already.
const nonceHeader = "Verifyd-Nonce"

// errTaken says that another message holds the subject.
var errTaken = errors.New("another message holds this subject")

// write is one write-once message.
type write struct {
	writer          *natsconf.Writer
	stream, subject string
	data            []byte
	life            time.Duration // after which the message may go, in whole seconds; 0: with the stream's age
	trace           string        // a traceparent to keep with it; empty: none
	before, after   string        // crash points
}

// once stores a message on a subject that has none. It returns nil when this very message is stored, errTaken and the message that
// stands when another is, and natsconf's errors when neither could be learnt.
//
// The nonce tells one's own message from another's when the answer was lost. A loss is believed only after reading the subject from the leader, since a repeat of one's own write reads as a loss.
func (st *Store) once(ctx context.Context, w write) (standing *jetstream.RawStreamMsg, err error) {
	crashpoint.Reach(w.before)
	defer crashpoint.Reach(w.after)
	return st.onceAs(ctx, w, rand.Text())
}

func (st *Store) onceAs(ctx context.Context, w write, nonce string) (standing *jetstream.RawStreamMsg, err error) {
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
			return judge(m, nonce)
		}
		if !errors.Is(rerr, natsconf.ErrNotFound) {
			return nil, fmt.Errorf("%w: %w", natsconf.ErrUncertain, rerr)
		}
		// Nothing there yet: another publish is in flight, or ours is lost or late. Trying again is safe, one of them wins.
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
	tracing.Keep(m, w.trace)
	if w.life > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, w.life.String())
	}
	return m
}

func judge(m *jetstream.RawStreamMsg, nonce string) (standing *jetstream.RawStreamMsg, err error) {
	if m.Header.Get(nonceHeader) == nonce {
		return nil, nil //nolint:nilnil // it is ours, and no other stands
	}
	return m, errTaken
}
