package records

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// factSource reads the message in a fact's place from the leader.
type factSource func(facts.Key) (*jetstream.RawStreamMsg, error)

// oneByOne reads one fact after another.
func oneByOne(ctx context.Context, c *natsconf.Conn) factSource {
	return func(k facts.Key) (*jetstream.RawStreamMsg, error) {
		return c.Last(ctx, topology.StreamCompletions, k.Subject())
	}
}

// atOnce reads the facts of a session's first attempt, and those that a second one begins with, at once; then
// those of each further attempt.
func atOnce(ctx context.Context, c *natsconf.Conn, id sessions.ID) factSource {
	one, begun := oneByOne(ctx, c), map[facts.Key]func() (*jetstream.RawStreamMsg, error){}
	begin := func(n int) {
		for _, k := range []facts.Key{
			{Kind: "claim", ID: id, N: n}, {Kind: "result", ID: id, N: n},
			{Kind: "claim", ID: id, N: n + 1}, {Kind: "resend", ID: id, N: n + 1},
		} {
			if _, asked := begun[k]; !asked {
				begun[k] = Begin(func() (*jetstream.RawStreamMsg, error) { return one(k) })
			}
		}
	}
	return func(k facts.Key) (*jetstream.RawStreamMsg, error) {
		wait, asked := begun[k]
		if !asked {
			begin(k.N)
			wait = begun[k]
		}
		if wait == nil {
			return one(k) // read again: it may have come meanwhile
		}
		begun[k] = nil
		return wait()
	}
}

// Attempts reads all claims and results of a session from the leader, by number. A fact that cannot be read
// has the meaning that ErrUnreadable defines.
func (st *Reader) Attempts(ctx context.Context, id sessions.ID) ([]facts.Attempt, error) {
	return history{st, id, oneByOne(ctx, st.Conn)}.attempts()
}

// history is the course of a session's delivery, as its facts are read.
type history struct {
	st   *Reader
	id   sessions.ID
	read factSource
}

func (h history) attempts() ([]facts.Attempt, error) {
	return facts.AttemptFacts{
		Claim: func(n int) (*facts.Claim, error) {
			return readFact(h, facts.Key{Kind: "claim", ID: h.id, N: n}, claimIn)
		},
		Result: func(n int) (*facts.Result, error) {
			return readFact(h, facts.Key{Kind: "result", ID: h.id, N: n}, resultIn)
		},
		ResendRequested: h.requested,
	}.Attempts()
}

// readFact reads one fact of a session, or what the message in its place stands for; nil if there is none.
func readFact[F any](h history, k facts.Key, decode factDecoder[F]) (*F, error) {
	m, err := h.read(k)
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k.Subject(), err)
	}
	return factIn(h.st, k, m, decode)
}

// factIn reads the message in a fact's place. Its errors are those of the decoder, except for ErrUnreadable.
func factIn[F any](st *Reader, k facts.Key, m *jetstream.RawStreamMsg, decode factDecoder[F]) (*F, error) {
	f, err := decode(k, m.Data, natsconf.StoredAt(m.Header, m.Time))
	if err = st.checkUnreadable(m, err); err != nil && !errors.Is(err, facts.ErrUnreadable) {
		return nil, fmt.Errorf("%s: %w", k.Subject(), err)
	}
	return f, nil
}

// ResendOf reads who requested an attempt; nil if nobody did.
func (st *Reader) ResendOf(ctx context.Context, id sessions.ID, n int) (*facts.Resend, error) {
	return history{st, id, oneByOne(ctx, st.Conn)}.resend(n)
}

func (h history) resend(n int) (*facts.Resend, error) {
	return readFact(h, facts.Key{Kind: "resend", ID: h.id, N: n}, resendIn)
}

func (h history) requested(n int) (bool, error) {
	r, err := h.resend(n)
	return r != nil, err
}

// DecodeResend reads a resend as a consumer of StreamCompletions gets it; subject is the message's. Its
// errors are ErrUnreadable and ErrNewer.
func (st *Reader) DecodeResend(subject string, data []byte) (facts.Resend, error) {
	p, ok := facts.ParseSubject(subject)
	if !ok {
		return facts.Resend{}, fmt.Errorf("resend on subject %q: it names no attempt: %w", subject,
			facts.ErrUnreadable)
	}
	r, err := DecodeResend(p.ID, p.N, data)
	if err != nil {
		return facts.Resend{}, fmt.Errorf("resend on subject %q: %w", subject, err)
	}
	return r, nil
}

// DecodeRetry reads a retry as a consumer of StreamRetries gets it; subject is the message's. Its errors are
// ErrNewer and ErrUnreadable. With the latter it returns the session that the subject names, if any.
func (st *Reader) DecodeRetry(subject string, data []byte) (facts.Retry, error) {
	_, name, _ := strings.Cut(subject, ".")
	id, err := sessions.ParseID(name)
	if err != nil {
		return facts.Retry{}, fmt.Errorf("retry on subject %q: %w: %w", subject, facts.ErrUnreadable, err)
	}
	r, err := decodeRetry(id, data)
	if err != nil {
		return facts.Retry{Session: id}, fmt.Errorf("retry on subject %q: %w", subject, err)
	}
	return r, nil
}
