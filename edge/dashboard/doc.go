// Package dashboard is the integrator's side for people, and the operator's: pages below
// {base_url}/dashboard, drawn by the server, which work without JavaScript. It joins packages login,
// integrator, callbacks, signinpage, notices and operator over one site.Site; its tests walk through all
// pages. The pages, each with what is below it:
//
//	login, link, invite              by an identity network, an operator's login link, an invite
//	sign-in-again                    why a sensitive act needs a fresh sign-in, and the way to it
//	new-account, account, logout     which account, and the end of a login
//	logins                           whoever is logged in sees their logins, and ends any of them
//	keys, new-key                    API keys: list, create (shown once), roll, revoke
//	sessions, search, export         what happened, to which callbacks; send again; live
//	callbacks                        what was not delivered: send again, mark as seen; a test callback
//	signing                          the callback signing secret, its rotation, snippets
//	usage, quickstart                this month's sessions; the first steps with the account's own key
//	members, audit, settings         who may do what, who did what, and the login itself
//	sign-in-page                     what the account's users see, with previews
//	notices                          what the account should know, and where that is posted
//	operator                         the operator's: service, accounts, receiver hosts, undelivered
//
// The law:
//
//  1. A login is a random token in a cookie; the store holds its digest (package logins). It ends after 12
//     hours, at logout, by its owner in another browser, and with "log out everywhere"; after that the cookie
//     is worthless. Attempts to log in belong to the browser that began them, and are bounded by address
//     (limit.Attempts).
//  2. A sensitive act needs a login whose person signed in within ten minutes (site.Fresh): what hands out a
//     secret or a right, moves a member or deletes an account. A fresh sign-in is by the same identity, or
//     changes nothing, and the login gets a new token. What takes a right away or stops harm needs none.
//  3. Every page reads the account from the store's leader: a member who was removed or got another role sees
//     that at the next request. An action that a role may not take is not offered, and is refused if
//     requested (403). Another account's data does not exist (404).
//  4. GET changes nothing. Every change is a POST of a form that names the account it was drawn for; a POST
//     that another site caused is refused. A change answers 303, so that a reload repeats nothing; an invalid
//     form is returned as it was typed, with a message beside each field.
//  5. Secrets are shown once, by a POST: an API key when it is made, a signing secret when it is requested.
//     They travel to the page that shows them sealed, and are taken once.
//  6. Pages contain no inline script and no inline style; the content security policy lets none run. The
//     pages work without the script, which adds copying, times of the browser's zone and live updates.
//  7. The operator's pages are for people to whom the command line granted that; the grant is read from the
//     store's leader at each request. They show no secret, no callback URL beyond its host, and no user.
//  8. A value that somebody else typed is escaped, isolated in its direction, and its invisible characters
//     are made visible.
package dashboard
