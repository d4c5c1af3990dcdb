// Package network lets a user prove control of an identity at an identity network: OpenID Connect by
// discovery (OpenID Connect Core 1.0, Discovery 1.0), plain OAuth 2 (RFC 6749) with a user-info endpoint, and
// Steam by OpenID 2.0. Package netsettings has the settings of networks, and those that are known by name.
// This package speaks to the provider and judges its answers. It draws no page, sets no cookie, completes no
// session and accepts no identity: package rules does that.
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
//  3. An ID token counts only if it is signed with an asymmetric algorithm by a key the provider publishes,
//     is made for this client, is in time, and carries the attempt's nonce. User info must be about the same
//     subject.
//
//  4. A provider's answers are bounded in bytes and in time. A provider that is down stops nothing but its
//     own sign-ins. Its metadata and keys are refreshed from time to time, and used meanwhile.
//
//  5. Codes, tokens, verifiers and secrets are neither kept after use nor put in an error text. A *Error is
//     safe to log.
//
//  6. An OpenID 2.0 assertion counts only if it is fresh, has the attempt's own state in its signed
//     return_to, and the provider itself vouches for it, once, at the address of the table.
//
// This package alone imports x/oauth2 and go-oidc.
package network
