package main

import "verifyd/sessions"

// The words of verifyd explain, all in this file. Short and plain: what happened, then what to do, and nobody is blamed.
const (
	sayCreated     = "Session started by %s, expires %s" // account, time of day
	sayExpired     = "Expired: nobody finished in time"
	sayClaimed     = "Attempt %d: claimed by worker %s"
	sayGivenUp     = "Attempt %d: given up by worker %s, since the time for tries is over"
	sayAsked       = "Attempt %d: asked for by %s"
	sayNextFrom    = "; next attempt from %s" // time of day
	saySignIn      = "Signing in with %s"
	sayTrouble     = "No verdict from %s: %s"
	sayNotSent     = "Not sent: %s"
	sayNotSentNext = "Not sent: %s; next try in %s"
)

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

// classes say what went wrong where no sentence was written down when it did.
var classes = map[sessions.Class]string{
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
	sessions.ClassCrash:          "the worker ended before it recorded how the attempt ended",
	sessions.ClassLate:           "the claim's time had passed before the first byte",
}

// meanings say what to do about a session without a callback.
var meanings = map[sessions.State]string{
	sessions.Pending:  "The user has not finished yet and has until {expires}. Nothing to do; after that, {account} starts a new session.",
	sessions.Expired:  "Nobody finished in time, so no callback is sent. {account} can start a new session for this user.",
	sessions.Canceled: "{account} took the session back, so no callback is sent. Nothing to do.",
}

// deliveryMeanings say what to do about a callback.
var deliveryMeanings = map[sessions.DeliveryState]string{
	sessions.DeliveryDue:           "The callback waits for its next try and is sent by itself. If it stays so, look whether a dispatcher runs and whether {host} can be reached.",
	sessions.DeliveryClaimed:       "A worker is sending the callback at this moment. Look again in a minute.",
	sessions.DeliveryDelivered:     "{host} has the result. Nothing to do.",
	sessions.DeliveryRejected:      "{host} got the callback and refused it, and it is not sent again. Mend the receiver; then send it again with: verifyd deliveries resend {sid}. {account} can also read the result with GET /sessions/{sid}.",
	sessions.DeliveryUnknown:       "The callback may have reached {host} or not, and is not sent again. Look there for webhook-id cb_{sid}; send it again, with the same webhook-id, by: verifyd deliveries resend {sid}. {account} can also read the result with GET /sessions/{sid}.",
	sessions.DeliveryUndeliverable: "Nothing was ever sent to {host}. Mend what kept it from being reached; then send it again with: verifyd deliveries resend {sid}. {account} can also read the result with GET /sessions/{sid}.",
}
