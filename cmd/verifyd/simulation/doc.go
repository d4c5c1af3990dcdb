// Package simulation runs real edges and dispatchers through schedules of faults in virtual time. It has
// tests only.
//
// A schedule is a bubble of testing/synctest. In it are the real dispatchers with their real clients; edges
// with the real handlers of the sign-in page and their stores; the simulated broker (natsconf/simtest, which
// is compared with the real one there); receivers that speak TLS, and identity networks, over connections in
// memory; and users with browsers, whose requests are passed directly to the handlers.
//
// A seed decides what happens: which sessions there are and who ends them, which faults each message and each
// request gets, when connections are cut, edges and dispatchers are killed and replaced, the broker is
// restarted and its leaders are lost, machines' clocks are set, how receivers and identity networks answer,
// and what users do: press twice, return twice, return in another browser or with other cookies, decline,
// give up. Each decision is drawn from the seed and its own subject, such as "the second claim of session 3",
// and does not depend on the order in which decisions are made. What the Go runtime draws, such as the order
// of two timers of one instant, is left to chance if many schedules share a process. In a schedule that is
// played alone it is chosen too, and the schedule repeats exactly (chance_test.go).
//
// What must hold in each schedule:
//
//   - A session has one outcome: of the callers that complete it, exactly one learns that it did, and its
//     outcome is stored.
//   - What was acknowledged is stored at the end.
//   - A page that shows how a session ended shows what is stored at the end. Once a caller knows that end, no
//     page that is requested later shows another end, or an open session. No page shows a session as expired
//     before it has expired, or as open after that.
//   - A sign-in posts one code, once, and to the network that issued it. It posts none if every return came
//     in another browser than the one that began, or in one from which another had taken over, or after the
//     session had expired or a caller knew its end.
//   - A session is verified, or refused, only by a network that has vouched in a sign-in of that session. A
//     denied identity verifies no session, and an identity that is limited to one user verifies one.
//   - No page says that a verdict is not stored if it is.
//   - Whatever the machines' clocks show, and however they are set meanwhile, no process settles the claim of
//     another one before its time, by the broker's timestamps, and none gives up too early. Instants are
//     compared as precisely as processes know the store's time.
//   - A receiver gets no more POSTs of a session than there are attempts that were claimed and not released;
//     with the policy "once" there is one at most.
//   - It gets each of them between the claim of an attempt and its deadline, and none after that attempt has
//     a result.
//   - No delivery is taken for stray unless the store has lost a schedule.
//   - Each outcome that has a callback ends with a verdict that agrees with what its receiver saw: delivered
//     if it sent a 2xx, rejected if it sent that status, undeliverable if it got nothing.
//   - After the faults, everything ends within a bounded virtual time, including a session that was left
//     open, when its user returns once more.
//
// world_test.go has the faults, actors_test.go the processes, session_test.go what integrators do and the
// checks of deliveries, visit_test.go what users do with browsers (browser_test.go) at edges (edge_test.go)
// and networks (network_test.go), and signin_test.go the checks of that.
package simulation
