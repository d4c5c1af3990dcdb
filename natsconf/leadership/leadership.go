// Package leadership decides whether the server that answers for a stream is still its only leader. A leader
// that was cut off from the others, or stopped for a while, goes on answering reads for up to 20 s,
// though another one may be elected after four and acknowledge what the first does not have. What it finds is
// old at worst, and a write that is based on it is refused. But what it does not find may well be there: so
// natsconf takes "not found" only from a leader that so many followers have answered within two seconds that
// they are a majority with it.
package leadership

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Within is how long a leader is taken for the only one after so many followers have answered it that
	// they are a majority with it. Each of them waits four seconds until it begins an election, and they
	// answer a heartbeat each second. The leader dates an answer when it takes it, so two seconds are left
	// for one that is late: on its way, or while the leader is stopped. One that was stopped for longer
	// learns of its successor with what it takes next; unless it is cut off as well, that is at once.
	Within = 2 * time.Second
	// aloneFor is how long a stream is taken to have no other copy: the operator may give it more at any
	// time.
	aloneFor = time.Minute
	// again is the pause before a leader is asked again. A new one has votes and soon answers; one that was
	// cut off learns within seconds that it leads no more.
	again = 100 * time.Millisecond
	// askFor is how long an answer is waited for: a server that has vanished gives none.
	askFor = 500 * time.Millisecond
)

// Never is how long ago a majority has answered a leader if too few have.
const Never time.Duration = math.MaxInt64

// ErrNoLeader is returned for the answer of a stream that has no leader: others answer as well then.
var ErrNoLeader = errors.New("the stream has no leader")

var errUnheard = errors.New("most other servers have not answered the stream's leader for two seconds")

// Heard returns how long ago so many servers had answered the leader of a stream that they are a majority
// with it, as the leader has it, or Never. alone: there is no other server. Its error is ErrNoLeader.
func Heard(info *jetstream.StreamInfo) (ago time.Duration, alone bool, err error) {
	switch {
	case info.Cluster == nil || len(info.Cluster.Replicas) == 0:
		return 0, true, nil
	case info.Cluster.Leader == "":
		return Never, false, ErrNoLeader
	}
	answered := slices.DeleteFunc(slices.Clone(info.Cluster.Replicas), func(f *jetstream.PeerInfo) bool {
		return f.Active == 0 && !f.Current // never yet
	})
	needed := (len(info.Cluster.Replicas) + 1) / 2
	if len(answered) < needed {
		return Never, false, nil
	}
	slices.SortFunc(answered, func(a, b *jetstream.PeerInfo) int { return cmp.Compare(a.Active, b.Active) })
	return answered[needed-1].Active, false, nil
}

// Leaders remembers until when the leaders of streams are taken for the only ones. Its methods are safe for
// concurrent use.
type Leaders struct {
	ask func(ctx context.Context, stream string) (ago time.Duration, alone bool, err error)

	mu      sync.Mutex
	streams map[string]*leader
}

// leader is what is known of a stream's leader.
type leader struct {
	until  time.Time
	asking chan struct{} // closed when the question under way has ended; nil: there is none
	err    error         // of the last question
}

// New returns Leaders that knows of none. ask asks the leader of a stream, and returns what Heard does.
func New(ask func(ctx context.Context, stream string) (time.Duration, bool, error)) *Leaders {
	return &Leaders{ask: ask, streams: map[string]*leader{}}
}

// Until returns until when the leader of a stream is taken for the only one; the past if that is not known.
func (l *Leaders) Until(stream string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(stream).until
}

// Await waits until the leader of a stream is known to be the only one. Callers at the same time share one
// question, and those of the second or two after it need none. The error, once ctx has ended, says why it is
// not known.
func (l *Leaders) Await(ctx context.Context, stream string) error {
	for {
		l.mu.Lock()
		s := l.of(stream)
		asking, err, known := s.asking, s.err, time.Now().Before(s.until)
		ended := ctx.Err() // once: whoever takes the question asks it
		mine := asking == nil && !known && ended == nil
		if mine {
			s.asking = make(chan struct{})
		}
		l.mu.Unlock()
		switch {
		case known:
			return nil
		case ended != nil:
			return errors.Join(err, ended)
		case mine:
			l.askOnce(ctx, stream, s)
		default:
			select {
			case <-asking:
			case <-ctx.Done():
			}
		}
	}
}

// askOnce asks the leader of a stream. A question that did not help ends after a pause.
func (l *Leaders) askOnce(ctx context.Context, stream string, s *leader) {
	asked := time.Now() // before the question: the answer is older when it comes
	var until time.Time
	var err error
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.err = err; err == nil {
			s.until = until
		}
		close(s.asking)
		s.asking = nil
	}()
	try, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var ago time.Duration
	var alone bool
	ago, alone, err = l.ask(try, stream)
	until = asked.Add(Within - ago)
	switch {
	case err != nil:
	case alone:
		until = asked.Add(aloneFor)
	case ago >= Within:
		err = errUnheard
	}
	if err != nil {
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// of returns what is known of a stream's leader. l.mu is held.
func (l *Leaders) of(stream string) *leader {
	if l.streams[stream] == nil {
		l.streams[stream] = &leader{}
	}
	return l.streams[stream]
}
