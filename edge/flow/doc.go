// Package flow keeps the attempts of a browser at an identity network in that browser: one cookie for each, sealed with a key of
// its owner's use. The sign-in page and the dashboard's login each have cookies of their own, and neither opens the other's.
package flow
