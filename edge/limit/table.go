package limit

import (
	"maps"
	"slices"
	"time"
)

const (
	// sweepFrom is the number of entries from which a table looks for entries to drop.
	sweepFrom = 64
	// roomShare is the part of a full table that is forgotten at once: the cost of a scan is shared by
	// thousands of new keys, not paid for each.
	roomShare = 8
)

// table has the states of keys whose allowance is not whole.
type table[K comparable] struct {
	max     int // entries, at about 270 bytes each
	states  map[K]State
	sweepAt int
}

func newTable[K comparable](maxEntries int) table[K] {
	return table[K]{max: maxEntries, states: map[K]State{}, sweepAt: min(sweepFrom, maxEntries)}
}

// state returns a key's state, to be stored again. There is room for one that is not known, whose allowance
// is whole: its state may be before the zero state.
func (t *table[K]) state(key K, at time.Duration) State {
	state, known := t.states[key]
	if !known {
		t.makeRoom(at)
		state = State(at)
	}
	return state
}

// makeRoom forgets keys whose allowance is whole again, when the table has doubled, so that its cost per key
// stays constant; and if it is still full those that used the least: a client with very many addresses frees
// none that it has used up.
func (t *table[K]) makeRoom(at time.Duration) {
	if len(t.states) < t.sweepAt {
		return
	}
	maps.DeleteFunc(t.states, func(_ K, s State) bool { return s.full(at) })
	if excess := len(t.states) - (t.max - t.max/roomShare); excess > 0 {
		smallest := slices.Sorted(maps.Values(t.states))[excess-1]
		maps.DeleteFunc(t.states, func(_ K, s State) bool {
			drop := s <= smallest && excess > 0
			if drop {
				excess--
			}
			return drop
		})
	}
	t.sweepAt = min(max(sweepFrom, 2*len(t.states)), t.max)
}
