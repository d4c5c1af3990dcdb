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

	"verifyd/edge/account/entry"
	"verifyd/edge/account/secrets"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
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
	// nonceHeader identifies the writer of an entry, so that after a lost answer a process recognizes its own
	// write.
	nonceHeader = "Verifyd-Nonce"
)

// answerRecord is an entry. It is written before anything is created, and once more with the answer.
type answerRecord struct {
	Version  int    `json:"v"`
	Sealed   []byte `json:"sealed,omitempty"`   // a keptAnswer
	Released bool   `json:"released,omitempty"` // nothing was created: the key is free
}

// keptAnswer is what an entry holds. Without a status the request is in progress, or ended with its process.
type keptAnswer struct {
	Fingerprint []byte          `json:"fingerprint"`
	Status      int             `json:"status,omitempty"`
	Doc         json.RawMessage `json:"doc,omitempty"`
}

// reservation is the exclusive right to create what a key is used for.
type reservation struct {
	subject, nonce string
	fingerprint    []byte
	sequence       uint64
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
			"manage."+c.by.ID+"."+secrets.Base32(name[:])),
		nonce: rand.Text(), fingerprint: sum[:],
	}
	kept, p := h.repeats.reserve(c.ctx(), &t)
	if p != nil {
		return answer{}, p
	}
	if kept != nil {
		web.EventFrom(c.ctx()).Replayed = true
		return answer{status: kept.Status, doc: kept.Doc, replayed: true}, nil
	}
	a, p := do(c)
	// The context of the request may have ended, and a repeat needs to know how the request ended.
	ctx := context.WithoutCancel(c.ctx())
	if err := h.repeats.conclude(ctx, t, a, p == nil); err != nil {
		web.EventFrom(c.ctx()).Err = err // it was created; a repeat gets "in progress"
	}
	return a, p
}

// reserve acquires the reservation, or returns the answer that an earlier request got.
func (r repeats) reserve(ctx context.Context, t *reservation) (*keptAnswer, *problem.Problem) {
	for range entry.Tries {
		err := r.put(ctx, t, answerRecord{Sealed: r.seal(*t, keptAnswer{Fingerprint: t.fingerprint})})
		if err != nil && !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			return nil, request.StoreProblem(err)
		}
		m, rerr := r.conn.Last(ctx, topology.BucketStream(topology.BucketIdempotency), t.subject)
		switch {
		case errors.Is(rerr, natsconf.ErrNotFound): // another request, or this one, is being stored
			t.sequence = 0
			if perr := entry.Pause(ctx); perr != nil {
				return nil, request.StoreProblem(perr)
			}
			continue
		case rerr != nil:
			return nil, request.StoreProblem(rerr)
		}
		t.sequence = m.Sequence
		if m.Header.Get(nonceHeader) == t.nonce {
			return nil, nil
		}
		kept, released, err := r.open(t.subject, m.Data)
		switch {
		case err != nil:
			return nil, request.StoreProblem(err)
		case released:
			continue
		case !bytes.Equal(kept.Fingerprint, t.fingerprint):
			return nil, &problem.Problem{Code: problem.CodeIdempotencyReused, Detail: "This " +
				"Idempotency-Key was used for another request of the last 10 minutes; send a new key for a " +
				"new request."}
		case kept.Status == 0:
			return nil, &problem.Problem{Code: problem.CodeIdempotencyInProgress, Detail: "The " +
				"first request with this Idempotency-Key is still being answered, or its process ended " +
				"over it; send it again in a moment, and after a minute look what it has made.",
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
	return r.put(ctx, &t, record)
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

// put replaces the entry that was read. Its errors are natsconf's: ErrConflict if another request replaced it
// before.
func (r repeats) put(ctx context.Context, t *reservation, record answerRecord) error {
	record.Version = answerVersion
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode the answer of an idempotency key: %w", err)
	}
	m := entry.Replace(t.subject, data, t.sequence)
	m.Header.Set(nonceHeader, t.nonce)
	err = r.conn.PublishOne(ctx, topology.BucketStream(topology.BucketIdempotency), m)
	if err != nil {
		return fmt.Errorf("store the answer of an idempotency key: %w", natsconf.Kind(err))
	}
	return nil
}

// headers are the answer's own headers.
func (a answer) headers(h http.Header) {
	if a.replayed {
		h.Set(request.HeaderReplayed, "true")
	}
}
