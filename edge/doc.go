// Package edge answers the integrators' servers over HTTP, and carries the pages that others mount on it. It owns the public
// server and the operators' one.
//
// The public routes, all below the path of the base URL (routes.go has the table as values):
//
//	POST /verify/init                 start a session (contract §4.1)
//	GET  /usage                       what the account did in a month, day by day
//	GET  /sessions                    list the account's sessions, newest first
//	GET  /sessions/{session}          read a session; {session} is its id or its token; ?wait= holds the answer until it changes
//	POST /sessions/{session}/cancel   take a pending session back; no callback is sent
//	POST /sessions/{session}/resend   send the outcome again, once the delivery has come to an end
//	POST /listen                      give a test key's callbacks to a developer's own machine, as they come, a line each
//	POST /listen/{exchange}           say how one of them ended there
//	GET  /openapi.yaml, /docs         this interface as an OpenAPI document (package apidoc), and as a page
//	…                                 what Config.Routes mounts: the sign-in page and its round trip, the dashboard
//
// HEAD is answered wherever GET is. The operators' routes are GET /livez, /readyz, /metrics and /debug/pprof/.
//
// The law:
//
//  1. POST /verify/init checks in this order: API key (401), rate (429), body (413, 415, 400), room in the store (503), quota
//     (429), and then creates. So a 4xx costs no quota, a stranger learns nothing about bodies, and a 200 is durable. An
//     idempotency key is looked up after the body: a repeat gets the session that stands, whatever room and quota say.
//  2. What the integrator sends is taken exactly or refused: strict JSON, every faulty field named. Strings come back as they
//     were given.
//  3. Whatever is not 2xx is a problem document (RFC 9457) with a stable code from one table, written by one function.
//  4. A session is there only for keys of its own account and kind, live or test; for others it does not exist.
//  5. One request, one log line. It names the route and never the path, since paths and queries carry session tokens. Keys,
//     tokens, callback URLs and queries are in no log line, no metric and no error text.
//  6. GET and HEAD change nothing.
//  7. A request that waits for a change holds a connection and a place among MaxWaiting, and nothing of the store. When the server is
//     told to stop, it answers.
//  8. A list of sessions looks through the store: few are made at once, and fewer of one account.
//  9. No other request holds the server for long or makes it grow: headers, bodies, connections and every wait are bounded. POST
//     /listen lasts as long as its listener does; their number is bounded, and they end when the server drains.
package edge
