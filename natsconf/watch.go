package natsconf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// lookEvery is how often a watch asks the leader whether it has everything. What it misses at two looks it reads from the leader: so
	// a change is seen within half a second of its acknowledgement, whatever has become of the server that serves the watch. A look costs
	// one small message.
	lookEvery = 200 * time.Millisecond
	// lookFor is how long an answer is waited for: what was asked of a server that has just gone is never answered.
	lookFor = 500 * time.Millisecond
	// sightLag is from when on a watch that no look has found whole counts as blind: looks that find it whole are lookEvery apart.
	sightLag = time.Second
	// feedFor is how long the start of a feed is waited for, and feedPause lies between two.
	feedFor, feedPause = 3 * time.Second, 100 * time.Millisecond
	// feedStall is how many looks a feed has before another takes its place: one that has not begun to give, without a message; one that
	// lags, since it was begun: what it lacks is read from the leader until then.
	feedStall = 10
	// watchQueue is how many entries wait for who follows a watch.
	watchQueue = 256
	// mendMost bounds what is read from the leader at one look, message by message.
	mendMost = 100
)

// errBucketWentBack ends a watch whose bucket has lost what was seen in it, as one that was brought back from an older copy.
var errBucketWentBack = errors.New("the bucket has lost what was seen in it")

// Sight is until when somebody who follows a watch has seen everything. It outlasts the watch, so that the next one goes on with it; the
// zero value has seen nothing yet.
type Sight struct {
	until atomic.Int64 // Unix nanoseconds
	ended atomic.Bool  // there is no watch that could see more
}

// BlindSince gives since when changes may not have been seen; zero while all are, and before everything was seen once.
func (s *Sight) BlindSince() time.Time {
	until := s.until.Load()
	if until == 0 || !s.ended.Load() && time.Since(time.Unix(0, until)) < sightLag {
		return time.Time{}
	}
	return time.Unix(0, until)
}

// Watch follows the entries of a key-value bucket: first every key's newest one, then each change, in order. A server that is behind feeds
// an older one first, and the newer one as a change. Of what has been taken away it tells nothing.
//
// Entries are fed by some server that has a copy of the bucket. That one may vanish, which the client's library notices after 10 s and
// more; it may be behind, which nobody notices; and while the servers elect who places consumers, no other can be had. So a watch asks the
// leader of the bucket, several times a second, what it should have seen, and reads from it what it has not.
//
// In a bucket whose entries expire or are purged, the end of the newest entry ends the watch with an error, as if an older copy had been
// brought back, and the caller begins it again. None of the buckets watched today is such a one.
type Watch struct {
	updates chan jetstream.KeyValueEntry
	err     error // set before updates is closed
	cancel  context.CancelFunc
	done    chan struct{} // closed when nothing of the watch is left
}

// Watch begins to watch the keys of a bucket that match, and notes in a sight until when everything has been seen. The caller closes the
// watch, which outlives lost connections and servers.
func (c *Conn) Watch(ctx context.Context, bucket, keys string, s *Sight) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{updates: make(chan jetstream.KeyValueEntry, watchQueue), cancel: cancel, done: make(chan struct{})}
	f := follower{
		w: w, conn: c, bucket: bucket, keys: keys, sight: s, looks: make(chan look), soon: make(chan struct{}, 1), begun: make(chan *feed, 1),
	}
	go f.lookOn(ctx)
	go f.follow(ctx)
	return w
}

// Updates gives the entries. A nil comes once, when everything has been given that the leader held by then. The channel is closed when the
// watch has ended.
func (w *Watch) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

// Err tells why Updates was closed.
func (w *Watch) Err() error { return w.err }

// Close ends the watch, and waits until the server has let go of what fed it. Where that one does not answer, the watch lets go some
// seconds later, on its own.
func (w *Watch) Close() {
	w.cancel()
	for range w.updates { // its goroutine waits for a reader otherwise
	}
	select {
	case <-w.done:
	case <-time.After(lookFor):
	}
}

