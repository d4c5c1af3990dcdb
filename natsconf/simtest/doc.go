// Package simtest is a broker for simulations: in memory, in virtual time (testing/synctest), and failing as
// its caller decides. It speaks the protocol of NATS clients over connections in memory, so that the real
// client, package natsconf and everything on it run unchanged, and it obeys the rules of JetStream that
// verifyd builds on. TestConformance checks each of these against the real server, by the same table. No test
// uses it in place of the real server: tests of one process on one store run on natstest.
//
// A request that it does not know is reported (Options.Unknown), not guessed at: accounts, backups, counters,
// deletes and purges are left out.
//
// broker.go is the servers and the faults, client.go the clients' protocol, api.go the API of JetStream,
// stream.go what a stream takes and holds, consumer.go what consumers deliver, pull.go to whom they deliver
// it, and pipe.go the connections.
package simtest
