package told

import "verifyd/sessions"

const (
	sayCreated     = "Session started by %s, expires %s" // account, time of day
	sayExpired     = "Expired: nobody finished in time"
	sayUnreadable  = "Ended without an outcome: what stands in its place cannot be read"
	sayClaimed     = "Attempt %d: claimed by worker %s"
	sayNoClaim     = "Attempt %d: what stands in the place of its claim cannot be read"
	sayGivenUp     = "Attempt %d: given up by worker %s, since the time for tries is over"
	sayAsked       = "Attempt %d: asked for by %s"
	sayNextFrom    = "; next attempt from %s" // time of day
	sayOpened      = "The user opened the page"
	saySignIn      = "Signing in with %s"
	sayReturned    = "The user came back from %s"
	sayFinished    = "The user was shown the outcome"
	sayTrouble     = "No verdict from %s: %s"
	sayNotSent     = "Not sent: %s"
	sayNotSentNext = "Not sent: %s; next try in %s"
)

// The words of verifyd explain, all in this file. Short and plain: what happened, then what to do, and nobody is blamed.
// outcomes say how a session was completed.
var outcomes = map[sessions.State]map[sessions.Reason]string{
	sessions.Verified: {sessions.NoReason: "Verified"},
	sessions.Failed: {
		sessions.Declined: "Not verified: the user said no",
		sessions.Refused:  "Not verified: the network's rules do not accept this identity",
	},
	sessions.Canceled: {sessions.CanceledReason: "Canceled by the integrator"},
}

// verdicts say how an attempt ended.
var verdicts = map[sessions.Verdict]string{
	sessions.VerdictDelivered:     "Delivered",
	sessions.VerdictRejected:      "Rejected",
	sessions.VerdictUnknown:       "Unknown",
	sessions.VerdictUndeliverable: "Undeliverable",
	sessions.VerdictReleased:      "Not sent",
}

// Classes say what went wrong where no sentence was written down when it did.
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
	sessions.ClassRestored:       "the store was restored from a backup in which the delivery had not ended",
	sessions.ClassUnreadable:     "what stands in the place of its claim or its result cannot be read",
	sessions.ClassCrash:          "the worker ended before it recorded how the attempt ended",
	sessions.ClassLate:           "the claim's time had passed before the first byte",
}
