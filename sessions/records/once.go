package records

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/wait"
	"verifyd/sessions/once"
	"verifyd/sessions/tracing"
)

// NonceHeader identifies the writer of a message. It is not a message id: the server would remember each for
// two minutes, for what the condition on the subject already ensures.
const NonceHeader = "Verifyd-Nonce"

// Write is one write-once message.
type Write struct {
	Writer          *natsconf.Writer
	Stream, Subject string
	Data            []byte
	// after which the message may be removed, in whole seconds; 0: with the stream's age
	life          time.Duration
	Trace         string // a traceparent to keep with it; empty: none
	Before, After string // crash points; After is reached if the write is stored
}

// Once stores a message on a subject that has none. It returns nil when this very message is stored,
// once.ErrTaken and the existing message when another is, and natsconf's errors when neither is known.
//
// It is not natsconf.Update, which reads before each write and begins again when another came first: a fact
// is nearly always the first on its subject, and a writer that is not the first has lost.
func (st *Writer) Once(ctx context.Context, w Write) (existing *jetstream.RawStreamMsg, err error) {
	crashpoint.Reach(w.Before)
	if existing, err = st.onceAs(ctx, w, rand.Text()); err == nil {
		crashpoint.Reach(w.After)
	}
	return existing, err
}

// onceAs does what package once decides.
func (st *Writer) onceAs(ctx context.Context, w Write, nonce string) (existing *jetstream.RawStreamMsg,
	err error) {
	write := once.Write{Waits: wait.Is(ctx)}
	for range wait.Tries(ctx, once.Tries) {
		_, err = w.Writer.Publish(ctx, onceMsg(w, nonce))
		next := write.Published(err)
		if next == once.Read {
			existing, err = st.Conn.Last(ctx, w.Stream, w.Subject)
			next = write.Looked(err == nil && existing.Header.Get(NonceHeader) == nonce, err)
		}
		switch next {
		case once.Stored:
			return nil, nil //nolint:nilnil // it is ours, and there is no other
		case once.Taken:
			return existing, once.ErrTaken
		case once.Failed:
			return nil, write.Err
		default: // once.Publish: again, after a pause
		}
	}
	return nil, write.GiveUp()
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
