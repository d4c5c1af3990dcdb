package once

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/wait"
)

// NonceHeader is the header by which a writer recognizes its own message when the answer was lost. It is not
// a message id: the server would remember each for two minutes, for what the condition on the subject already
// ensures.
const NonceHeader = "Verifyd-Nonce"

// Publisher stores one message; its errors are those of natsconf.Writer.Publish.
type Publisher func(context.Context, *nats.Msg) error

// ByConn publishes each message of a stream alone.
func ByConn(c *natsconf.Conn, stream string) Publisher {
	return func(ctx context.Context, m *nats.Msg) error { return c.PublishOne(ctx, stream, m) }
}

// ByWriter publishes messages of a writer's stream together with those of others.
func ByWriter(w *natsconf.Writer) Publisher {
	return func(ctx context.Context, m *nats.Msg) error {
		_, err := w.Publish(ctx, m)
		return err
	}
}

// Store publishes a message to a stream, on condition that its subject has none. It returns nil when this
// very message is stored, ErrTaken and the existing message when another is, and natsconf's errors when
// neither is known. It sets the message's condition, and its nonce if it has none.
//
// It is not natsconf.Update, which reads before each write and begins again when another came first: a fact
// is nearly always the first on its subject, and a writer that is not the first has lost.
func Store(ctx context.Context, c *natsconf.Conn, stream string, m *nats.Msg,
	publish Publisher) (existing *jetstream.RawStreamMsg, err error) {
	return Replace(ctx, c, stream, m, 0, publish)
}

// Replace is Store on condition that the subject's newest message is that of the sequence last, which its
// caller has read, or that there is none. It does what Write decides; a subject that has not changed is to
// Write one that has no message.
func Replace(ctx context.Context, c *natsconf.Conn, stream string, m *nats.Msg, last uint64,
	publish Publisher) (existing *jetstream.RawStreamMsg, err error) {
	if m.Header == nil {
		m.Header = make(nats.Header, 2)
	}
	if m.Header.Get(NonceHeader) == "" {
		m.Header[NonceHeader] = []string{rand.Text()}
	}
	nonce := m.Header.Get(NonceHeader)
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
	write := Write{Waits: wait.Is(ctx)}
	for range wait.Tries(ctx, Tries) {
		next := write.Published(publish(ctx, m))
		if next == Read {
			existing, err = c.Last(ctx, stream, m.Subject)
			switch {
			case errors.Is(err, natsconf.ErrNotFound) && last != 0: // what was there has left the stream
				last = 0 // in a copy: a writer may have m
				m = &nats.Msg{Subject: m.Subject, Data: m.Data, Header: maps.Clone(m.Header)}
				m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{"0"}
			case err == nil && existing.Sequence == last:
				err = natsconf.ErrNotFound
			}
			next = write.Looked(err == nil && existing.Header.Get(NonceHeader) == nonce, err)
		}
		switch next {
		case Stored:
			return nil, nil //nolint:nilnil // it is ours, and there is no other
		case Taken:
			return existing, ErrTaken
		case Failed:
			return nil, write.Err
		default: // Publish: again, after a pause
		}
	}
	return nil, write.GiveUp()
}
