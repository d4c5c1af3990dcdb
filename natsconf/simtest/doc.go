// Package simtest is a broker for simulations: in memory, in virtual time (testing/synctest), and failing as
// its caller decides. It speaks the protocol of NATS clients over connections in memory, so that the real
// client, package natsconf and everything on it run unchanged, and it obeys the rules of JetStream that
// verifyd builds on. TestConformance holds each of these against the real server, by the same table. No test
// uses it in the real one's place: what one process does on one store is tested on natstest.
//
// What it does not know it reports (Options.Unknown) instead of guessing: accounts, backups, counters,
// deletes and purges are left out.
//
// broker.go is the servers and the faults, client.go the clients' protocol, api.go the API of JetStream,
// stream.go what a stream takes and holds, consumer.go what consumers deliver, and pull.go to whom, pipe.go
// the connections.
package simtest
