// Package simtest is a broker for simulations: it is in memory, runs in virtual time (testing/synctest), and
// fails as its caller decides. It speaks the protocol of NATS clients over connections in memory, so that
// the real client, package natsconf and everything built on it run unchanged, and it follows the rules of
// JetStream that verifyd depends on. TestConformance checks each of these rules on the real server, too. A
// test of one process on one store has the real server, unless it waits for seconds that pass in the product
// itself: such a test runs here, by natstest/virtual.
//
// It reports a request that it does not know (Options.Unknown), and does not guess an answer: accounts,
// backups, counters, deletes and purges are not implemented.
//
// broker.go has the servers and the faults, client.go the clients' protocol, api.go the API of JetStream,
// stream.go what a stream accepts and holds, consumer.go what consumers deliver, pull.go the requests that
// they deliver to, and pipe.go the connections.
package simtest
