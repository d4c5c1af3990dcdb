// Package edge answers the integrators' servers over HTTP, and carries the pages that others mount on it. It owns the public
// server and the operators' one.
//
// The public routes, all below the path of the base URL (routes.go has the table as values):
//
//	POST /verify/init                 start a session (contract §4.1)
//	GET  /sessions/{session}          read a session; {session} is its id or its token
//	POST /sessions/{session}/cancel   take a pending session back; no callback is sent
//	POST /sessions/{session}/resend   send the outcome again, once the delivery has come to an end
//	…                                 what Config.Routes mounts: the sign-in page and its round trip
//
// HEAD is answered wherever GET is. The operators' routes are GET /livez, /readyz, /metrics and /debug/pprof/.
//
// The law:
//
//  1. POST /verify/init checks in this order: API key (401), rate (429), body (413, 415, 400), room in the store (503), quota
//     (429), and then creates. So a 4xx costs no quota, a stranger learns nothing about bodies, and a 200 is durable.
//  2. What the integrator sends is taken exactly or refused: strict JSON, every faulty field named. Strings come back as they
//     were given.
//  3. Whatever is not 2xx is a problem document (RFC 9457) with a stable code from one table, written by one function.
//  4. A session is there only for keys of its own account; for others it does not exist.
//  5. One request, one log line. It names the route and never the path, since paths and queries carry session tokens. Keys,
//     tokens, callback URLs and queries are in no log line, no metric and no error text.
//  6. GET and HEAD change nothing.
//  7. No request holds the server for long or makes it grow: headers, bodies, connections and every wait are bounded.
package edge
