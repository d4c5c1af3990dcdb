package natsconf

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/wait"
)

const (
	// maxBehind is how long a reading waits for servers that are behind the stream's leader, and
	// switchAfter how long for one of them.
	maxBehind   = ackTimeout
	switchAfter = 250 * time.Millisecond
	// newestAtOnce is how many subjects of one reading the leader is asked about at once: a month's days
	// take four turns instead of 31, and no reading crowds the others out.
	newestAtOnce = 8
)

// Head reads the first messages on a stream's subjects that match, at most limit, and counts all of them, as
// known by a server that may be a moment behind the stream's leader. Its error is ErrUnavailable, also when
// ctx ends.
func (r *Reader) Head(ctx context.Context, stream, subject string, limit int) (msgs []jetstream.Msg,
	all uint64,
	err error) {
	defer func() { err = r.answered(stream, err) }()
	consumer, done, err := r.consumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return nil, 0, err
	}
	defer done()
	if all = consumer.CachedInfo().NumPending; all == 0 {
		return nil, 0, nil
	}
	if msgs, err = fetch(ctx, consumer, limit); err != nil {
		return nil, 0, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
	}
	return msgs, all, nil
}

// Tail reads what is stored in a stream from now on, without the messages' data, until done is called. A
// message that comes after Tail has returned is not missed while the connection is up. After the connection
// has come back (Back), and after an error that the consumer reports, the caller begins again. Its error is
// ErrUnavailable.
func (r *Reader) Tail(ctx context.Context, stream string) (_ jetstream.Consumer, done func(), err error) {
	return r.consumer(ctx, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverNewPolicy, HeadersOnly: true,
	})
}

