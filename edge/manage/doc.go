// Package manage is the management interface: how an operator's programs manage accounts, API keys, signing
// secrets and members over HTTP, with an operator token (package grant). Its routes, all below the path of
// the base URL:
//
//	POST   /manage/accounts                                make an account
//	GET    /manage/accounts                                list accounts, by name; ?name= finds one
//	GET    /manage/accounts/{account}                      read one
//	PATCH  /manage/accounts/{account}                      change its name, quota, mark, notices, service
//	DELETE /manage/accounts/{account}                      have it deleted in seven days
//	POST   /manage/accounts/{account}/restore              take that back
//	GET    /manage/keys                                    list the keys of all accounts; ?id= finds one
//	GET    /manage/accounts/{account}/keys                 list those of one
//	POST   /manage/accounts/{account}/keys                 make a key
//	DELETE /manage/accounts/{account}/keys/{key}           revoke it
//	POST   /manage/accounts/{account}/keys/{key}/roll      put another in its place
//	GET    /manage/accounts/{account}/members              list members and open invites
//	PATCH  /manage/accounts/{account}/members?member=      change a member's role
//	DELETE /manage/accounts/{account}/members?member=      take a member out
//	POST   /manage/accounts/{account}/members/move?member=   move them to another account
//	GET    /manage/accounts/{account}/login-links          list login links
//	GET    /manage/accounts/{account}/secrets              list signing secrets, without them
//	POST   /manage/accounts/{account}/secrets              put another in the place of the current one
//	DELETE /manage/accounts/{account}/secrets/previous     end the overlap of a rotation
//	POST   /manage/accounts/{account}/invites              invite somebody
//	DELETE /manage/accounts/{account}/invites/{invite}     take an invite back
//	GET    /manage/accounts/{account}/audit                read the audit log, newest first
//	GET    /manage/networks                                list the identity networks
//	GET    /manage/openapi.yaml                            this interface as an OpenAPI document
//
// Commands on the machine of the store call the same operations in their own process (Local).
//
// The law:
//
//  1. A request is checked in this order: token (401), scope (403), query and body (400), stored state. The
//     token is read from the store's leader each time, so that a revoked one is refused at once, and the
//     store checks it again before it changes anything.
//  2. Every change is one of package accountstore's, with the token as the actor in the audit log.
//  3. Bodies and queries are exact: an unknown member or parameter is a fault.
//  4. A secret is only in the answer that created it. So existing signing secrets cannot be read here, and
//     login links, which are stored where no edge can write, are only listed.
//  5. Answers are read from the store's leader: a list has what was created right before it. Only the number
//     of an account's keys comes from memory. A list reads all entries of its kind, so only few requests run
//     concurrently.
package manage
