// Package signin is the end user's side: the sign-in page, and the round trip to an identity network and back.
//
// The route table, relative to {base_url}, which may carry a path prefix that every link, redirect and cookie keeps:
//
//	GET, HEAD /?session=…                draws the page of a session; changes nothing and sets no cookie, however often
//	POST      /signin                    continue: 303 to the network, with a flow cookie · decline: 303 to the clean page
//	GET       /signin/{network}/callback the network's return: judged once, then 303 to the clean page
//	GET       /assets/<name>-<hash>…     the style sheet and the icon, immutable
//
// What the page shows, by what the session's facts say:
//
//	pending                    200  "Is this you?", a button per network, and a notice after a try that nobody decided
//	verified, failed, canceled 200  the outcome that stands
//	expired                    410
//	never was                  404
//	JetStream away             503  with Retry-After; nothing is lost by trying again
//
// The law:
//
//  1. GET / decides nothing. Chat applications open links to draw previews; a person's press on a button is a POST, and a POST
//     that another site caused is refused, since it would skip the question "Is this you?".
//  2. An attempt belongs to the browser that began it: a cookie sealed with the master key, found by the state parameter. The
//     first return under a state spends the attempt (sessions.Store.Redeem), whatever it holds and on whatever machine it
//     arrives, before anything in it is looked at; so a code is never posted twice.
//  3. Three ends are verdicts and complete the session: the provider vouched and the network's rules accept, the user declined,
//     the rules refused. Everything else is nobody's verdict: the page says what happened and offers another try.
//     A test session is offered, and ended by, the network of test sessions alone; a live session by the others.
//  4. What the page tells is read from the session's facts, never from an address. A note in the address only chooses a notice
//     on the page of a session that is still pending.
//  5. Tokens, codes, states and identities go into no log line, error text or record. An identity is compared and dropped.
//  6. Every value that somebody typed is escaped, isolated in its direction, and its invisible characters are made visible.
//
// Texts for users stand in texts/, apart from the code.
package signin
