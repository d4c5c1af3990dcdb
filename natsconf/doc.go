// Package natsconf holds everything that knows NATS JetStream: the embedded server, the connection, the
// table of streams, and the only ways to write to them and to read from their leaders. It imports no other
// package of the product, and no other package imports nats-server or declares a stream.
//
// What JetStream holds (topology.go is this table as values, testdata/topology.golden its every field):
//
//	asset            subjects                                             kept       why
//	COMPLETIONS      completion.* claim.*.* result.*.* resend.*.*         72 h       the facts of sessions: write-once, never deleted
//	EVENTS           session.*.*                                          72 h       the timeline; may lose its last moments in a crash
//	RETRIES          schedule.* retry.*                                   72 h       deliveries that wait for their next try
//	USAGE            usage.*.* stat.*.*.*                                 400 d      counters of the monthly quota, statistics
//	AUDIT            audit.*.*                                            400 d      who changed what: write-once, never deleted
//	KV_sessions      $KV.sessions.>                                       72 h       records of sessions, redeemed sign-in attempts
//	SESSION_KEYS     session-keys.*                                       74 h       keys of sessions' personal parts, sealed, on pages
//	KV_accounts      $KV.accounts.>                                       for ever   integrators, their members and sealed signing secrets
//	KV_keys          $KV.keys.>                                           for ever   API keys as digests
//	KV_logins        $KV.logins.>                                         12 h       login links, their one use, dashboard logins
//	KV_key-uses      $KV.key-uses.>                                       400 d      when each key was last used, to the hour
//	KV_alarms        $KV.alarms.>                                         for ever   operator events; what is over has a life of its own
//	KV_idempotency   $KV.idempotency.>                                    10 min     what idempotency keys lead to, tokens sealed
//	KV_identities    $KV.identities.>                                     for ever   which user an identity stands for, as keyed hashes
//	KV_operations    $KV.operations.>                                     for ever   what operators decided
//	KV_store         $KV.store.>                                          for ever   whether the store is in service, who was erased
//	dispatcher       completion.* resend.*.*                              –          consumer of COMPLETIONS: still to be delivered
//	retries          retry.*                                              –          consumer of RETRIES: whose next try has come due
//
// Who may do what with it stands in permissions.go, once for the servers' configuration, for verifyd check
// and for the tests.
//
// The laws of this package:
//
//   - Nothing is acknowledged before it is on disk: the embedded server syncs every message (SyncAlways), a
//     cluster replicates it to a majority. EVENTS and key-uses are the exceptions, and no promise depends on
//     them.
//   - Every read goes to the stream's leader. Direct reads are off on every asset: a replica may answer a
//     read that follows an acknowledged write as if the write had not happened.
//   - A Writer returns to each caller the result of its own publish: stored, conflict, certainly not stored,
//     or uncertain.
//   - What replaces an entry on condition that nobody else did goes through Update, or Retry where several
//     change together.
//   - Ensure creates and extends; what would lose data or weaken a fence it refuses by name.
package natsconf
