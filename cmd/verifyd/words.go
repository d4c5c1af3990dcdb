package main

import "verifyd/sessions"

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
	sessions.DeliveryUnknown:       "The callback may have reached {host} or not, and is not sent again. Look there for webhook-id {webhook-id}; send it again, with the same webhook-id, by: verifyd deliveries resend {sid}. {account} can also read the result with GET /sessions/{sid}.",
	sessions.DeliveryUndeliverable: "Nothing was ever sent to {host}. Mend what kept it from being reached; then send it again with: verifyd deliveries resend {sid}. {account} can also read the result with GET /sessions/{sid}.",
}

// unreadableMeaning says what to do about a session whose outcome cannot be read.
const unreadableMeaning = "What stands in the place of this session's outcome was written by no verifyd, so nobody was verified and no callback is sent. {account} starts a new session for this user. Look who has the NATS credentials: OPERATING.md, facts that cannot be read."

// pausedMeaning says what to do about a callback whose receiver host an operator has paused.
const pausedMeaning = "{host} is paused by an operator until {until}, so the callback waits. After that it has its whole time to be sent. To send it now: verifyd hosts resume {host}"