// look is what the leader held at an instant.
type look struct {
	asked time.Time
	last  uint64 // sequence
}

// follower is the goroutine that alone knows how far a watch has come.
type follower struct {
	w            *Watch
	conn         *Conn
	bucket, keys string
	sight        *Sight

	looks     chan look
	soon      chan struct{}  // has a value when the next look is wanted at once
	feed      *feed          // nil while there is none
	begun     chan *feed     // the next one
	beginning bool           // it is on its way
	ending    sync.WaitGroup // of the feeds that were given up
	age       int            // looks since the feed was begun
	lacks     uint64         // up to here the leader was asked for what the feed had not given; zero: it has given it since

	loaded bool   // a feed has given what its server held at its beginning
	whole  bool   // and the leader held no more than that
	seen   uint64 // sequence
	before uint64 // seen, at the last look
	owed   uint64 // what the leader held at the last look and had not come
	still  int    // looks in a row at which nothing had come
}

// lookOn asks the leader until ctx ends. Where it does not answer, nothing is known.
func (f *follower) lookOn(ctx context.Context) {
	defer close(f.looks)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		l := look{asked: time.Now()}
		if m, answered := f.ask(ctx, f.last); answered {
			if m != nil {
				l.last = m.Sequence
			}
			select {
			case f.looks <- l:
			case <-ctx.Done():
			}
		}
		select {
		case <-tick.C:
		case <-f.soon:
		case <-ctx.Done():
		}
	}
}

// last reads the newest entry. Of a whole bucket that is the stream's last message, which the server has at hand, whereas it goes through
// all keys for those that match (15 ms at 50,000). It has to where the last message was purged: what is before it counts then.
func (f *follower) last(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	if f.keys == ">" {
		if m, err := f.conn.Last(ctx, BucketStream(f.bucket), ">"); !errors.Is(err, ErrNotFound) {
			return m, err
		}
	}
	return f.conn.Last(ctx, BucketStream(f.bucket), BucketSubject(f.bucket, f.keys))
}

// ask asks the leader for a message, and says whether it has answered; nil: there is none.
func (f *follower) ask(ctx context.Context, read func(ctx context.Context) (*jetstream.RawStreamMsg, error)) (m *jetstream.RawStreamMsg, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	m, err := read(ctx)
	if err != nil {
		return nil, errors.Is(err, ErrNotFound)
	}
	return m, true
}

func (f *follower) follow(ctx context.Context) {
	defer close(f.w.done)
	f.begin(ctx)
	f.w.err = f.run(ctx)
	f.sight.ended.Store(true)
	f.w.cancel()
	close(f.w.updates) // who follows goes on at once, what is left may take seconds
	for range f.looks {
	}
	if f.beginning {
		f.feed = <-f.begun
	}
	f.end(f.feed)
	f.ending.Wait()
}

