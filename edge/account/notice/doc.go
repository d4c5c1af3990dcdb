// Package notice informs accounts of what they should know before they ask: by a list for their members, and
// by a signed POST to the one address that the account names.
//
// The law:
//
//  1. A cause has one notice, whose id is made from the account, the type and the cause. It is written once,
//     so that a cause that several processes see, or one process sees again, is reported once.
//  2. A notice never gets in the way of a callback: it has a stream, a consumer, a client and places of its
//     own, and no part of a delivery waits for it.
//  3. If the account names an address, it is posted there at least once, until the address answers with a 2xx
//     status or a day has passed. Every try has the notice's id as its webhook-id.
//  4. An account has at most one POST under way, all accounts of an owner two, and an account waits after a
//     failed one before the next: an address that does not answer costs the others at most a place for the
//     length of a try, and those of one person two.
//  5. A notice has no secret, no key and nothing of a user in it: ids, hosts, figures, and members' names.
//
// Events that one process alone knows (a receiver fails, an outcome is unknown) become notices as soon as
// they can be stored, and are lost with a process that dies before that. Notices of events in the audit log
// are made from the log, whichever process dies.
package notice
