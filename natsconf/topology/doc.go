// Package topology is the table of what JetStream holds, as values: streams, key-value buckets, durable
// consumers, and their names. testdata/topology.golden has its every field.
//
//	asset           subjects                                      kept      why
//	COMPLETIONS     completion.* claim.*.* result.*.* resend.*.*  72 h      facts of sessions, written once
//	EVENTS          session.*.*                                   72 h      timelines of sessions
//	RETRIES         schedule.* retry.*                            72 h      deliveries waiting for a retry
//	USAGE           usage.*.* stat.*.*.*                          400 d     quota counters, statistics
//	AUDIT           audit.*.*                                     400 d     who changed what, written once
//	KV_sessions     $KV.sessions.>                                72 h      records; what pages remember
//	SESSION_KEYS    session-keys.*                                74 h      keys of personal parts, sealed
//	NOTICES         notice.*.* notice-read.*.* notice-open.>      30 d      notices to accounts
//	KV_accounts     $KV.accounts.>                                forever   integrators, members, secrets
//	KV_keys         $KV.keys.>                                    forever   API keys as digests
//	KV_logins       $KV.logins.>                                  12 h      login links, dashboard logins
//	KV_key-uses     $KV.key-uses.>                                400 d     last use of keys, to the hour
//	KV_alarms       $KV.alarms.>                                  forever   operator events
//	KV_idempotency  $KV.idempotency.>                             10 min    idempotency keys, tokens sealed
//	KV_identities   $KV.identities.>                              forever   whose an identity is, hashed
//	KV_operations   $KV.operations.>                              forever   what operators decided
//	KV_store        $KV.store.>                                   forever   in service or not, who is erased
//	dispatcher      completion.* resend.*.*                       –         consumer: still to be delivered
//	retries         retry.*                                       –         consumer: whose retry is due
//	notices         notice.*.*                                    –         consumer: still to be posted
//	audit-notices   audit.*.*                                     –         consumer: notices to be sent
//
// The permissions on it are in package permission, once for the servers' configuration, for verifyd check and
// for the tests.
package topology