// Newest reads the newest message on each subject of a stream that matches one of these, in no particular
// order, by one consumer that is gone afterwards. It is for subjects whose messages fit into memory, and
// sees every acknowledged write. Its error is ErrUnavailable, also when ctx ends.
func (r *Reader) Newest(ctx context.Context, stream string, subjects ...string) ([]jetstream.Msg, error) {
	// messages that are written meanwhile come again, and so may older ones from another server
	newest := map[string]jetstream.Msg{}
	s := scan{r: r, stream: stream, last: math.MaxUint64, config: jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}}
	err := s.pages(ctx, func(page []jetstream.Msg) error {
		for _, m := range page {
			if there, ok := newest[m.Subject()]; !ok || sequenceOf(m) > sequenceOf(there) {
				newest[m.Subject()] = m
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(newest)), nil
}

// Range reads the messages with sequences from first to last whose subject matches, oldest first, by a
// consumer that is gone afterwards: thousands of single reads would get in the way of the service's own. It
// sees every acknowledged write; messages that have aged out meanwhile are left out. Its error is
// ErrUnavailable, also when ctx ends.
func (r *Reader) Range(ctx context.Context, stream, subject string, first, last uint64) (msgs []jetstream.Msg,
	err error) {
	err = r.Pages(ctx, stream, subject, first, last, func(page []jetstream.Msg) error {
		msgs = append(msgs, page...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return msgs, nil
}

// Pages is Range for messages that do not fit into memory: it hands them on page by page, and the reader must
// be done with each page within 30 s. Its errors are ErrUnavailable, also when ctx ends, and do's.
func (r *Reader) Pages(ctx context.Context, stream, subject string, first, last uint64,
	do func([]jetstream.Msg) error) error {
	first = max(first, 1)
	s := scan{r: r, stream: stream, last: last, position: first - 1, config: jetstream.ConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: first,
	}}
	return s.pages(ctx, do)
}

// sequenceOf returns the sequence of a message that a scan has read, and so found to have one.
func sequenceOf(m jetstream.Msg) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Stream
}

// scan is one reading by a consumer. On a cluster the consumer may live on a server that is behind the
// stream's leader; one that has just come back is far behind. A reading therefore ends with the newest
// message that the leader held when it began, and looks for another server if that message does not come
// soon.
type scan struct {
	r           *Reader
	stream      string
	config      jetstream.ConsumerConfig
	consumer    jetstream.Consumer
	drop        func()    // deletes the consumer
	end         uint64    // sequence of that newest message, or of one before it if the reading ends earlier
	last        uint64    // last sequence to be read
	position    uint64    // sequence that it has reached
	expected    uint64    // how many this consumer had to deliver when it was created
	delivered   uint64    // how many came from it
	lastArrival time.Time // when something last came from it
}

// pages makes the reading, and calls do with each page of it.
func (s *scan) pages(ctx context.Context, do func([]jetstream.Msg) error) error {
	s.drop = func() {}
	defer func() { s.drop() }()
	if err := s.begin(ctx); err != nil {
		return s.r.answered(s.stream, err)
	}
	for {
		page, err := s.next(ctx)
		if err = s.r.answered(s.stream, err); err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		if err := do(page); err != nil {
			return err
		}
	}
}

// begin finds out where the reading ends, and makes its first consumer if anything is there.
func (s *scan) begin(ctx context.Context) error {
	newest, err := s.newest(ctx)
	if err != nil {
		return err
	}
	if s.end = min(newest, s.last); s.position >= s.end {
		return nil
	}
	return s.newConsumer(ctx)
}

// newConsumer goes on with a new consumer in place of any existing one, on whatever server.
func (s *scan) newConsumer(ctx context.Context) error {
	config := s.config
	if config.DeliverPolicy == jetstream.DeliverByStartSequencePolicy {
		config.OptStartSeq = s.position + 1
	}
	consumer, drop, err := s.r.consumer(ctx, s.stream, config)
	if err != nil {
		return err
	}
	s.drop()
	s.consumer, s.drop = consumer, drop
	s.expected, s.delivered, s.lastArrival = consumer.CachedInfo().NumPending, 0, time.Now()
	return nil
}

// newest asks the stream's leader for the sequence of the newest message that the reading covers; 0 if there
// is none. After a failure it asks nothing more.
func (s *scan) newest(ctx context.Context) (sequence uint64, err error) {
	var mu sync.Mutex
	note := func(found uint64, failed error) (goOn bool) {
		mu.Lock()
		defer mu.Unlock()
		sequence = max(sequence, found)
		if err == nil {
			err = failed
		}
		return err == nil
	}
	var asked sync.WaitGroup
	room := make(chan struct{}, newestAtOnce)
	for _, subject := range s.config.FilterSubjects {
		room <- struct{}{}
		if !note(0, nil) {
			break
		}
		asked.Go(func() {
			note(sequenceIn(s.r.Last(ctx, s.stream, subject)))
			<-room
		})
	}
	asked.Wait()
	return sequence, err
}

// next returns the next messages; none at the end of the reading. Its error is ErrUnavailable.
func (s *scan) next(ctx context.Context) (page []jetstream.Msg, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read from %s: %w: %w", s.stream, ErrUnavailable, err)
		}
	}()
	for begun := time.Now(); s.position < s.end; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		came, err := fetch(ctx, s.consumer, s.batchSize())
		if err != nil && time.Since(begun) < maxBehind {
			err = s.newConsumer(ctx) // its server has gone
		}
		if err != nil {
			return nil, err
		}
		before := s.delivered
		if page, err = s.accept(came); err != nil || len(page) > 0 {
			return page, err
		}
		if s.delivered == before {
			if err := s.awaitOrSwitch(ctx, begun); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// batchSize returns how many messages to ask for: no more than there should be, since memory is allocated for
// them.
func (s *scan) batchSize() int {
	left := uint64(readingFew)
	if s.expected > s.delivered {
		left = s.expected - s.delivered
	}
	return int(min(readingPage, s.last-s.position, left))
}

// accept records the messages that came, and returns those that were asked for. Messages after a gap are
// left for another consumer.
func (s *scan) accept(came []jetstream.Msg) (page []jetstream.Msg, err error) {
	for _, m := range came {
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Consumer != s.delivered+1 {
			break
		}
		s.delivered, s.lastArrival = s.delivered+1, time.Now()
		if s.position = max(s.position, meta.Sequence.Stream); meta.Sequence.Stream <= s.last {
			page = append(page, m)
		}
	}
	return page, nil
}

// awaitOrSwitch finds out why nothing came, or only messages after a gap. If messages were lost on the way,
// another consumer delivers them again. If the newest one has left the stream meanwhile, the reading ends
// with the one before it. Otherwise the server is behind: the reading waits for it, counted from begun, or
// changes to another one.
func (s *scan) awaitOrSwitch(ctx context.Context, begun time.Time) error {
	try, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	info, err := s.consumer.Info(try)
	if err != nil {
		return err
	}
	newest, err := s.newest(ctx)
	if err != nil {
		return err
	}
	s.end = min(s.end, newest)
	switch lost := info.Delivered.Consumer != s.delivered; {
	case s.position >= s.end:
		return nil
	case time.Since(begun) > maxBehind:
		return fmt.Errorf("message %d has not come within %s: the servers that were read from are "+
			"busy, or behind the stream's leader", s.end, maxBehind)
	case lost || time.Since(s.lastArrival) > switchAfter:
		return s.newConsumer(ctx)
	default:
		return wait.Pause(ctx, readingPause)
	}
}
