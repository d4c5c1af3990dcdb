// Package bench measures verifyd. It starts the service as a child process, loads it from this one, and puts
// the figures next to those of ceilings: programs that do less, and so are faster than the service, measured
// in the same run.
//
// rows.go lists the rows, and each rows_*.go measures some of them. The parts are packages of their own: load
// is everything around the service, child the bench's own children, proc the processes and what they use,
// report the figures and how they are printed. Load, proc and report depend neither on each other nor on the
// rows.
//
// Who runs where:
//
//	this process   the load generator, the receiver of callbacks, the dev network, the clocks
//	a child        verifyd serve, or one ceiling; its CPU time and peak memory are counted separately
//
// The laws:
//
//   - Row and ceiling face the same generator, the same receiver, the same split of processes, and take
//     turns: whatever disturbs the machine disturbs both.
//   - The generator is cheaper than anything it measures. The hidden row "generator" compares it with a
//     server that does nothing.
//   - A closed loop measures throughput. Latency at a given rate comes from a fixed schedule and counts from
//     the scheduled instant, so that a service that falls behind cannot hide it by slowing its clients down.
//   - Every answer is checked. An error, a POST that does not arrive and a POST that arrives twice are
//     counted, shown, and make the bench fail.
//   - Nothing is left behind: children are stopped, and stores are in a temporary folder. On an external
//     server the bench works only if there is no store yet, and removes the one that it created.
package bench
