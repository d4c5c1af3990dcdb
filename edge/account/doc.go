// Package account is the tenants: what an account, its members, invites, API keys and callback signing
// secrets are, and every decision about them. It knows no storage. The packages of this folder, each of which
// imports none of those that follow it:
//
//	access        who acts, what they are there, and what each role may do
//	secrets       keys, tokens and signing secrets: how they are made, and what is stored of them
//	branding      what users see of an account in addition to its name
//	input         what people give, checked
//	naming        which names accounts can have, and which look alike
//	account       this one
//	signing       the key pair that signs beside each signing secret
//	entry         entries of buckets: conditional writes, lists
//	audit         the log of who changed what
//	record        accounts and keys as they are stored
//	grant         login links, operator tokens, and who is an operator
//	keyuse        when each key was last used
//	keymirror     accounts and keys in memory, for requests
//	namespace     the providers that a network's id was pointed at
//	accountstore  every change of accounts, members and keys
//	notice        what accounts should know: notices, read and posted
//
// The laws:
//
//   - A key that expires, by its own date or because it was rolled, ends at that instant, which the look-up
//     compares with the clock. An expiry can only be moved nearer, and a revocation is final.
//   - One signing secret signs, or two while one rotates out, never three.
//   - No account that has an owner loses its last one.
package account