func (f *follower) run(ctx context.Context) error {
	back := f.conn.Back()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f.feed = <-f.begun:
			f.beginning, f.still, f.age, f.lacks = false, 0, 0, 0
		case <-back: // a server that was started anew has forgotten the feed
			back = f.conn.Back()
			f.renew(ctx)
		case l := <-f.looks:
			err = f.compare(ctx, l)
		case e, ok := <-f.feed.updates():
			if ok {
				err = f.take(ctx, e)
			} else {
				f.renew(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// renew ends the feed, where there is one, and begins another.
func (f *follower) renew(ctx context.Context) {
	if f.beginning {
		return
	}
	f.end(f.feed)
	f.feed = nil
	f.begin(ctx)
}

// end ends a feed, nil included, beside what is going on: changes are not held up by it.
func (f *follower) end(old *feed) {
	if old != nil {
		f.ending.Go(old.end)
	}
}

// begin begins a feed from what has been seen on, however long that takes. It is put into begun, nil where ctx has ended.
func (f *follower) begin(ctx context.Context) {
	f.beginning = true
	var opts []jetstream.WatchOpt
	if f.loaded {
		opts = append(opts, jetstream.ResumeFromRevision(f.seen+1))
	} else {
		f.seen, f.before = 0, 0 // from the beginning: what came of a feed that broke comes again
	}
	go func() {
		for ctx.Err() == nil {
			if next := f.beginOnce(ctx, opts); next != nil {
				f.begun <- next
				return
			}
			select {
			case <-time.After(feedPause):
			case <-ctx.Done():
			}
		}
		f.begun <- nil
	}()
}

func (f *follower) beginOnce(ctx context.Context, opts []jetstream.WatchOpt) *feed {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(feedFor, cancel)
	kv, err := f.conn.JS.KeyValue(ctx, f.bucket)
	var from jetstream.KeyWatcher
	if err == nil {
		from, err = kv.Watch(ctx, f.keys, opts...) // deletions too: they are part of what the leader holds
	}
	if err != nil {
		cancel()
		f.conn.read(BucketStream(f.bucket), fmt.Errorf("%w: %w", ErrUnavailable, err))
		return nil
	}
	next := &feed{from: from, cancel: cancel}
	if !late.Stop() {
		f.end(next)
		return nil
	}
	return next
}

// take takes what a feed gives.
func (f *follower) take(ctx context.Context, e jetstream.KeyValueEntry) error {
	f.still = 0
	if e == nil {
		f.loaded = true
		select {
		case f.soon <- struct{}{}:
		default:
		}
		return nil
	}
	if e.Revision() >= f.lacks {
		f.lacks = 0
	}
	if e.Revision() <= f.seen {
		return nil // it came from the leader already
	}
	f.seen = e.Revision()
	if e.Operation() != jetstream.KeyValuePut {
		return nil
	}
	return f.give(ctx, e)
}

func (f *follower) give(ctx context.Context, e jetstream.KeyValueEntry) error {
	select {
	case f.w.updates <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// compare judges by what the leader holds what has come.
func (f *follower) compare(ctx context.Context, l look) error {
	before, owed := f.before, f.owed
	f.before, f.owed = f.seen, 0
	f.still++
	f.age++
	if f.lacks > 0 && f.age > feedStall {
		f.renew(ctx)
	}
	switch {
	case !f.loaded:
		if f.still > feedStall {
			f.renew(ctx)
		}
		return nil
	case l.last < min(before, f.seen):
		return errBucketWentBack
	case l.last <= f.seen:
		return f.confirm(ctx, l)
	case f.seen >= owed || owed == 0: // it may be on its way
		f.owed = l.last
		return nil
	}
	if err := f.mend(ctx, l.last); err != nil {
		return err
	}
	f.lacks = l.last
	if f.seen >= l.last {
		return f.confirm(ctx, l)
	}
	f.owed = l.last
	return nil
}

// confirm notes that everything was seen that the leader held at a look.
func (f *follower) confirm(ctx context.Context, l look) error {
	f.sight.until.Store(l.asked.UnixNano())
	f.sight.ended.Store(false)
	if f.whole {
		return nil
	}
	f.whole = true
	return f.give(ctx, nil)
}

// mend reads from the leader what has not come, up to last. Where the leader does not answer, the next look is another chance.
func (f *follower) mend(ctx context.Context, last uint64) error {
	for range mendMost {
		if f.seen >= last {
			break
		}
		m, _ := f.ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return f.conn.Next(ctx, BucketStream(f.bucket), BucketSubject(f.bucket, f.keys), f.seen+1)
		})
		if m == nil {
			break
		}
		f.seen = m.Sequence
		if IsMarker(m.Header) {
			continue
		}
		if err := f.give(ctx, &mended{bucket: f.bucket, m: m}); err != nil {
			return err
		}
	}
	return nil
}
