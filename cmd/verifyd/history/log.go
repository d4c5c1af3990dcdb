package history

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Log is what clients saw. Its methods, and those of its parts and their calls, are safe for concurrent use,
// and do nothing on nil, for a load that is not recorded.
type Log struct {
	began time.Time

	mu     sync.Mutex
	last   int64 // instant that was returned
	parts  []*Part
	behind []span
}

// span is the time between two instants.
type span struct{ from, to int64 }

// instant returns the nanoseconds since the log's begin, later each time: a coarse clock must not make calls
// overlap of which one ended before the other began.
func (l *Log) instant() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last+1, int64(time.Since(l.began)))
	return l.last
}

// New returns an empty log.
func New() *Log { return &Log{began: time.Now()} }

// Behind notes that from now on a server that was cut off comes back. Until over is called it may answer a
// read with outdated data: it does not know yet that another server leads (docs/GUARANTEES.md).
func (l *Log) Behind() (over func()) {
	from := l.instant()
	return func() {
		to := l.instant()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.behind = append(l.behind, span{from, to})
	}
}

// isBehind reports whether a call overlaps a time in which a server may have been behind.
func (l *Log) isBehind(in input) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.behind, func(s span) bool { return in.call <= s.to && in.ret >= s.from })
}

// Part is the history of one session, quota or key.
type Part struct {
	log   *Log
	name  string
	model *porcupine.Model

	mu    sync.Mutex
	calls []*Call
}

// Call is one request of a client. If it is not ended, its answer was lost.
type Call struct {
	part *Part
	in   input
	out  output
}

type input struct {
	do   string
	want string // of an end: the requested state
	call int64  // nanoseconds since the log's begin
	ret  int64  // never, if the answer was lost
	// behind: the answer may come from a server that is behind
	behind bool
}

// output is the answer; the zero value if it was lost.
type output struct {
	known bool
	text  string
	n     int64
}

const never = math.MaxInt64

func (l *Log) part(name string, model *porcupine.Model) *Part {
	if l == nil {
		return nil
	}
	p := &Part{log: l, name: name, model: model}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts = append(l.parts, p)
	return p
}

func (p *Part) begin(do, want string) *Call {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &Call{part: p, in: input{do: do, want: want, call: p.log.instant(), ret: never}}
	p.calls = append(p.calls, c)
	return c
}

func (c *Call) end(o output) {
	if c == nil {
		return
	}
	o.known = true
	now := c.part.log.instant()
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	c.in.ret, c.out = now, o
}

// Saw ends a call with a state or another result: what a read found (empty: nothing), or the state in which
// an end left the session.
func (c *Call) Saw(state string) { c.end(output{text: state}) }

// Counted ends a call with a number.
func (c *Call) Counted(n int64) { c.end(output{n: n}) }

// Nothing ends a call that was refused before it could do or show anything, as though it had not been made.
func (c *Call) Nothing() {
	if c == nil {
		return
	}
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	for i, other := range c.part.calls {
		if other == c {
			c.part.calls = append(c.part.calls[:i], c.part.calls[i+1:]...)
			return
		}
	}
}

// checkFor bounds the check of one part, which takes milliseconds if it passes.
const checkFor = 30 * time.Second

// Tally describes how much was checked.
type Tally struct{ Parts, Calls, Lost int }

func (y Tally) String() string {
	return fmt.Sprintf("%d histories of %d calls, of which %d were not answered", y.Parts, y.Calls, y.Lost)
}

// Faults checks all parts, and describes those that no order explains, each with the name of a file in dir
// that shows it. Nothing may be recorded any more.
func (l *Log) Faults(dir string) (faults []string, of Tally) {
	for i, p := range l.parts {
		operations := p.operations()
		of.Parts, of.Calls = of.Parts+1, of.Calls+len(p.calls)
		for _, c := range p.calls {
			if !c.out.known {
				of.Lost++
			}
		}
		switch porcupine.CheckOperationsTimeout(*p.model, operations, checkFor) {
		case porcupine.Ok:
		case porcupine.Unknown:
			faults = append(faults, fmt.Sprintf("%s: %d calls could not be judged within %s", p.name,
				len(operations),
				checkFor))
		default:
			faults = append(faults, p.name+": no order of these calls explains their answers: "+
				p.show(fmt.Sprintf("%s/history-%d.html", dir, i)))
		}
	}
	return faults, of
}

// Check fails a test for each of the Faults.
func (l *Log) Check(t *testing.T, dir string) {
	t.Helper()
	if l == nil {
		return
	}
	faults, of := l.Faults(dir)
	for _, f := range faults {
		t.Error(f)
	}
	t.Logf("%s", of)
}

// informative returns the calls that constrain the order. A read without an answer does not. Of several calls
// without an answer that would do the same, at most once, the first represents the others: what they may have
// done it may have done, too. There are many if a client retries for minutes, and each doubles the search.
func (p *Part) informative() (calls []*Call) {
	lost := map[[2]string]bool{}
	for _, c := range p.calls {
		asked := [2]string{c.in.do, c.in.want}
		switch {
		case c.out.known, c.in.do == doTake:
		case asks(c.in.do), lost[asked]:
			continue
		default:
			lost[asked] = true
		}
		calls = append(calls, c)
	}
	return calls
}

// operations returns the calls for porcupine. Each has a row of its own in its picture.
func (p *Part) operations() (all []porcupine.Operation) {
	last := int64(0)
	calls := p.informative()
	for _, c := range calls {
		last = max(last, c.in.call)
		if c.in.ret != never {
			last = max(last, c.in.ret)
		}
	}
	var rows []int64 // until when each is occupied
	for _, c := range calls {
		end := c.in.ret
		if end == never {
			end = last + 1
		}
		row := 0
		for row < len(rows) && rows[row] >= c.in.call {
			row++
		}
		if row == len(rows) {
			rows = append(rows, 0)
		}
		rows[row] = end
		c.in.behind = p.log.isBehind(c.in)
		all = append(all, porcupine.Operation{
			ClientId: row, Input: c.in, Output: c.out, Call: c.in.call, Return: end,
		})
	}
	return all
}

// show writes a picture, and returns its path, or why there is none.
func (p *Part) show(path string) string {
	_, info := porcupine.CheckOperationsVerbose(*p.model, p.operations(), checkFor)
	if err := porcupine.VisualizePath(*p.model, info, path); err != nil {
		return err.Error()
	}
	return "see " + path
}
