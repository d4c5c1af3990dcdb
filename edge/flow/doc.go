// Package flow keeps the attempts of a browser at an identity network in that browser: one cookie for each,
// sealed with a key that is derived for its owner alone. The sign-in page and the dashboard's login each have
// cookies of their own, and neither opens the other's.
//
// An attempt belongs to the browser that began it. That takes two cookies: the flow's own, and the one by
// which its owner recognizes the browser (Browsers), whose hash is sealed in the flow. In another browser a
// flow is not valid. What a return hands over to such a browser is spent (Codes), so that nobody gains
// anything from the address that it shows.
package flow
