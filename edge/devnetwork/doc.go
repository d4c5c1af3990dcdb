// Package devnetwork is a built-in OpenID Connect provider for the demo, test keys and tests. It is not a
// real identity network: anybody can sign in as anybody, and each of its pages says so.
//
// The law: it listens only on loopback, refuses any other address, and is started by the demo or by
// --dev-network and by nothing else. The demo that runs beside a service in containers is the one exception:
// there a proxy shows it under an issuer of its own, and only that demo sets one. Apart from that it is as
// strict as a good provider, so that what works here works there: exact redirect URIs, PKCE S256 required,
// codes that work once and for one minute, client authentication, iss on every return (RFC 9207). It keeps
// nobody signed in, so that every prompt and max_age is met; auth_time says when its form was sent. All its
// state is in memory and bounded; it ends with the process.
//
//	GET  /.well-known/openid-configuration  metadata (OpenID Connect Discovery 1.0)
//	GET  /authorize                         draws the sign-in form; changes nothing
//	POST /authorize                         subject, action (sign-in, decline, error, token-error); 303
//	POST /token                             code for tokens, client authentication by Basic or in the body
//	GET  /userinfo                          sub and names of the access token's user
//	GET  /jwks                              the ES256 key, made at start
//	GET  /style-<hash>.css, /favicon.ico    immutable; the icon
package devnetwork
