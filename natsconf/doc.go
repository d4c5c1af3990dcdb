// Package natsconf is the floor plan: where NATS JetStream runs, what it holds, and the only ways to write to it and to read
// from its leaders. It imports none of the other rooms, and no other room imports nats-server or declares a stream.
//
// What JetStream holds (topology.go is this table as values, testdata/topology.golden its every field):
//
//	asset            subjects                                                  kept          why
//	KV sessions      $KV.sessions.<sid>, $KV.sessions.redeemed.<attempt>       10 min        pending sessions, redeemed sign-in attempts
//	COMPLETIONS      completion.<sid> claim.<sid>.<n> result.<sid>.<n>         72 h          the facts: write-once, never deleted
//	                 resend.<sid>.<n>
//	EVENTS           session.<event>.<sid>                                     72 h          the timeline; may lose its last moments in a crash
//	USAGE            usage.<account>.<yyyymm>                                  400 d         counters of the monthly quota
//	                 stat.<account>.<yyyymmdd>.<what>                          400 d         statistics for people
//	KV accounts      $KV.accounts.<account>                                    for ever      integrators, their members and sealed signing secrets
//	KV keys          $KV.keys.<digest>, in two parts: <of the id>.<the rest>   for ever      API keys as digests
//	KV logins        $KV.logins.link.<digest> redeemed.<digest> session.…      12 h          login links, their one use, dashboard logins
//	KV key-uses      $KV.key-uses.<key>                                        400 d         when each key was last used, to the hour
//	KV idempotency   $KV.idempotency.<account>.<live|test>.<hash>              10 min        what idempotency keys lead to, tokens sealed
//	AUDIT            audit.<account>.<n>                                       400 d         who changed what: write-once, never deleted
//	dispatcher       consumer of COMPLETIONS on completion.* resend.*.*        –             what is still to be delivered
//
// Who may do what with it stands in permissions.go, once for the servers' configuration, for verifyd check and for the tests.
//
// The laws of this package:
//
//   - Nothing is acknowledged before it is on disk: the embedded server syncs every message (SyncAlways), a cluster replicates
//     it to a majority. EVENTS and key-uses are the exceptions, and no promise depends on them.
//   - Every read goes to the stream's leader. Direct reads are off on every asset: a replica may answer a read that follows an
//     acknowledged write as if the write had not happened.
//   - A Writer tells each caller the fate of its own message: stored, conflict, certainly not stored, or uncertain.
//   - Ensure creates and extends; what would lose data or weaken a fence it refuses by name.
package natsconf
