package manage

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/once"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions/base32"
)

// repeats maps an Idempotency-Key to one answer: a repeated creation gets the stored answer, for as long as
// the bucket keeps it, ten minutes. The answer may hold a secret and is stored sealed.
type repeats struct {
	conn *natsconf.Conn
	box  *secretbox.Box
}

const (
	// answerUse is the use of the box that answers are sealed in; their owner is the subject.
	answerUse = "idempotent-answer"
	// answerVersion is the version of these entries.
	answerVersion = 1
)

// answerRecord is an entry. It is written before anything is created, and once more with the answer.
type answerRecord struct {
	Version  int    `json:"v"`
	Sealed   []byte `json:"sealed,omitempty"`   // a keptAnswer
	Released bool   `json:"released,omitempty"` // nothing was created: the key is free
}

// keptAnswer is what an entry holds. Without a status the request is in progress, or its end is not known:
// its process ended, or the store gave no answer.
type keptAnswer struct {
	Fingerprint []byte          `json:"fingerprint"`
	Status      int             `json:"status,omitempty"`
	Doc         json.RawMessage `json:"doc,omitempty"`
}

// reservation is the exclusive right to create what a key is used for.
type reservation struct {
	subject, nonce string
	fingerprint    []byte
}

// once calls do at most once for the request's Idempotency-Key, which is scoped to the token; without a key
// it just calls do.
func (h *Handler) once(c call, do func(call) (answer, *problem.Problem)) (answer, *problem.Problem) {
	key, p := request.IdempotencyKey(c.http.Header)
	if p != nil {
		return answer{}, p
	}
	if key == "" {
		return do(c)
	}
	body, p := request.Body(c.http)
	if p != nil {
		return answer{}, p
	}
	c.http.Body = io.NopCloser(bytes.NewReader(body))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", c.http.Method, c.http.URL.Path, body))
	name := sha256.Sum256([]byte(key))
	t := reservation{
		subject: topology.BucketSubject(topology.BucketIdempotency,
			"manage."+c.by.ID+"."+base32.Lower.EncodeToString(name[:])),
		nonce: rand.Text(), fingerprint: sum[:],
	}
	kept, p := h.repeats.reserve(c.ctx(), t)
	if p != nil {
		return answer{}, p
	}
	if kept != nil {
		web.EventFrom(c.ctx()).Replayed = true
		return answer{status: kept.Status, doc: kept.Doc, replayed: true}, nil
	}
	a, p := do(c)
	if p != nil && errors.Is(p.Cause, natsconf.ErrUncertain) {
		return answer{}, p // it may have been created: the key stays taken
	}
	// The context of the request may have ended, and a repeat needs to know how the request ended.
	ctx, cancel := wait.For(context.WithoutCancel(c.ctx()), places.DefaultStoreWait)
	defer cancel()
	if err := h.repeats.conclude(ctx, t, a, p == nil); err != nil {
		web.EventFrom(c.ctx()).Err = err // it was created; a repeat gets "in progress"
	}
	return a, p
}

// reserve acquires the reservation, or returns the answer that an earlier request got.
func (r repeats) reserve(ctx context.Context, t reservation) (*keptAnswer, *problem.Problem) {
	last := uint64(0)
	for range wait.Tries(ctx, once.Tries) {
		started := answerRecord{Sealed: r.seal(t, keptAnswer{Fingerprint: t.fingerprint})}
		existing, err := r.put(ctx, t, last, started)
		if err == nil {
			return nil, nil // it is ours, and there is no answer yet
		}
		if !errors.Is(err, once.ErrTaken) {
			return nil, request.StoreProblem(err)
		}
		kept, released, err := r.open(t.subject, existing.Data)
		switch {
		case err != nil:
			return nil, request.StoreProblem(err)
		case released:
			last = existing.Sequence
			continue
		case !bytes.Equal(kept.Fingerprint, t.fingerprint):
			return nil, &problem.Problem{Code: problem.CodeIdempotencyReused, Detail: "This " +
				"Idempotency-Key was used for another request of the last 10 minutes; send a new key for a " +
				"new request."}
		case kept.Status == 0:
			return nil, &problem.Problem{Code: problem.CodeIdempotencyInProgress, Detail: "The " +
				"first request with this Idempotency-Key is still being answered, or its end is not known; " +
				"send it again in a moment, and after a minute check what it has created.",
				RetryAfter: request.RetryInProgress}
		}
		return &kept, nil
	}
	return nil, request.StoreProblem(natsconf.ErrConflict)
}

// conclude stores the answer for repeats, or frees the key if nothing was created.
func (r repeats) conclude(ctx context.Context, t reservation, a answer, made bool) error {
	record := answerRecord{Released: true}
	if made {
		doc, err := json.Marshal(a.doc)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		record = answerRecord{Sealed: r.seal(t, keptAnswer{t.fingerprint, a.status, doc})}
	}
	held, err := r.conn.Last(ctx, topology.BucketStream(topology.BucketIdempotency), t.subject)
	if err != nil {
		return fmt.Errorf("read the reservation of an idempotency key: %w", err)
	}
	if held.Header.Get(once.NonceHeader) != t.nonce {
		return fmt.Errorf("store the answer of an idempotency key: %w", once.ErrTaken)
	}
	t.nonce = rand.Text()
	_, err = r.put(ctx, t, held.Sequence, record)
	return err
}

func (r repeats) seal(t reservation, a keptAnswer) []byte {
	data, err := json.Marshal(a)
	if err != nil { // bytes, a number and JSON that has just been encoded
		panic(err)
	}
	return r.box.Seal(data, t.subject)
}

func (r repeats) open(subject string, data []byte) (a keptAnswer, released bool, err error) {
	var record answerRecord
	if err := natsconf.DecodeRecord(data, &record, &record.Version, answerVersion); err != nil {
		return a, false, fmt.Errorf("the answer of an idempotency key: %w", err)
	}
	if record.Released {
		return a, true, nil
	}
	plain, err := r.box.Open(record.Sealed, subject)
	if err == nil {
		err = json.Unmarshal(plain, &a)
	}
	if err != nil {
		return a, false, fmt.Errorf("the answer of an idempotency key: %w", err)
	}
	return a, false, nil
}

// put replaces the entry of a sequence; 0: there is none. Its errors are those of once.Replace.
func (r repeats) put(ctx context.Context, t reservation, last uint64,
	record answerRecord) (existing *jetstream.RawStreamMsg, err error) {
	record.Version = answerVersion
	data, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode the answer of an idempotency key: %w", err)
	}
	stream := topology.BucketStream(topology.BucketIdempotency)
	m := &nats.Msg{Subject: t.subject, Data: data, Header: nats.Header{once.NonceHeader: {t.nonce}}}
	existing, err = once.Replace(ctx, r.conn, stream, m, last, once.ByConn(r.conn, stream))
	if err != nil {
		err = fmt.Errorf("store the answer of an idempotency key: %w", err)
	}
	return existing, err
}

// headers are the answer's own headers.
func (a answer) headers(h http.Header) {
	if a.replayed {
		h.Set(request.HeaderReplayed, "true")
	}
}
