// Package history notes what clients saw of a service while it was tormented, and has it judged by
// porcupine, a checker of linearizability that was not written here. Tests alone use it.
//
// A part of a log is one session, one account's quota or one API key: what happens to one changes nothing of
// another, so that each is checked by itself. For each there is a model, which says what one store without
// faults would have answered; a history stands where some order of its calls, each at an instant between its
// begin and its end, has the answers that were seen.
//
// A call whose answer was lost has no end: it may have happened at any later time, or never.
package history
