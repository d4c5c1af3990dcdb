// Package simulation runs real dispatchers, and the stores of edges, through schedules of faults in virtual
// time. It holds tests alone.
//
// A schedule is a bubble of testing/synctest. In it are the real dispatchers with their real clients, the
// real stores by which edges start and complete sessions, the simulated broker (natsconf/simtest, held
// against the real one there), and receivers that speak TLS over connections in memory. A seed decides what
// happens: which sessions there are and how they end, what befalls each message, when connections are cut,
// workers killed and replaced, the broker restarted and its leaders away, how receivers answer. Each decision
// is drawn by the seed and by what it is about, as "the second claim of session 3", never by the order in
// which things happen to be asked. What Go draws for itself, as the order of two timers of one instant, is
// left to chance where many schedules share a process; one that is played alone has that chosen, too, and
// repeats exactly (chance_test.go).
//
// What must hold in each schedule:
//
//   - A session has one outcome: of those who complete it one alone is told that it did, and that is stored.
//   - What was acknowledged is there at the end.
//   - A receiver gets no more POSTs of a session than attempts were claimed, and not released; under the
//     policy once that is one.
//   - It gets each of them between the claim of an attempt and its deadline, and not once that has a result.
//   - Each outcome that has a callback ends with a verdict that agrees with what its receiver saw: delivered
//     where it sent a 2xx, rejected where it sent that status, undeliverable where it got nothing.
//   - When the faults have ended, everything comes to its end within a bounded virtual time.
package simulation
