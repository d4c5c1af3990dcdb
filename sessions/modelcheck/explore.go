package modelcheck

import (
	"fmt"
	"slices"
	"time"
)

// Model is a protocol and its world. Its functions are pure.
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

// Report is what an exploration has shown.
type Report struct {
	States, Steps int
	Depth         int  // the longest of the shortest ways to a state
	Cut           bool // the bound was reached before all states were
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

// ref refers to a state, by its index.
type ref uint32

// none is no state.
const none = ^ref(0)

// edge is a step that is certain to happen.
type edge struct{ from, to ref }

// explorer is one exploration. A state is stored completely, so that two states are never confused.
type explorer[S comparable] struct {
	Model[S]

	known    map[S]ref
	states   []S   // that were reached, in the order in which that was: those that are nearest first
	parents  []ref // from which each was reached first
	expanded ref   // the first state of which the steps were not followed
	certain  []edge
	report   Report
}

// Explore visits the states of a model. It ends with the first level in which something does not hold, or
// that reaches a number of states; 0: no bound.
func Explore[S comparable](m Model[S], states int) Report {
	began := time.Now()
	if m.Fold == nil {
		m.Fold = func(s S) S { return s }
	}
	e := &explorer[S]{Model: m, known: map[S]ref{}}
	for _, s := range m.Initial {
		e.reach(m.Fold(s), none)
	}
	e.run(states)
	e.report.Took = time.Since(began)
	return e.report
}

// run expands one level after another: the states that as many steps lead to.
func (e *explorer[S]) run(states int) {
	for e.expanded < e.next() {
		if broken, at := e.broken(); broken != "" {
			e.fail(broken, at)
			return
		}
		e.report.States = len(e.states)
		if states > 0 && e.report.States >= states {
			e.report.Cut = true
			break
		}
		end := e.next()
		for ; e.expanded < end; e.expanded++ {
			e.expand(e.expanded)
		}
		if e.next() > end {
			e.report.Depth++
		}
	}
	if at := slices.Index(e.ends(), false); at >= 0 {
		e.fail(noEnd, ref(at)) //nolint:gosec // as in next
	}
}

// next returns what the next new state is referred to by.
func (e *explorer[S]) next() ref {
	return ref(len(e.states)) //nolint:gosec // 2^32 states would not fit into memory
}

// reach returns a state, and stores it if it is new.
func (e *explorer[S]) reach(s S, from ref) ref {
	at, known := e.known[s]
	if !known {
		at = e.next()
		e.known[s] = at
		e.states, e.parents = append(e.states, s), append(e.parents, from)
	}
	return at
}

// expand reaches the successors of a state.
func (e *explorer[S]) expand(at ref) {
	s := e.states[at]
	e.Steps(s, func(event Event, to S) {
		e.report.Steps++
		if to = e.Fold(to); to == s {
			return
		}
		if next := e.reach(to, at); !event.Chance {
			e.certain = append(e.certain, edge{at, next})
		}
	})
}

// broken returns the first thing, by its name, that does not hold in a state of the newest level.
func (e *explorer[S]) broken() (first string, where ref) {
	for at := e.expanded; at < e.next(); at++ {
		if b := e.Broken(e.states[at]); b != "" && (first == "" || b < first) {
			first, where = b, at
		}
	}
	return first, where
}

// ends returns from which states an end is reachable. It goes through the steps from the last to the first,
// until a round changes nothing: most lead to a later level, so that few rounds are enough.
func (e *explorer[S]) ends() []bool {
	ends := make([]bool, len(e.states))
	for i, s := range e.states {
		ends[i] = i >= int(e.expanded) || e.Ended(s)
	}
	for changed := true; changed; {
		changed = false
		for _, step := range slices.Backward(e.certain) {
			if !ends[step.from] && ends[step.to] {
				ends[step.from], changed = true, true
			}
		}
	}
	return ends
}

// fail reports the violation in a state, with the trace to it.
func (e *explorer[S]) fail(broken string, at ref) {
	e.report.Broken = broken
	e.report.Trace = e.trace(at)
}

// trace returns the steps to a state. It follows the unfolded states, so that an actor has the same name in
// every step.
func (e *explorer[S]) trace(at ref) (events []Event) {
	var way []S
	for ; at != none; at = e.parents[at] {
		way = append(way, e.states[at])
	}
	var now S
	for _, s := range e.Initial {
		if e.Fold(s) == way[len(way)-1] {
			now = s
			break
		}
	}
	for _, next := range slices.Backward(way[:len(way)-1]) {
		from, found := now, false
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
