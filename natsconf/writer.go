package natsconf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// minBatch is the number of waiting messages from which one atomic batch beats single publishes: a batch
	// is synced once, each single message by itself. A batch's own cost is about that of one sync if it is
	// staged in memory.
	minBatch = 4
	// fullBatch is the size up to which a batch waits for more messages, for at most fillBatch: the server
	// makes and deletes files for each batch, whatever its size. Fewer than minBatch do not wait, so a quiet
	// stream pays no delay.
	fullBatch = 16
	fillBatch = 2 * time.Millisecond
	// maxBatch bounds one batch; the server takes 1,000.
	maxBatch = 512
	// mailboxSize bounds how many messages wait. At 36,000/s this is a quarter of a second.
	mailboxSize = 8192
	// acceptTries bounds how often a message that no server accepts is published, over two seconds: a stream
	// whose leadership moves, as at the stop of a server, is written a little later. If a leader has died the
	// election takes longer, and only requests wait for it (package wait).
	acceptTries = 12
	// maxDrain is how long a stopping writer goes on publishing waiting messages.
	maxDrain = 10 * time.Second
)

// Ack is JetStream's answer to one stored message.
type Ack struct {
	Duplicate bool   // the server had this message id already: one's own earlier try
	Total     uint64 // the new total, for a counter message
}

// Writer is the actor through which all messages to one stream go. Callers put a message in its mailbox. It
// publishes the gathered messages, singly while few wait, as one atomic batch when many do, and returns to
// each caller the result of its own publish.
//
// A batch is all or nothing and synced once. If one of its messages conflicts, the server rejects the whole
// batch; the writer then publishes them singly, so that the others do not suffer.
type Writer struct {
	conn            *Conn
	stream          string
	single          bool
	mailbox         chan *pendingPublish
	unanswered      atomic.Int32 // publishes in a row that were not answered
	lastUnanswered  atomic.Int64 // when the last of them was given up, in Unix nanoseconds
	firstUnanswered atomic.Int64 // when the first of them was

	batches prometheus.Observer
	waiting prometheus.Gauge
}

// pendingPublish is one message and the channel for its result.
type pendingPublish struct {
	msg    *nats.Msg
	result chan publishResult // room for one, so that a writer never waits for a caller that gave up
}

type publishResult struct {
	ack Ack
	err error
}

// NewWriter returns the writer of a stream that takes atomic batches. It does nothing until served.
func NewWriter(c *Conn, stream string) *Writer {
	return &Writer{
		conn: c, stream: stream, mailbox: make(chan *pendingPublish, mailboxSize),
		batches: c.metrics.batches.WithLabelValues(stream),
		waiting: c.metrics.waiting.WithLabelValues(stream),
	}
}

// NewSingleWriter returns a writer that never batches. It is for counters, whose acknowledgement must carry
// each message's own total, and for a store that is not synced for each message, so that a batch has nothing
// to share.
func NewSingleWriter(c *Conn, stream string) *Writer {
	w := NewWriter(c, stream)
	w.single = true
	return w
}

// Publish stores one message. Its errors are ErrConflict, ErrUncertain, ErrUnavailable and ErrStoreFull;
// after ErrConflict and ErrUncertain the caller reads the subject from the leader before it acts. If ctx ends
// before the result is known, the error is ErrUncertain, since the message may be stored later. A message
// that no server accepts is published again for two seconds, and under a context that waits (package wait)
// until ctx ends, before the error is ErrUnavailable.
func (w *Writer) Publish(ctx context.Context, msg *nats.Msg) (ack Ack, err error) {
	err = w.conn.retryUntilAccepted(ctx, w.stream, func() error {
		ack, err = w.enqueue(ctx, msg)
		return err
	})
	return ack, err
}

// enqueue puts a message in the mailbox, and returns its result.
func (w *Writer) enqueue(ctx context.Context, msg *nats.Msg) (Ack, error) {
	p := &pendingPublish{msg: msg, result: make(chan publishResult, 1)}
	select {
	case w.mailbox <- p:
	default:
		return Ack{}, fmt.Errorf("publish to %s: %w: %d messages wait already", w.stream, ErrUnavailable,
			mailboxSize)
	}
	select {
	case f := <-p.result:
		return f.ack, f.err
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("publish to %s: %w: %w", w.stream, ErrUncertain, ctx.Err())
	}
}

