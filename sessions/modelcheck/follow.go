package modelcheck

import (
	"fmt"
	"strings"
)

// Follow returns an error unless a model allows an observation: unless there are steps from an initial state
// to an end whose observable parts are these, in this order. seen returns what can be observed of the step
// from one state to another; empty: nothing. The error describes how far the model agrees.
func Follow[S comparable](m Model[S], trace []string, seen func(from, to S) string) error {
	type place struct {
		state S
		at    int // in the trace
	}
	visited := map[place]bool{}
	var next []place
	visit := func(p place) {
		if m.Fold != nil {
			p.state = m.Fold(p.state)
		}
		if !visited[p] {
			visited[p] = true
			next = append(next, p)
		}
	}
	for _, s := range m.Initial {
		visit(place{s, 0})
	}
	longest := 0
	for len(next) > 0 {
		p := next[len(next)-1] // depth first: one path is enough
		next = next[:len(next)-1]
		if longest = max(longest, p.at); p.at == len(trace) && m.Ended(p.state) {
			return nil
		}
		m.Steps(p.state, func(_ Event, to S) {
			switch what := seen(p.state, to); {
			case what == "":
				visit(place{to, p.at})
			case p.at < len(trace) && what == trace[p.at]:
				visit(place{to, p.at + 1})
			}
		})
	}
	return fmt.Errorf("the model does not allow %s: it goes along up to step %d",
		strings.Join(trace, ", "), longest)
}
