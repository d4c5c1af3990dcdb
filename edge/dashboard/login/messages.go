package login

import (
	"net/http"

	"verifyd/edge/dashboard/site"
)

// The messages of this package's pages.
const (
	flashLoggedOut     site.FlashCode = "logged-out"
	flashLoggedOutAll  site.FlashCode = "logged-out-all"
	flashLoginEnded    site.FlashCode = "login-ended"
	flashDeclined      site.FlashCode = "declined"
	flashFailed        site.FlashCode = "trouble"
	flashUnreachable   site.FlashCode = "unreachable"
	flashAccountMade   site.FlashCode = "account-made"
	flashJoined        site.FlashCode = "joined"
	flashAlreadyMember site.FlashCode = "already-member"
)

var flashes = map[site.FlashCode]site.Flash{
	flashLoggedOut:    {Tone: "good", Text: "You are logged out."},
	flashLoggedOutAll: {Tone: "good", Text: "You are logged out everywhere."},
	flashLoginEnded: {
		Tone: "good", Text: "That login is ended. Whoever used it is logged out at the next click.",
	},
	flashDeclined: {Tone: "caution", Text: "You did not finish the login. Nothing was done."},
	flashFailed:   {Tone: "bad", Text: "The login did not finish. Nothing was done. You can try again."},
	flashUnreachable: {
		Tone: "bad", Text: "The identity network did not respond. Wait a moment, then try again.",
	},
	flashAccountMade: {Tone: "good", Text: "Your account is ready. Create an API key to start."},
	flashJoined:      {Tone: "good", Text: "You are now a member of this account."},
	flashAlreadyMember: {
		Tone: "caution",
		Text: "You are already a member of this account. The invite stays open for somebody else.",
	},
}

// The problems. The texts describe what happened, then what to do.
var (
	problemOften = site.Problem{
		Status: http.StatusTooManyRequests, Heading: "Too many logins",
		Lead: "Many logins began in a short time from your network, so this one has to wait. Nothing " +
			"was done.",
		Next: "", // drawOften says what to do
	}
	problemLost = site.Problem{
		Status: http.StatusBadRequest, Heading: "We lost track of your login",
		Lead: "This browser did not send back the cookie that your login began with. This happens when " +
			"cookies are blocked, or when too much time has passed.",
		Next: "Allow cookies for this site, then log in again. Never give anyone the address of this page: " +
			"with it they could log in as you.",
	}
	problemSomebodyElse = site.Problem{
		Status: http.StatusForbidden, Heading: "You signed in as somebody else",
		Lead: "The identity network returned another identity than the one that you are logged in with, so " +
			"nothing was changed.",
		Next: "Go back and sign in again as the same person, or log out first to become the other.",
	}
	problemNotAgain = site.Problem{
		Status: http.StatusForbidden, Heading: "You were not asked to sign in again",
		Lead: "The identity network says that you signed in there more than 10 minutes ago, so nothing was " +
			"changed.",
		Next: "Log out at the identity network, then go back and sign in again.",
	}
	problemLoginLink = site.Problem{
		Status: http.StatusGone, Heading: "This login link cannot be used",
		Lead: "It was used before, has expired, was revoked, or is incomplete. A login link works " +
			"once, for 10 minutes.",
		Next: "Ask the operator for a new one.",
	}
	problemInvite = site.Problem{
		Status: http.StatusGone, Heading: "This invite cannot be used",
		Lead: "It was accepted or withdrawn, has expired, or the link is incomplete.",
		Next: "Ask whoever invited you for a new one.",
	}
)
