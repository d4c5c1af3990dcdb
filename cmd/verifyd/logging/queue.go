package logging

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxQueued bounds what waits behind what is being written, in bytes: some 2,000 lines.
const maxQueued = 1 << 20

// Queue writes lines to another writer, in their order. Nobody waits for it: a pipe that nobody reads does
// not stop the service. What exceeds a bound is dropped and counted. It is safe for concurrent use.
type Queue struct {
	out     io.Writer
	dropped prometheus.Counter

	mu      sync.Mutex
	queued  []byte
	lost    int           // lines that were dropped and not reported
	broken  bool          // the last write failed
	writing chan struct{} // closed when nothing is queued any more; nil: nothing is
}

// NewQueue returns a queue in front of out.
func NewQueue(out io.Writer) *Queue {
	return &Queue{out: out, dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "verifyd_log_dropped_lines_total",
		Help: "Log lines that were dropped, since what reads the log did not, or does not any more.",
	})}
}

// Write queues whole lines.
func (q *Queue) Write(lines []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued)+len(lines) > maxQueued {
		q.drop(lines)
		return len(lines), nil
	}
	q.queued = append(q.queued, lines...)
	if q.writing == nil {
		q.writing = make(chan struct{})
		go q.write(q.writing)
	}
	return len(lines), nil
}

func (q *Queue) drop(lines []byte) {
	n := bytes.Count(lines, []byte("\n"))
	q.lost += n
	q.dropped.Add(float64(n))
}

// write writes until nothing is queued.
func (q *Queue) write(done chan<- struct{}) {
	defer close(done)
	var batch []byte
	for q.next(&batch) {
		_, err := q.out.Write(batch)
		q.mu.Lock()
		if q.broken = err != nil; q.broken { // its reader is gone, or its disk is full
			q.drop(batch)
		}
		q.mu.Unlock()
	}
}

// next takes what is queued, and reports whether there is something.
func (q *Queue) next(batch *[]byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	*batch, q.queued = q.queued, (*batch)[:0]
	if len(*batch) == 0 {
		q.writing = nil
	}
	return len(*batch) > 0
}

// Flush waits until everything is written, for a while.
func (q *Queue) Flush(within time.Duration) {
	q.mu.Lock()
	writing := q.writing
	q.mu.Unlock()
	if writing == nil {
		return
	}
	select {
	case <-writing:
	case <-time.After(within):
	}
}

// takeLost returns how many lines were dropped since the last call, once all others are written: then a line
// about them is written, too.
func (q *Queue) takeLost() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing == nil && !q.broken {
		n, q.lost = q.lost, 0
	}
	return n
}
