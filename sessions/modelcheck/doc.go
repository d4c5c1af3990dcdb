// Package modelcheck explores every order of events of a protocol, for tests: no program links it.
//
// A model is a set of initial states, the steps that may follow each state, and what must hold. A step stands
// for what real code does between two of its reads and writes, or for something that happens from outside: an
// answer is lost, a process is killed, a message is delivered twice. A state is one comparable value of a
// fixed size, without pointers: it holds what decides what may follow, and nothing else.
//
// Explore visits the states breadth first, each once, so that the trace to a violation is a shortest one.
// States that differ only in the names of actors are folded into one. It shows that:
//
//   - Nothing that is reachable breaks an invariant.
//   - From every state an end is reachable by steps that are certain to happen. A step that may never happen
//     (Event.Chance) leads to more states, but no end may depend on it.
//
// If a bound cut the exploration short, the first holds for the states that were visited, and the second
// counts a state that was not visited as an end.
//
// Follow answers the opposite question: whether a model allows what real actors did. It keeps a model from
// drifting from the code.
package modelcheck
