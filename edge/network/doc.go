// Package network lets a user prove control of an identity at an identity network: OpenID Connect by
// discovery (OpenID Connect Core 1.0, Discovery 1.0), plain OAuth 2 (RFC 6749) with a user-info endpoint, and
// Steam by OpenID 2.0. How a network is set, and those that are known by name, are package netsettings. It
// speaks to the provider and judges what the provider says; it draws no page, sets no cookie, completes no
// session and accepts nobody: package rules does that.
//
// An attempt is one try of one browser:
//
//	NewAttempt ─► AuthURL ─► (the browser at the provider) ─► ParseReturn ─► Redeem
//
//	Redeem ─┬─► Identity    the provider vouched
//	        ├─► ErrDeclined the user said no there
//	        └─► *Error      no verdict
//
// The law:
//
//  1. The code is posted at most once per Redeem, whatever the provider answers or fails to answer: by
//     package kept, which keeps connections and repeats no POST, with a stated way of client
//     authentication, no redirect, no second try.
//
//  2. Every attempt has its own state, PKCE verifier (RFC 7636, S256) and nonce. An attempt belongs to one
//     network, which has a redirect URI of its own, and a return that names another issuer is refused before
//     its code is looked at (RFC 9207).
//
//  3. Only an ID token that is signed with an asymmetric algorithm by a key the provider publishes, made for
//     this client, in time, and carrying the attempt's nonce counts. What user info adds must be about the
//     same subject.
//
//  4. What a provider sends is bounded in bytes and in time. A provider that is down stops nothing but its
//     own sign-ins. What is known of it is refreshed from time to time, and used meanwhile.
//
//  5. Codes, tokens, verifiers and secrets are neither kept after use nor put in an error text. A *Error is
//     safe to log.
//
//  6. An OpenID 2.0 assertion counts only with the attempt's own state in its signed place of return, fresh,
//     and vouched for once by the provider itself, at the address of the table.
//
// This package alone imports x/oauth2 and go-oidc.
package network
