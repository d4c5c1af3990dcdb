// Package simulation runs real dispatchers, and the stores of edges, through schedules of faults in virtual
// time. It holds tests alone.
//
// A schedule is a bubble of testing/synctest. In it are the real dispatchers with their real clients, the
// real stores by which edges start and complete sessions, the simulated broker (natsconf/simtest, held
// against the real one there), and receivers that speak TLS over connections in memory. A seed decides what
// happens: which sessions there are and how they end, which faults each message meets, when connections are
// cut, workers killed and replaced, the broker restarted and its leaders away, and how receivers answer. Each
// decision is drawn from the seed and its own subject, such as "the second claim of session 3", and does not
// depend on the order in which decisions are made. What Go itself draws, such as the order of two timers of
// one instant, is left to chance if many schedules share a process. A schedule that is played alone has that
// chosen too, and repeats exactly (chance_test.go).
//
// What must hold in each schedule:
//
//   - A session has one outcome: of the callers that complete it, exactly one learns that it did, and its
//     outcome is stored.
//   - What was acknowledged is there at the end.
//   - A receiver gets no more POSTs of a session than there are attempts that were claimed and not released;
//     under the policy once that is one.
//   - It gets each of them between the claim of an attempt and its deadline, and none after that attempt has
//     a result.
//   - Each outcome that has a callback ends with a verdict that agrees with what its receiver saw: delivered
//     if it sent a 2xx, rejected if it sent that status, undeliverable if it got nothing.
//   - When the faults have ended, everything comes to its end within a bounded virtual time.
package simulation