const (
	// silentFrom is the number of unanswered publishes in a row from which a stream counts as silent: one may
	// be a lost connection.
	silentFrom = 3
	// silentFor is how long that holds when nothing more is published: a stream that is seldom written would
	// otherwise count as silent long after the server has come back.
	silentFor = 15 * time.Second
)

// Silent reports whether the server has stopped answering publishes to the stream, although it may be
// connected: it behaves like that after a write to its disk has failed, until it is restarted.
func (w *Writer) Silent() bool {
	return w.unanswered.Load() >= silentFrom && time.Since(time.Unix(0, w.lastUnanswered.Load())) < silentFor
}

// SilentFor returns how long a silent stream has not answered.
func (w *Writer) SilentFor() time.Duration {
	return time.Since(time.Unix(0, w.firstUnanswered.Load()).Add(-ackTimeout))
}

// EndSilence is Silent, and ends the silence: from now on the writer counts from zero.
func (w *Writer) EndSilence() bool {
	silent := w.Silent()
	if silent {
		w.unanswered.Store(0)
	}
	return silent
}

// Stream returns the name of the writer's stream.
func (w *Writer) Stream() string { return w.stream }

// recordResult counts the answers. A message that no server accepted is no failure yet.
func (w *Writer) recordResult(err error) {
	if err != nil && !unsent(err) {
		w.conn.metrics.failed(w.stream, opWrite, err)
	}
	if errors.Is(err, ErrUncertain) {
		now := time.Now().UnixNano()
		w.lastUnanswered.Store(now)
		if w.unanswered.Add(1) == 1 {
			w.firstUnanswered.Store(now)
		}
		return
	}
	w.unanswered.Store(0)
}

// Serve publishes until ctx ends, then publishes the messages that still wait, and returns. It may be served
// again.
func (w *Writer) Serve(ctx context.Context) error {
	for {
		select {
		case p := <-w.mailbox:
			w.writeOnce(w.gather(p))
		case <-ctx.Done():
			w.drain()
			return ctx.Err()
		}
	}
}

// drain publishes the messages that still wait. If the server does not answer, it gives up soon: the rest was
// never sent.
func (w *Writer) drain() {
	late := time.Now().Add(maxDrain)
	for {
		select {
		case p := <-w.mailbox:
			batch := w.gather(p)
			if time.Now().Before(late) {
				w.writeOnce(batch)
				continue
			}
			for _, p := range batch {
				p.result <- publishResult{
					err: fmt.Errorf("publish to %s: %w: stopping", w.stream, ErrUnavailable),
				}
			}
		default:
			return
		}
	}
}

// String names the actor in the supervisor's log.
func (w *Writer) String() string { return "writer " + w.stream }

// gather takes the waiting messages. If they make a small batch, it waits a moment for more.
func (w *Writer) gather(first *pendingPublish) []*pendingPublish {
	batch := w.takeWaiting(append(make([]*pendingPublish, 0, minBatch), first))
	if w.single || len(batch) < minBatch || len(batch) >= fullBatch {
		return batch
	}
	filled := time.NewTimer(fillBatch)
	defer filled.Stop()
	for len(batch) < fullBatch {
		select {
		case p := <-w.mailbox:
			batch = w.takeWaiting(append(batch, p))
		case <-filled.C:
			return batch
		}
	}
	return batch
}

