// Package modelcheck explores every order of events of a protocol, for tests: no program links it.
//
// A model is a set of first states, the steps that may follow each state, and what must hold. A step stands
// for what real code does between two of its reads and writes, or for something that the world does: an
// answer that is lost, a process that is killed, a message that comes twice. A state is one comparable value
// of a fixed size, without pointers: it holds what decides what may follow, and nothing else.
//
// Explore visits the states breadth first, each once, so that a trace to what does not hold is a shortest
// one. States that differ only in who is called what are folded into one. What it shows:
//
//   - Nothing that is reachable breaks an invariant.
//   - From every state an end is reachable by steps that are bound to happen. A step of which nobody may be
//     sure (Event.Chance) leads to more states, and never is what an end depends on.
//
// Where a bound cut the exploration short (Options), the first holds for what was visited, and the second
// takes what was not visited for an end.
//
// Follow answers the question the other way round: whether a model allows what real actors were seen to do.
// It is what keeps a model from drifting from the code.
package modelcheck
