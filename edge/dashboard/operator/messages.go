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
	flashDisabled      site.FlashCode = "account-disabled"
	flashEnabled       site.FlashCode = "account-enabled"
	flashDeletionAsked site.FlashCode = "account-deletion-asked"
	flashRestored      site.FlashCode = "account-restored"
	flashRestoreFirst  site.FlashCode = "account-restore-first"
	flashMarked        site.FlashCode = "account-marked"
	flashMoved         site.FlashCode = "member-moved"
	flashOtherName     site.FlashCode = "account-other-name"
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
			"due was left out.",
	},
	flashDisabled: {
		Tone: "caution", Text: "The account is disabled. Within a second its keys are refused and nobody " +
			"can sign in for it.",
	},
	flashEnabled:       {Tone: "good", Text: "The account is no longer disabled."},
	flashDeletionAsked: {Tone: "caution", Text: "The account is out of service and will be deleted."},
	flashRestored:      {Tone: "good", Text: "The deletion was canceled."},
	flashRestoreFirst:  {Tone: "caution", Text: "Its deletion was requested. Cancel that first."},
	flashOtherName: {
		Tone: "caution", Text: "The account has been renamed in the meantime, so no mark was set. Check " +
			"the name again.",
	},
	flashMoved: {
		Tone: "good", Text: "They are now a member of this account, and no longer of the other. This takes " +
			"effect with their next click.",
	},
	flashMarked:        {Tone: "good", Text: "Saved. Users see it within a second."},
	flashNothingTicked: {Tone: "caution", Text: "Nothing was selected, so nothing is sent again."},
}

var (
	problemNoAccount = site.Problem{
		Status: http.StatusNotFound, Heading: "There is no such account",
		Lead: "No account has or had this id.", Next: "Go back to the list of accounts.",
	}
	problemNoSession = site.Problem{
		Status: http.StatusNotFound, Heading: "There is no such session",
		Lead: "It is no longer kept, or never existed.", Next: "Go back to the list you came from.",
	}
)

// problemNoOperator describes what happened, then what to do.
var problemNoOperator = site.Problem{
	Status: http.StatusForbidden, Heading: "This page is for operators",
	Lead: "You are logged in, but not as an operator of this service.",
	Next: "Whoever runs the service can make you one with: verifyd operator grant NETWORK:SUBJECT",
}