// takeWaiting appends the messages that wait already.
func (w *Writer) takeWaiting(batch []*pendingPublish) []*pendingPublish {
	for len(batch) < maxBatch {
		select {
		case p := <-w.mailbox:
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

func (w *Writer) writeOnce(pending []*pendingPublish) {
	w.waiting.Set(float64(len(w.mailbox)))
	if len(pending) < minBatch || w.single {
		w.writeSingly(pending)
		return
	}
	w.batches.Observe(float64(len(pending)))
	err := w.writeBatch(pending)
	if errors.Is(err, errRejected) {
		w.recordResult(nil)
		w.writeSingly(pending) // nothing of the batch is stored, so each learns its own result
		return
	}
	w.recordResult(err)
	for _, p := range pending {
		p.result <- publishResult{err: err}
	}
}

// errRejected reports that the server refused a batch as a whole: because of one of its messages, which is
// ErrConflict, or for another reason, such as a change of the leader in its midst, which is ErrUnavailable.
var errRejected = errors.New("batch rejected")

// writeSingly publishes each message by itself, all of them in flight at once.
func (w *Writer) writeSingly(pending []*pendingPublish) {
	futures := make([]jetstream.PubAckFuture, len(pending))
	for i, p := range pending {
		w.batches.Observe(1)
		// No retries: a repeat without a read from the leader could take its own first try for another's
		// message.
		f, err := w.conn.JS.PublishMsgAsync(p.msg, jetstream.WithRetryAttempts(0))
		if err != nil {
			err = w.kind(err)
			if !unsent(err) {
				w.conn.metrics.failed(w.stream, opWrite, err)
			}
			p.result <- publishResult{err: err}
			continue
		}
		futures[i] = f
	}
	for i, p := range pending {
		if futures[i] != nil {
			f := w.await(futures[i])
			w.recordResult(f.err)
			p.result <- f
		}
	}
}

// await ends for each future by itself: the connection's JetStream has a time-out for publishes (Connect).
func (w *Writer) await(f jetstream.PubAckFuture) publishResult {
	select {
	case a := <-f.Ok():
		total, _ := strconv.ParseUint(a.Value, 10, 64) // empty unless the stream counts
		return publishResult{ack: Ack{Duplicate: a.Duplicate, Total: total}, err: w.conn.Durable(w.stream)}
	case err := <-f.Err():
		return publishResult{err: w.kind(err)}
	}
}

// writeBatch publishes all messages as one atomic batch: the last one commits and is answered.
func (w *Writer) writeBatch(pending []*pendingPublish) error {
	defer clearBatchHeaders(pending)
	id := []string{nuid.Next()} // one for all: nothing writes to it
	numbers := make([]string, len(pending))
	last := len(pending) - 1
	for i, p := range pending {
		if p.msg.Header == nil {
			p.msg.Header = make(nats.Header, 3)
		}
		numbers[i] = strconv.Itoa(i + 1)
		p.msg.Header["Nats-Batch-Id"] = id
		p.msg.Header["Nats-Batch-Sequence"] = numbers[i : i+1 : i+1]
		if i < last {
			if err := w.conn.NC.PublishMsg(p.msg); err != nil {
				return w.kind(err)
			}
		}
	}
	commit := pending[last].msg
	commit.Header.Set("Nats-Batch-Commit", "1")
	// By a context: the client shares the timers of its other time-outs over connections, and so over the
	// bubbles of tests in virtual time.
	ctx, cancel := context.WithTimeout(context.Background(), ackTimeout)
	defer cancel()
	reply, err := w.conn.NC.RequestMsgWithContext(ctx, commit)
	if err != nil {
		return w.kind(err)
	}
	return w.batchResult(reply.Data, id[0], len(pending))
}

func (w *Writer) batchResult(answer []byte, id string, size int) error {
	var a struct {
		Error *jetstream.APIError `json:"error"`
		Batch string              `json:"batch"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("publish to %s: %w: unreadable answer: %w", w.stream, ErrUncertain, err)
	}
	if a.Error == nil {
		if a.Batch != id || a.Count != size {
			// A server without batches checks each message separately and answers only the last one.
			return fmt.Errorf("publish to %s: %w: the server acknowledged %d of %d messages", w.stream,
				ErrUncertain, a.Count, size)
		}
		return w.conn.Durable(w.stream)
	}
	err := w.kind(a.Error)
	if errors.Is(err, ErrStoreFull) {
		return err // the same for each of them
	}
	return fmt.Errorf("%w: %w", errRejected, err)
}

func clearBatchHeaders(pending []*pendingPublish) {
	for _, p := range pending {
		p.msg.Header.Del("Nats-Batch-Id")
		p.msg.Header.Del("Nats-Batch-Sequence")
		p.msg.Header.Del("Nats-Batch-Commit")
	}
}

// kind maps an error of nats.go to one of this package's kinds.
func (w *Writer) kind(err error) error { return fmt.Errorf("publish to %s: %w", w.stream, Kind(err)) }
