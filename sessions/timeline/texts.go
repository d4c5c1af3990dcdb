package timeline

import (
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

const (
	textCreated    = "Session started by %s, expires %s" // account, time of day
	textLevel      = ", binding %s"
	textReached    = "; the binding reached is %s"
	textExpired    = "Expired: nobody finished in time"
	textUnreadable = "Ended without an outcome: the message stored as its outcome cannot be read"
	textLost       = "Closed: the store was damaged, and this session's outcome may be among what " +
		"it lost"
	textClaimed         = "Attempt %d: claimed%s"
	textNoClaim         = "Attempt %d: the message stored as its claim cannot be read"
	textGivenUp         = "Attempt %d: given up%s, since the time for attempts is over"
	textWorker          = " by worker %s"
	textResendRequested = "Attempt %d: requested by %s"
	textNextFrom        = "; next attempt from %s" // time of day
	textOpened          = "The user opened the page"
	textSignIn          = "Signing in with %s"
	textReturned        = "The user came back from %s"
	textFinished        = "The user was shown the outcome"
	textPlatform        = "The platform account is proven (%s)"
	textCode            = "Signed in with %s: the user was shown a code, which confirms the session"
	textWrongCode       = "A wrong code was given: %s"
	textNetworkError    = "No verdict from %s: %s"
	textNotSent         = "Not sent: %s"
	textNotSentNext     = "Not sent: %s; next attempt in %s"
)

// The texts of verifyd explain, all in this file: short, plain, blaming nobody. outcomes describe how a
// session was completed.
var outcomes = map[sessions.State]map[sessions.Reason]string{
	sessions.Verified: {sessions.NoReason: "Verified"},
	sessions.Failed: {
		sessions.Declined:    "Not verified: the user declined",
		sessions.Refused:     "Not verified: the network's rules do not accept this identity",
		sessions.Unconfirmed: "Not verified: too many wrong codes were given",
	},
	sessions.Canceled: {
		sessions.CanceledReason:       "Canceled by the integrator",
		sessions.AccountDeletedReason: "Canceled: its account was deleted",
	},
}

// verdicts describe how an attempt ended.
var verdicts = map[facts.Verdict]string{
	facts.VerdictDelivered:     "Delivered",
	facts.VerdictRejected:      "Rejected",
	facts.VerdictUnknown:       "Unknown",
	facts.VerdictUndeliverable: "Undeliverable",
	facts.VerdictReleased:      "Not sent",
}

// Classes describe what went wrong if no sentence was recorded.
var Classes = map[failure.Class]string{
	failure.None:           "no reason was recorded",
	failure.DNS:            "the receiver's name did not resolve",
	failure.RefusedAddress: "this service may not reach the receiver's address",
	failure.Connect:        "no connection to the receiver was made",
	failure.Proxy:          "the egress proxy made no connection to the receiver",
	failure.TLS:            "no TLS session with the receiver was established",
	failure.Timeout:        "the receiver did not answer in time",
	failure.Reset:          "the connection ended before an answer came",
	failure.Protocol:       "what came back is not HTTP/1",
	failure.Status:         "the receiver's answer was not a 2xx",
	failure.Unsigned:       "the account has no signing secret that can be used",
	failure.Paused:         "the receiver host was paused until shortly before the result left the store",
	failure.Restored:       "the store was restored from a backup in which the delivery had not ended",
	failure.Lost:           "the store was damaged, and the callback URL is among what it lost",
	failure.Unreadable:     "the message stored as its claim or result cannot be read",
	failure.Crash:          "the worker ended before it recorded how the attempt ended",
	failure.Late:           "no connection became free, or the claim's time passed, before the first byte",
}
