// Package grant is login links and operators: who is an operator of the service, by an identity, a login link
// or an operator token, and what a login link into an account grants.
//
// The laws:
//
//   - A grant is read from the store's leader at each use. It is ended by writing that it has ended, since a
//     deleted entry can come back.
//   - Only the command line makes a grant. A login that claims to be an operator's, or to come from a login
//     link, is neither without a grant.
//   - An operator token and the token of a login link are stored as digests. A link is spent by a write-once
//     fact.
package grant
