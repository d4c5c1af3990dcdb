package modelcheck

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"time"
)

// Model is a protocol and its world. Its functions are pure and are called concurrently.
type Model[S comparable] struct {
	Initial []S
	// Steps calls yield with each step that may follow a state. Steps that lead back to the state may be left
	// out.
	Steps func(s S, yield func(Event, S))
	// Fold returns the representative of all states that differ from a state only in names; nil: each
	// represents itself.
	Fold func(S) S
	// Broken describes the invariant that a state violates; empty if it violates none.
	Broken func(S) string
	// Ended reports whether nothing is left to do in a state.
	Ended func(S) bool
}

// Options bound an exploration. Zero values are no bounds.
type Options struct {
	Depth  int // of the steps from a first state
	States int // the level that reaches so many is finished
}

// Report is what an exploration has shown.
type Report struct {
	States, Steps int
	Depth         int  // the longest of the shortest ways to a state
	Cut           bool // a bound was reached before all states were
	Took          time.Duration
	// Broken is the first thing that does not hold, by its name where there are more on one level, and Trace
	// a shortest way to it; empty where all holds.
	Broken string
	Trace  []Event
}

// String describes the report in one line.
func (r Report) String() string {
	all := "all"
	if r.Cut {
		all = "cut short"
	}
	return fmt.Sprintf("%d states (%s), %d steps, depth %d, %.1fs", r.States, all, r.Steps, r.Depth,
		r.Took.Seconds())
}

// noEnd is what does not hold where no end is reachable.
const noEnd = "no end is reachable any more"

// batch is how many states are expanded before what they lead to is stored.
const batch = 1 << 15

// explorer is one exploration.
type explorer[S comparable] struct {
	Model[S]

	seed   maphash.Seed
	shards []shard[S]
	chunks []chunk[S]
	cut    []ref // states that were not expanded
	report Report
}

// chunk is what one goroutine found of a batch, by the shard that it goes to.
type chunk[S comparable] struct {
	found [][]arrival[S]
	steps int
}

type arrival[S comparable] struct {
	state  S
	from   ref
	chance bool
}

// Explore visits the states of a model. It ends with the first level in which something does not hold.
func Explore[S comparable](m Model[S], o Options) Report {
	began := time.Now()
	if m.Fold == nil {
		m.Fold = func(s S) S { return s }
	}
	e := &explorer[S]{Model: m, seed: maphash.MakeSeed(), shards: make([]shard[S], shardCount)}
	e.chunks = make([]chunk[S], runtime.GOMAXPROCS(0))
	for _, s := range m.Initial {
		e.insert(arrival[S]{state: m.Fold(s), from: none})
	}
	e.run(o)
	e.report.Took = time.Since(began)
	return e.report
}

func (e *explorer[S]) run(o Options) {
	for level := e.level(); ; level = e.level() {
		if broken, at := e.broken(level); broken != "" {
			e.fail(broken, at)
			return
		}
		if e.report.States += len(level); len(level) == 0 {
			break
		}
		if o.Depth > 0 && e.report.Depth >= o.Depth || o.States > 0 && e.report.States >= o.States {
			e.report.Cut = true
			e.cut = level
			break
		}
		for len(level) > 0 {
			n := min(batch, len(level))
			e.expand(level[:n])
			e.store()
			level = level[n:]
		}
		if e.grown() {
			e.report.Depth++
		}
	}
	if at, stuck := e.stuck(); stuck {
		e.fail(noEnd, at)
	}
}

// broken returns the first thing, by its name, that does not hold in a state of a level: the order of the
// states is another one in each run.
func (e *explorer[S]) broken(level []ref) (first string, where ref) {
	for _, at := range level {
		if b := e.Broken(e.state(at)); b != "" && (first == "" || b < first) {
			first, where = b, at
		}
	}
	return first, where
}

// expand finds the successors of some states.
func (e *explorer[S]) expand(states []ref) {
	var all sync.WaitGroup
	share := (len(states) + len(e.chunks) - 1) / len(e.chunks)
	for i := range e.chunks {
		all.Go(func() {
			c := &e.chunks[i]
			if c.found == nil {
				c.found = make([][]arrival[S], shardCount)
			}
			first := min(i*share, len(states))
			for _, at := range states[first:min(first+share, len(states))] {
				s := e.state(at)
				e.Steps(s, func(event Event, to S) {
					c.steps++
					if to = e.Fold(to); to != s {
						k := e.shardOf(to)
						c.found[k] = append(c.found[k], arrival[S]{to, at, event.Chance})
					}
				})
			}
		})
	}
	all.Wait()
}

// store stores the successors, each shard separately, in an order that does not depend on goroutines.
func (e *explorer[S]) store() {
	var all sync.WaitGroup
	for g := range len(e.chunks) {
		all.Go(func() {
			for k := g; k < shardCount; k += len(e.chunks) {
				for i := range e.chunks {
					for _, a := range e.chunks[i].found[k] {
						e.shards[k].insert(e.seed, k, a)
					}
					e.chunks[i].found[k] = e.chunks[i].found[k][:0]
				}
			}
		})
	}
	all.Wait()
	for i := range e.chunks {
		e.report.Steps += e.chunks[i].steps
		e.chunks[i].steps = 0
	}
}

// fail reports the violation in a state, with the trace to it.
func (e *explorer[S]) fail(broken string, at ref) {
	e.report.Broken = broken
	e.report.Trace = e.trace(at)
}

// trace returns the steps to a state. It follows the unfolded states, so that an actor has the same name in
// every step.
func (e *explorer[S]) trace(at ref) (events []Event) {
	var way []ref
	for ; at != none; at = e.shards[at%shardCount].parents[at/shardCount] {
		way = append(way, at)
	}
	var now S
	first := e.state(way[len(way)-1])
	for _, s := range e.Initial {
		if e.Fold(s) == first {
			now = s
			break
		}
	}
	for i := len(way) - 2; i >= 0; i-- {
		next, found := e.state(way[i]), false
		from := now
		e.Steps(from, func(event Event, to S) {
			if !found && e.Fold(to) == next {
				events, now, found = append(events, event), to, true
			}
		})
		if !found {
			panic("modelcheck: Steps treats states differently that Fold takes for the same")
		}
	}
	return events
}
