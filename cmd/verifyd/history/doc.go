// Package history records what clients saw of a service under faults, and checks it with porcupine, a
// linearizability checker by others. Only tests use it.
//
// A part of a log is one session, one account's quota or one API key: what happens to one does not change
// another, so each is checked separately. Each has a model of what a store without faults would have
// answered. A history is accepted if some order of its calls, each at an instant between its begin and its
// end, yields the answers that were seen.
//
// A call whose answer was lost has no end: it may have happened at any later time, or never.
package history
