// Package history records what clients saw of a service under faults, and has porcupine judge it, a
// linearizability checker that was not written here. Tests alone use it.
//
// A part of a log is one session, one account's quota or one API key: what happens to one changes nothing of
// another, so each is checked by itself. Each has a model of what one store without faults would have
// answered. A history is accepted if some order of its calls, each at an instant between its begin and its
// end, yields the answers that were seen.
//
// A call whose answer was lost has no end: it may have happened at any later time, or never.
package history
