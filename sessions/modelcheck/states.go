package modelcheck

import (
	"hash/maphash"
	"slices"
)

// ref refers to a state: by its index in its shard, and the shard.
type ref uint32

// refTo refers to a state by its index in a shard.
func refTo(place, shard int) ref {
	return ref(place*shardCount + shard) //nolint:gosec // 2^32 states would not fit into memory
}

const (
	shardCount = 64
	none       = ^ref(0)
)

// shard is a part of the states that were visited. A state is stored completely, so that two states are never
// confused; with its references it takes its size and about 20 bytes, and each step 8.
type shard[S comparable] struct {
	states  []S
	parents []ref
	table   []uint32 // open addressing: an index of states, plus one
	steps   []edge   // that are certain to happen
	level   int      // where the states of the newest level begin
}

type edge struct{ from, to ref }

func (e *explorer[S]) shardOf(s S) int { return int(maphash.Comparable(e.seed, s) % shardCount) }

func (e *explorer[S]) state(at ref) S { return e.shards[at%shardCount].states[at/shardCount] }

func (e *explorer[S]) insert(a arrival[S]) {
	k := e.shardOf(a.state)
	e.shards[k].insert(e.seed, k, a)
}

// insert stores a state, unless it is stored already, and the step that leads to it.
func (h *shard[S]) insert(seed maphash.Seed, k int, a arrival[S]) {
	if len(h.table) < 2*len(h.states)+2 {
		h.grow(seed)
	}
	at := h.find(seed, a.state)
	if h.table[at] == 0 {
		h.states = append(h.states, a.state)
		h.parents = append(h.parents, a.from)
		h.table[at] = uint32(len(h.states)) //nolint:gosec // a ref holds fewer
	}
	if a.from != none && !a.chance {
		h.steps = append(h.steps, edge{a.from, refTo(int(h.table[at]-1), k)})
	}
}

// find returns the index in the table where a state is, or is to be inserted.
func (h *shard[S]) find(seed maphash.Seed, s S) uint64 {
	mask := uint64(len(h.table) - 1) //nolint:gosec // a table is never empty
	at := maphash.Comparable(seed, s) / shardCount & mask
	for h.table[at] != 0 && h.states[h.table[at]-1] != s {
		at = (at + 1) & mask
	}
	return at
}

func (h *shard[S]) grow(seed maphash.Seed) {
	h.table = make([]uint32, max(64, 2*len(h.table)))
	for i, s := range h.states {
		h.table[h.find(seed, s)] = uint32(i + 1)
	}
}

// level returns the states that were stored since the last call.
func (e *explorer[S]) level() (refs []ref) {
	for k := range e.shards {
		h := &e.shards[k]
		for ; h.level < len(h.states); h.level++ {
			refs = append(refs, refTo(h.level, k))
		}
	}
	return refs
}

// grown reports whether states were stored since the last call of level.
func (e *explorer[S]) grown() bool {
	for k := range e.shards {
		if e.shards[k].level < len(e.shards[k].states) {
			return true
		}
	}
	return false
}

// stuck returns a state that is nearest to an initial one among those from which no end is reachable.
func (e *explorer[S]) stuck() (at ref, stuck bool) {
	ends := e.ends()
	depth := -1
	for k := range ends {
		for i, ended := range ends[k] {
			if ended {
				continue
			}
			if d := e.depthOf(refTo(i, k)); depth < 0 || d < depth {
				at, depth = refTo(i, k), d
			}
		}
	}
	return at, depth >= 0
}

// ends returns, by shard and place, from which states an end is reachable. It goes through the steps from the
// last to the first, until a round changes nothing: most lead to a later level, so that few rounds are
// enough.
func (e *explorer[S]) ends() [][]bool {
	ends := make([][]bool, shardCount)
	for k := range e.shards {
		ends[k] = make([]bool, len(e.shards[k].states))
		for i, s := range e.shards[k].states {
			ends[k][i] = e.Ended(s)
		}
	}
	for _, r := range e.cut {
		ends[r%shardCount][r/shardCount] = true
	}
	for changed := true; changed; {
		changed = false
		for k := range e.shards {
			for _, step := range slices.Backward(e.shards[k].steps) {
				from := &ends[step.from%shardCount][step.from/shardCount]
				if !*from && ends[step.to%shardCount][step.to/shardCount] {
					*from, changed = true, true
				}
			}
		}
	}
	return ends
}

func (e *explorer[S]) depthOf(at ref) (depth int) {
	for ; e.shards[at%shardCount].parents[at/shardCount] != none; depth++ {
		at = e.shards[at%shardCount].parents[at/shardCount]
	}
	return depth
}
