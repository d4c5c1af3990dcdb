// Package simulation runs real edges and dispatchers through schedules of faults in virtual time. It holds
// tests alone.
//
// A schedule is a bubble of testing/synctest. In it are the real dispatchers with their real clients; edges
// with the real handlers of the sign-in page and the stores behind them; the simulated broker
// (natsconf/simtest, held against the real one there); receivers that speak TLS, and identity networks, over
// connections in memory; and users with browsers, whose requests are handed to the handlers.
//
// A seed decides what happens: which sessions there are and who ends them, which faults each message and each
// request meets, when connections are cut, edges and dispatchers killed and replaced, the broker restarted
// and its leaders away, how receivers and identity networks answer, and what users do: press twice, come back
// twice, in another browser or with other cookies, decline, give up. Each decision is drawn from the seed and
// its own subject, such as "the second claim of session 3", and does not depend on the order in which
// decisions are made. What Go itself draws, such as the order of two timers of one instant, is left to chance
// if many schedules share a process. A schedule that is played alone has that chosen too, and repeats exactly
// (chance_test.go).
//
// What must hold in each schedule:
//
//   - A session has one outcome: of the callers that complete it, exactly one learns that it did, and its
//     outcome is stored.
//   - What was acknowledged is there at the end.
//   - A page that says how a session ended says what is stored at the end. Once anybody has learnt of an end,
//     no page that is asked for later says otherwise, or that the session is open. No page says that the
//     session has expired before it has, or that it is open once it has.
//   - A sign-in posts one code, once, and to the network that issued it. It posts none if every return came
//     to another browser than the one that began, or to one that another had taken over from, or once the
//     session had expired or anybody had learnt of its end.
//   - A session is verified, or refused, only by a network that has vouched in a sign-in of that session. An
//     identity that is refused verifies nobody, and one that may stand for one user stands for one.
//   - No page says that a verdict is not stored if it is.
//   - A receiver gets no more POSTs of a session than there are attempts that were claimed and not released;
//     under the policy once that is one.
//   - It gets each of them between the claim of an attempt and its deadline, and none after that attempt has
//     a result.
//   - Each outcome that has a callback ends with a verdict that agrees with what its receiver saw: delivered
//     if it sent a 2xx, rejected if it sent that status, undeliverable if it got nothing.
//   - When the faults have ended, everything comes to its end within a bounded virtual time: also a session
//     that was left open, when its user comes once more.
//
// world_test.go is the faults, actors_test.go the processes, session_test.go what integrators do and what is
// judged of deliveries, visit_test.go what users do with browsers (browser_test.go) at edges (edge_test.go)
// and networks (network_test.go), signin_test.go what is judged of that.
package simulation
