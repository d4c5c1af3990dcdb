// Package notice tells accounts what they should know before they ask: a list for their members, and a signed
// POST to the one address that the account names.
//
// The law:
//
//  1. A cause has one notice, whose id is made from the account, the type and the cause. It is written once,
//     so that several processes that see a cause, and one that sees it again, tell of it once.
//  2. A notice never stands in the way of a callback: it has a stream, a consumer, a client and places of its
//     own, and no part of a delivery waits for it.
//  3. It is posted at least once, where the account names an address, until that answers with a 2xx status
//     or a day has passed. Every try has the notice's id as its webhook-id.
//  4. An account has at most one POST under way, and after one that failed waits before the next: what does
//     not answer costs the others at most a place for the length of a try.
//  5. A notice has no secret in it, no key and nothing of a user: ids, hosts, figures, and members' names.
//
// What a process knows alone (a receiver fails, an outcome is unknown) is told as soon as it can be stored,
// and is lost with a process that dies before. What stands in the audit log is told from there, whoever dies.
package notice
