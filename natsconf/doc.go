// Package natsconf is the connection to NATS JetStream, and the only ways to write to its streams and to
// read from their leaders. Below it are the packages that know JetStream, among others topology and
// permission (what it holds, who may do what), provision (makes and compares that), embedded (the server of
// this process and its files), serverconf (the configuration of servers of their own), storestate (the store
// as a whole). None of them imports a package of the product from outside natsconf.
//
// The laws of this package:
//
//   - Nothing is acknowledged before it is on disk: the embedded server syncs every message, unless
//     VERIFYD_SYNC=interval gives that up, and a cluster replicates it to a majority. EVENTS and key-uses are
//     the exceptions, and no promise depends on them.
//   - Every read goes to the stream's leader. Direct reads, which cost less, are enabled only in the embedded
//     store, which has no other copy: a replica may answer a read that follows an acknowledged write as if
//     the write had not happened. What the leader does not have counts only while it is known to be the only
//     one (package leadership).
//   - A Writer returns to each caller the result of its own publish: stored, conflict, certainly not stored,
//     or uncertain.
//   - A write that replaces an entry on condition that no other write did goes through Update, or through
//     Retry if several entries change together; a fact that is written once goes through package once.
package natsconf
