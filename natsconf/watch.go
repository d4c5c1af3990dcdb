package natsconf

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
)

const (
	// pollEvery is how often a watch asks the leader for the bucket's last sequence. A change is seen at most
	// that long after its acknowledgement, and one read later. A poll costs one small message.
	pollEvery = 200 * time.Millisecond
	// pollTimeout is how long to wait for an answer: a request to a server that has just gone is never
	// answered.
	pollTimeout = 500 * time.Millisecond
	// staleAfter is how long after the last poll that found it complete a watch counts as stale: polls that
	// find it complete are pollEvery apart.
	staleAfter = time.Second
	// leaderLease is how long a leader of a cluster is believed to be the only one after so many followers
	// have answered it that they are a majority with it: each of them waits at least a second longer before
	// it begins an election.
	leaderLease = 3 * time.Second
	// watchQueue is how many entries wait for the follower of a watch.
	watchQueue = 256
)

// errBucketWentBack ends a watch whose bucket has lost entries that were seen in it, like one that was
// restored from an older copy.
var errBucketWentBack = errors.New("the bucket has lost what was seen in it")

// Freshness is the instant up to which the follower of a watch has seen everything. It outlasts the watch, so
// that the next one goes on with it; the zero value has seen nothing yet.
type Freshness struct {
	until   atomic.Int64 // Unix nanoseconds
	ended   atomic.Bool  // there is no watch that could see more
	pending atomic.Int64 // entries that were delivered and that the follower has not taken
	inDoubt atomic.Bool
}

// InDoubt reports whether the server that answers as the bucket's leader may have been replaced without
// knowing it, like one that was cut off from the others or paused: changes may have been acknowledged by its
// successor. It ends when the follower has taken everything that a leader holds.
func (f *Freshness) InDoubt() bool { return f.inDoubt.Load() }

// SeenSince reports whether the follower has taken everything that had been acknowledged before an instant.
func (f *Freshness) SeenSince(t time.Time) bool {
	return f.until.Load() >= t.UnixNano() && f.pending.Load() == 0
}

// Taken is called by a follower that answers SeenSince, once it knows everything that it has received.
func (f *Freshness) Taken(entries int) { f.pending.Add(-int64(entries)) }

// StaleSince returns since when changes may not have been seen; zero while all are, and before everything
// was seen once.
func (f *Freshness) StaleSince() time.Time {
	until := f.until.Load()
	if until == 0 || !f.ended.Load() && time.Since(time.Unix(0, until)) < staleAfter {
		return time.Time{}
	}
	return time.Unix(0, until)
}

// Watch follows the entries of a key-value bucket: first every key's newest one, then each change, in order.
// If a key changes more than once between two polls, a bucket without a history has only the newest entry.
// Deleted entries are not reported.
//
// It polls the leader of the bucket and reads from it what is new. A consumer would deliver changes sooner.
// But its server may vanish, which the client library notices after 10 s or more, or lag behind, which
// nothing notices; a guarantee needs the poll in any case.
//
// In a bucket whose entries expire or are purged, the end of the newest entry ends the watch with an error,
// as if an older copy had been restored, and the caller begins it again. None of the buckets watched today is
// of this kind.
type Watch struct {
	conn         *Conn
	bucket, keys string
	freshness    *Freshness

	updates chan *Entry
	err     error // set before updates is closed
	cancel  context.CancelFunc

	loaded   bool      // every key's newest entry was delivered
	seen     uint64    // sequence up to which everything was delivered
	certain  bool      // everything was delivered of a leader that is believed to be the only one
	ledUntil time.Time // the bucket's leader is believed to be the only one
	answered time.Time // when a leader last answered
	silence  time.Time // end of the last one; only a follower's answer after it shows that the leader is one
}

// Entry is an entry of a bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64 // its sequence in the bucket's stream
}

// Watch begins to watch the keys of a bucket that match, and records in a Freshness until when everything has
// been seen. The caller closes the watch, which outlives lost connections and servers.
func (c *Conn) Watch(ctx context.Context, bucket, keys string, f *Freshness) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	f.pending.Store(0)
	w := &Watch{
		conn: c, bucket: bucket, keys: keys, freshness: f,
		updates: make(chan *Entry, watchQueue), cancel: cancel,
	}
	go w.run(ctx)
	return w
}

// Updates returns the channel of entries. A nil comes once, when everything has been delivered that the
// leader held at the start. The channel is closed when the watch has ended.
func (w *Watch) Updates() <-chan *Entry { return w.updates }

// Err returns why Updates was closed.
func (w *Watch) Err() error { return w.err }

// Close ends the watch, and returns when its goroutine has ended. A repeat is harmless.
func (w *Watch) Close() {
	w.cancel()
	for range w.updates { // closing it is the last thing that the goroutine does
	}
}

