package records

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
	// OnceTries bounds how often one write is tried; each try may wait for the writer's own time-out of 5 s.
	OnceTries = 3
	// OncePause lets another publish that is in flight on the subject arrive before the next read.
	OncePause = 20 * time.Millisecond
)

// NonceHeader carries who wrote a message. It is not a message id: the server would remember each for two
// minutes, for what the condition on the subject already ensures.
const NonceHeader = "Verifyd-Nonce"

// ErrTaken says that another message holds the subject.
var ErrTaken = errors.New("another message holds this subject")

// Write is one write-once message.
type Write struct {
	Writer          *natsconf.Writer
	Stream, Subject string
	Data            []byte
	// after which the message may go, in whole seconds; 0: with the stream's age
	life          time.Duration
	Trace         string // a traceparent to keep with it; empty: none
	Before, After string // crash points; After is reached where the write is stored
}

// Once stores a message on a subject that has none. It returns nil when this very message is stored,
// ErrTaken and the existing message when another is, and natsconf's errors when neither is known.
//
// The nonce distinguishes our own message from another's when the answer was lost. A conflict is believed
// only after reading the subject from the leader, since repeating our own write conflicts too.
//
// It is not natsconf.Update, which reads before each write and begins again when another came first: a fact
// is nearly always the first on its subject, and who is not the first has lost.
func (st *Writer) Once(ctx context.Context, w Write) (existing *jetstream.RawStreamMsg, err error) {
	crashpoint.Reach(w.Before)
	if existing, err = st.onceAs(ctx, w, rand.Text()); err == nil {
		crashpoint.Reach(w.After)
	}
	return existing, err
}

func (st *Writer) onceAs(ctx context.Context, w Write, nonce string) (existing *jetstream.RawStreamMsg,
	err error) {
	uncertain := false
	for range OnceTries {
		_, err = w.Writer.Publish(ctx, onceMsg(w, nonce))
		if err == nil {
			return nil, nil //nolint:nilnil // it is ours, and no other stands
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			break
		}
		uncertain = uncertain || errors.Is(err, natsconf.ErrUncertain)
		m, rerr := st.Conn.Last(ctx, w.Stream, w.Subject)
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
		case <-time.After(OncePause):
		}
	}
	if uncertain && !errors.Is(err, natsconf.ErrUncertain) {
		err = fmt.Errorf("%w: %w", natsconf.ErrUncertain, err) // an earlier try may still land
	}
	return nil, err
}

func onceMsg(w Write, nonce string) *nats.Msg {
	m := &nats.Msg{Subject: w.Subject, Data: w.Data, Header: nats.Header{
		NonceHeader:                         {nonce},
		jetstream.ExpectedLastSubjSeqHeader: {"0"},
	}}
	tracing.Inject(m, w.Trace)
	if w.life > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, w.life.String())
	}
	return m
}

func compareNonce(m *jetstream.RawStreamMsg, nonce string) (existing *jetstream.RawStreamMsg, err error) {
	if m.Header.Get(NonceHeader) == nonce {
		return nil, nil //nolint:nilnil // it is ours, and no other stands
	}
	return m, ErrTaken
}
