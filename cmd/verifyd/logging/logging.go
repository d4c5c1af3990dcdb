// Package logging is the log of the process. Its level can be changed while it runs. A warning that repeats
// is logged a few times a minute and then counted. Lines of requests and attempts are left out only if nobody
// reads the log.
package logging

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

const (
	// maxRepeats is how many lines of one message and cause are written within repeatsEvery; the others are
	// counted. An outage is logged soon and often enough, and does not fill a disk.
	maxRepeats   = 5
	repeatsEvery = time.Minute
	// maxCauses bounds how many messages with their causes are distinguished; beyond that, only messages are.
	maxCauses = 512
)

// Logger is the log of one process. It is safe for concurrent use.
type Logger struct {
	Queue *Queue // what its lines go through at the end; nil: they are written at once

	out        io.Writer
	always     []string
	suppressed prometheus.Counter
	level      atomic.Value // a zerolog.Level

	mu      sync.Mutex
	usual   zerolog.Level // the level at the end of a temporary change
	until   time.Time     // when it ends; zero: no such change
	revert  *time.Timer
	repeats map[cause]*repeat
}

// cause is what repeats: a message and its error.
type cause struct {
	level        zerolog.Level
	message, why string
}

// repeat is how often a cause came since an instant.
type repeat struct {
	since             time.Time
	written, withheld int
}

// New returns a logger that writes lines of a level or above to out. The messages in always are never
// withheld.
func New(out io.Writer, level zerolog.Level, always ...string) *Logger {
	j := &Logger{
		out: zerolog.SyncWriter(out), always: always, usual: level, repeats: map[cause]*repeat{},
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verifyd_log_suppressed_lines_total",
			Help: "Log lines that were withheld, since the same message with the same cause had just " +
				"been written.",
		}),
	}
	j.level.Store(level)
	return j
}

// Log returns the log that writes through it.
func (j *Logger) Log() zerolog.Logger {
	return zerolog.New(j).Sample(j).With().Timestamp().Logger()
}

// Measure registers the metrics of lines that are not written.
func (j *Logger) Measure(r prometheus.Registerer) {
	r.MustRegister(j.suppressed)
	if j.Queue != nil {
		r.MustRegister(j.Queue.dropped)
	}
}

// Sample reports whether a line of this level is wanted. The log calls it before it makes one.
func (j *Logger) Sample(l zerolog.Level) bool { return l >= j.now() }

func (j *Logger) now() zerolog.Level {
	l, _ := j.level.Load().(zerolog.Level) // nothing else is ever stored
	return l
}

// Level returns the level, and until when it holds; zero: permanently.
func (j *Logger) Level() (level string, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.now().String(), j.until
}

// SetLevel changes the level, for a while if that is above 0. The error lists the levels.
func (j *Logger) SetLevel(level string, during time.Duration) error {
	l, err := ParseLevel(level)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.revert != nil {
		j.revert.Stop()
		j.revert = nil
	}
	j.level.Store(l)
	j.until = time.Time{}
	if during <= 0 {
		j.usual = l
		return nil
	}
	j.until = time.Now().Add(during)
	j.revert = time.AfterFunc(during, j.resume)
	return nil
}

// resume ends a temporary change, unless another one has been made since.
func (j *Logger) resume() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.until.IsZero() || time.Now().Before(j.until) {
		return
	}
	j.level.Store(j.usual)
	j.until, j.revert = time.Time{}, nil
}

// ParseLevel reads a level's name.
func ParseLevel(s string) (zerolog.Level, error) {
	l, err := zerolog.ParseLevel(s)
	if err != nil || l < zerolog.TraceLevel || l > zerolog.ErrorLevel {
		return 0, fmt.Errorf("%q is not a level; use trace, debug, info, warn or error", s)
	}
	return l, nil
}

// Write writes a line that has no level.
func (j *Logger) Write(line []byte) (int, error) { return j.out.Write(line) }

// WriteLevel writes a line, or counts it if similar lines were written often enough recently.
func (j *Logger) WriteLevel(l zerolog.Level, line []byte) (int, error) {
	if l >= zerolog.WarnLevel && j.withhold(l, line) {
		return len(line), nil
	}
	return j.out.Write(line)
}

// varying matches what differs between lines of one cause: ids and numbers.
var varying = regexp.MustCompile(`[0-9A-Za-z_-]{20,}|[0-9]+`)

func (j *Logger) withhold(l zerolog.Level, line []byte) bool {
	var fields struct {
		Message string `json:"message"`
		Error   string `json:"error"`
		Cause   string `json:"cause"`
	}
	if json.Unmarshal(line, &fields) != nil || slices.Contains(j.always, fields.Message) {
		return false
	}
	c := cause{l, fields.Message, varying.ReplaceAllString(fields.Error+fields.Cause, "#")}
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.repeats[c]
	if r == nil && len(j.repeats) >= maxCauses {
		c.why = ""
		r = j.repeats[c]
	}
	if r == nil {
		r = &repeat{since: now}
		j.repeats[c] = r
	}
	if r.written < maxRepeats {
		r.written++
		return false
	}
	r.withheld++
	j.suppressed.Inc()
	return true
}

// Serve logs once a minute what was withheld, and the rest at its end, and soon what was dropped.
func (j *Logger) Serve(ctx context.Context) error {
	tick := time.NewTicker(repeatsEvery / 6)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			j.flush(now.Add(-repeatsEvery))
			j.reportDropped()
		case <-ctx.Done():
			j.flush(time.Now().Add(time.Hour))
			return ctx.Err()
		}
	}
}

func (j *Logger) reportDropped() {
	if j.Queue == nil {
		return
	}
	if n := j.Queue.takeLost(); n > 0 {
		log := zerolog.New(j.out).With().Timestamp().Logger()
		log.Warn().Int("dropped", n).
			Msg("log lines were dropped: what reads the log did not read them in time")
	}
}

// flush ends the counts that began before an instant, and writes a line for each that withheld any.
func (j *Logger) flush(before time.Time) {
	over := map[cause]*repeat{}
	j.mu.Lock()
	for c, r := range j.repeats {
		if r.since.Before(before) {
			over[c] = r
			delete(j.repeats, c)
		}
	}
	j.mu.Unlock()
	log := zerolog.New(j.out).With().Timestamp().Logger()
	for c, r := range over {
		if r.withheld > 0 {
			log.WithLevel(c.level).Str("cause", c.why).Int("suppressed", r.withheld).Time("since", r.since).
				Msg(c.message)
		}
	}
}
