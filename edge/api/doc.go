// Package api answers the integrators' servers over HTTP, and serves the pages that other packages mount on
// it (package web is what all answers share).
//
// The public routes, all below the path of the base URL (routes.go has the table as values):
//
//	POST /verify/init                 start a session (contract §4.1)
//	GET  /usage                       what the account used in a month, day by day
//	GET  /signing-keys                the public keys that the account's callbacks are checked with
//	GET  /sessions                    list the account's sessions, newest first
//	GET  /sessions/{session}          read a session, by its id or its token; ?wait= until it changes
//	POST /sessions/{session}/cancel   cancel a pending session; no callback is sent
//	POST /sessions/{session}/resend   send the outcome again, once its delivery has ended
//	POST /sessions/{session}/confirm  submit the code of a session that waits for one
//	POST /listen                      stream a test key's callbacks, one JSON object a line
//	POST /listen/{exchange}           report how one of them ended there
//	GET  /favicon.ico                 the icon, for browsers that ask for it by themselves
//	GET  /openapi.yaml, /docs/api     this interface as an OpenAPI document (package apidoc), and as a page
//	GET  /assets/<name>               the page's style sheet and script, immutable
//	…                                 what Config.Routes mounts: sign-in page, dashboard, documents
//
// HEAD is answered wherever GET is. The operators' routes are GET /livez, /readyz, /metrics and
// /debug/pprof/, and GET and PUT /debug/log-level; all but /livez are answered only under names that
// belong to the machine (package ownname).
//
// The law:
//
//  1. POST /verify/init checks in this order: API key (401), rate (429), body (413, 415, 400), room in the
//     store (503), quota (429); then it creates the session. So a 4xx costs no quota, a caller without a key
//     learns nothing about bodies, and a 200 is durable. An idempotency key is looked up after the body: a
//     repeat gets the existing session, regardless of room and quota.
//  2. Requests are accepted exactly or refused: strict JSON, and every invalid field is named. Strings are
//     returned as they were sent.
//  3. Every answer that is not 2xx is a problem document (RFC 9457) with a stable code from one table,
//     written by one function. A browser at an unknown address gets a page (Config.Nowhere): its Accept names
//     text/html, which programs do not send by default.
//  4. A session is visible only to keys of its own account and kind, live or test; for all others it does not
//     exist.
//  5. Each request has one log line. It names the route and never the path, since paths and queries carry
//     session tokens. Keys, tokens, callback URLs and queries are in no log line, metric or error text.
//  6. GET and HEAD of links that people share decide nothing: a GET of a sign-in page sets a cookie and is
//     noted on the timeline. The return from an identity network is a GET by OAuth 2 (RFC 6749 §4.1.2).
//  7. A request that waits for a change holds a connection and one of MaxWaiting slots, and nothing of the
//     store. When the server is told to stop, it answers.
//  8. A list of sessions reads much of the store: few run at once, and fewer for one owner of accounts.
//  9. No other request occupies the server for long or makes its memory grow: headers, bodies, connections
//     and every wait are bounded. POST /listen lasts as long as its listener does; their number is bounded,
//     and they end when the server drains.
package api