func (w *Watch) run(ctx context.Context) {
	defer close(w.updates)
	defer w.cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for w.err == nil {
		if w.err = w.pollOnce(ctx); w.err != nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.err = ctx.Err()
		}
	}
	w.freshness.ended.Store(true)
}

// pollOnce asks the leader for the last sequence, and delivers what is new. If the leader does not answer, or
// may not be the leader any more, the next poll is another chance; an error ends the watch.
func (w *Watch) pollOnce(ctx context.Context) error {
	asked := time.Now()
	if asked.After(w.ledUntil) && !w.findLeader(ctx) {
		return nil
	}
	if w.certain && len(w.updates) == 0 {
		w.freshness.inDoubt.Store(false)
	}
	last, err := w.last(ctx)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	w.answered = time.Now()
	switch {
	case last < w.seen:
		if w.conn.embedded != nil { // it has failed, before anything else is read: no server can be behind
			w.conn.embedded.WentBack(topology.BucketStream(w.bucket), w.seen)
		}
		return errBucketWentBack
	case !w.loaded:
		err = w.load(ctx)
	default:
		err = w.catchUp(ctx, last)
	}
	if err == nil && w.loaded && w.seen >= last {
		w.freshness.until.Store(asked.UnixNano())
		w.freshness.ended.Store(false)
		w.certain = true
	}
	return err
}

// findLeader finds out until when the server that answers as the leader is believed to be the only one, and
// reports whether it is now. A poll of each watch every two seconds or so begins with it.
//
// A server that goes on after a pause takes answers of before it for new ones. So after a silence in which
// another leader may have been elected, an answer counts that came after the silence.
func (w *Watch) findLeader(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	asked := time.Now()
	stream := topology.BucketStream(w.bucket)
	ago, alone, err := w.conn.heard(ctx, stream)
	if w.conn.answered(stream, err) != nil {
		return false
	}
	now := time.Now()
	if !w.answered.IsZero() && now.Sub(w.answered) > leaderLease {
		w.silence = now
	}
	w.answered = now
	w.ledUntil = asked.Add(leaderLease - ago)
	if !alone && (!asked.Before(w.ledUntil) || asked.Add(-ago).Before(w.silence)) {
		w.ledUntil, w.certain = time.Time{}, false
		w.freshness.inDoubt.Store(true)
		return false
	}
	return true
}

// load delivers every key's newest entry, and the nil after them.
func (w *Watch) load(ctx context.Context) error {
	msgs, err := w.conn.Newest(ctx, topology.BucketStream(w.bucket), topology.BucketSubject(w.bucket, w.keys))
	if err != nil {
		return nil //nolint:nilerr // the next poll is another chance
	}
	slices.SortFunc(msgs, func(a, b jetstream.Msg) int { return cmp.Compare(sequenceOf(a), sequenceOf(b)) })
	for _, m := range msgs {
		e := Entry{w.key(m.Subject()), m.Data(), sequenceOf(m)}
		if err := w.deliver(ctx, m.Headers(), e); err != nil {
			return err
		}
	}
	w.loaded = true
	return w.send(ctx, nil)
}

// catchUp delivers what is new, up to last.
func (w *Watch) catchUp(ctx context.Context, last uint64) error {
	for w.seen < last {
		m, err := w.next(ctx)
		if err != nil {
			return nil //nolint:nilerr // it was replaced meanwhile, or the leader does not answer
		}
		if err := w.deliver(ctx, m.Header, Entry{w.key(m.Subject), m.Data, m.Sequence}); err != nil {
			return err
		}
	}
	return nil
}

// last reads the sequence of the newest entry, 0 if there is none. For a whole bucket that is the stream's
// last message, which the server has at hand. For keys that match it goes through all keys (15 ms at 50,000).
func (w *Watch) last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	subject := topology.BucketSubject(w.bucket, w.keys)
	if w.keys == ">" {
		subject = ">"
	}
	return sequenceIn(w.conn.Last(ctx, topology.BucketStream(w.bucket), subject))
}

// next reads the first entry after those that were seen.
func (w *Watch) next(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return w.conn.Next(ctx, topology.BucketStream(w.bucket), topology.BucketSubject(w.bucket, w.keys),
		w.seen+1)
}

func (w *Watch) key(subject string) string {
	return strings.TrimPrefix(subject, topology.BucketSubject(w.bucket, ""))
}

func (w *Watch) deliver(ctx context.Context, h nats.Header, e Entry) error {
	w.seen = e.Revision
	if IsMarker(h) {
		return nil
	}
	return w.send(ctx, &e)
}

func (w *Watch) send(ctx context.Context, e *Entry) error {
	w.freshness.pending.Add(1)
	select {
	case w.updates <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
