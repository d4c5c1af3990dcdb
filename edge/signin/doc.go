// Package signin is the end user's side: the sign-in page, and the round trip to an identity network and
// back.
//
// The route table, relative to {base_url}, which may carry a path prefix that every link, redirect and cookie
// keeps:
//
//	GET, HEAD /?session=…                draws the page of a session, in the language of lang=… or of the
//	                                     browser; a GET of a pending one sets the browser's cookie
//	GET, HEAD /?session=…&lang=          the list of languages, each with a link back to the page; from=…
//	                                     is the language of that page. The store is not asked
//	POST      /signin                    continue: 303 to the network; decline, stop: 303 to the clean page
//	GET       /signin/{network}/callback the network's return: judged once, then 303 to the clean page
//	GET       /assets/<name>-<hash>…     the style sheet and the icon, immutable
//
// What the page shows, by the session's facts:
//
//	pending                    200  "Is this you?", a button per network, a notice after a failed attempt
//	verified, failed, canceled 200  the session's outcome
//	pending, another browser's 409  it is signing in there; two minutes after its last press anybody may
//	expired                    410
//	the account is disabled    403  while it is pending; it continues if the account is enabled in time
//	unknown                    404
//	no session in the address  404  what the service is; so is any wrong path (Nowhere)
//	JetStream away             503  with Retry-After; nothing is lost by trying again
//	a press without a cookie   400  the browser keeps none, which the page's own would have shown
//	too many presses, returns  429  with Retry-After, by address and by session; the store is not asked
//	link previews, crawlers    200  one card for all links, known or not; the store is not asked
//
// The law:
//
//  1. GET / decides nothing. Chat applications open links to draw previews; a person's press on a button is a
//     POST, and a POST that another site caused is refused, since it would skip the question "Is this you?".
//  2. An attempt belongs to the browser that began it: a cookie sealed with the master key, found by the
//     state parameter, with the hash of the cookie by which the browser is known. The first return under a
//     state spends the attempt (store.Store.Redeem), whatever it holds and on whatever machine it arrives,
//     before anything in it is examined; so a code is never posted twice. A return to another browser does
//     nothing else: the person who began the attempt gains nothing from the address that the other browser
//     came back with.
//  3. Three ends are verdicts and complete the session: the provider vouched and the network's rules accept,
//     the user declined, the rules refused. Everything else is no verdict: the page explains what happened
//     and offers another attempt. A test session is offered, and ended by, the network of test sessions
//     alone; a live session by the others.
//  4. What the page shows is read from the session's facts, never from an address. A note in the address only
//     chooses a notice on the page of a session that is still pending.
//  5. No log line, error text or record contains tokens, codes, states or identities. An identity is compared
//     and dropped.
//  6. Every value that somebody else typed is escaped, isolated in its direction, and its invisible
//     characters are made visible.
//  7. One browser signs in at a time (store.Store.AcquireLease). That spares people failed attempts and
//     decides nothing: the one completion does.
//  8. The only foreign address that a page links to is the account's own return URL, after the end.
//
// Texts for users are in texts/, apart from the code, one file for each language; agents.go knows
// User-Agents.
package signin
