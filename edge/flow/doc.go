// Package flow keeps the attempts of a browser at an identity network in that browser: one cookie for each,
// sealed with a key of its owner's use. The sign-in page and the dashboard's login each have cookies of their
// own, and neither opens the other's.
//
// An attempt belongs to the browser that began it. That takes two cookies: the flow's own, and the one by
// which its owner knows the browser again (Browsers), whose hash is sealed in the flow. A flow in another
// browser is nobody's. A return to one shows by its state that it belongs to some flow (Cookies.Made).
package flow
