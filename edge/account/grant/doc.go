// Package grant is login links and operators: who is an operator of the service, by an identity, a login
// link or an operator token, and what a login link into an account gives.
//
// The laws:
//
//   - A grant is asked of the store's leader at each use, and is ended by writing that it has ended: what is
//     deleted can come back.
//   - Only the command line makes one. A login that says of itself that it is an operator's, or came by a
//     login link, is none without a grant.
//   - An operator token and the token of a login link are stored as digests. A link is spent by a fact
//     that is written once.
package grant
