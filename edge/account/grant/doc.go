// Package grant is login links and operators: who is an operator of the service, by an identity or a login
// link, and what a login link into an account gives.
//
// The laws:
//
//   - A grant is asked of the store's leader at each use, and is ended by writing that it has ended: what is
//     deleted can come back.
//   - Only the command line makes one. A login that says of itself that it is an operator's, or came by a
//     login link, is none without a grant.
//   - The token of a login link is stored as a digest. A link is spent by a fact that is written once.
package grant
