package timeline

import "verifyd/sessions"

const (
	textCreated         = "Session started by %s, expires %s" // account, time of day
	textExpired         = "Expired: nobody finished in time"
	textUnreadable      = "Ended without an outcome: what stands in its place cannot be read"
	textLost            = "Closed: the store was damaged, and this session's outcome may be among what it lost"
	textClaimed         = "Attempt %d: claimed%s"
	textNoClaim         = "Attempt %d: what stands in the place of its claim cannot be read"
	textGivenUp         = "Attempt %d: given up%s, since the time for tries is over"
	textWorker          = " by worker %s"
	textResendRequested = "Attempt %d: asked for by %s"
	textNextFrom        = "; next attempt from %s" // time of day
	textOpened          = "The user opened the page"
	textSignIn          = "Signing in with %s"
	textReturned        = "The user came back from %s"
	textFinished        = "The user was shown the outcome"
	textNetworkError    = "No verdict from %s: %s"
	textNotSent         = "Not sent: %s"
	textNotSentNext     = "Not sent: %s; next try in %s"
)

// The texts of verifyd explain, all in this file: short, plain, blaming nobody. outcomes describe how a
// session was completed.
var outcomes = map[sessions.State]map[sessions.Reason]string{
	sessions.Verified: {sessions.NoReason: "Verified"},
	sessions.Failed: {
		sessions.Declined: "Not verified: the user said no",
		sessions.Refused:  "Not verified: the network's rules do not accept this identity",
	},
	sessions.Canceled: {
		sessions.CanceledReason:       "Canceled by the integrator",
		sessions.AccountDeletedReason: "Canceled: its account was deleted",
	},
}

// verdicts describe how an attempt ended.
var verdicts = map[sessions.Verdict]string{
	sessions.VerdictDelivered:     "Delivered",
	sessions.VerdictRejected:      "Rejected",
	sessions.VerdictUnknown:       "Unknown",
	sessions.VerdictUndeliverable: "Undeliverable",
	sessions.VerdictReleased:      "Not sent",
}

// Classes describe what went wrong where no sentence was recorded.
var Classes = map[sessions.Class]string{
	sessions.ClassNone:           "no reason was recorded",
	sessions.ClassDNS:            "the receiver's name did not resolve",
	sessions.ClassRefusedAddress: "this service may not reach the receiver's address",
	sessions.ClassConnect:        "the receiver could not be connected to",
	sessions.ClassProxy:          "the egress proxy let nothing through",
	sessions.ClassTLS:            "there was no TLS session with the receiver",
	sessions.ClassTimeout:        "the receiver did not answer in time",
	sessions.ClassReset:          "the connection ended before an answer came",
	sessions.ClassProtocol:       "what came back is not HTTP/1",
	sessions.ClassStatus:         "the receiver's answer was not a 2xx",
	sessions.ClassUnsigned:       "the account has no signing secret that can be used",
	sessions.ClassPaused:         "the receiver host was paused until shortly before the result left the store",
	sessions.ClassRestored:       "the store was restored from a backup in which the delivery had not ended",
	sessions.ClassLost:           "the store was damaged, and the callback URL is among what it lost",
	sessions.ClassUnreadable:     "what stands in the place of its claim or its result cannot be read",
	sessions.ClassCrash:          "the worker ended before it recorded how the attempt ended",
	sessions.ClassLate:           "no connection came free, or the claim's time passed, before the first byte",
}
