package operator

import (
	"net/http"

	"verifyd/edge/dashboard/site"
)

// The messages of this package's pages.
const (
	flashPaused        site.FlashCode = "paused"
	flashResumed       site.FlashCode = "resumed"
	flashRedriven      site.FlashCode = "redriven"
	flashNothingTicked site.FlashCode = "nothing-ticked"
)

var flashes = map[site.FlashCode]site.Flash{
	flashPaused: {
		Tone: "good", Text: "The host is paused. Nothing new is sent to it; waiting callbacks have " +
			"their full time after the pause.",
	},
	flashResumed: {
		Tone: "good", Text: "Callbacks are sent to the host again. Waiting ones go out within half a minute.",
	},
	flashRedriven: {
		Tone: "good", Text: "They are on their way again, with the same webhook-ids. What was already " +
			"due was left alone.",
	},
	flashNothingTicked: {Tone: "caution", Text: "Nothing was selected, so nothing is sent again."},
}

// problemNoOperator says what happened, then what to do.
var problemNoOperator = site.Problem{
	Status: http.StatusForbidden, Heading: "This page is for operators",
	Lead: "You are logged in, but not as an operator of this service.",
	Next: "Whoever runs the service can make you one with: verifyd operator grant NETWORK:SUBJECT",
}
