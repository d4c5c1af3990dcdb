package sessions

import "time"

// Lifetime is how long a session may be completed after its creation (contract §8).
const Lifetime = 10 * time.Minute

// State is where a session stands.
type State string

// The states of a session. Pending is the only one that changes.
const (
	Pending  State = "pending"
	Verified State = "verified" // the provider vouched for an identity and the network's rules accept it
	Failed   State = "failed"   // the user declined, or the rules refused the identity
	Canceled State = "canceled" // the integrator took it back; no callback
	Expired  State = "expired"  // nobody completed it within its lifetime; no callback
)

// Reason says why a session ended as it did; empty while pending and when verified.
type Reason string

// The reasons of the final states.
const (
	NoReason       Reason = ""
	Declined       Reason = "declined" // the user said no, at the provider or on the sign-in page
	Refused        Reason = "refused"  // the network's rules do not accept the identity
	CanceledReason Reason = "canceled"
	ExpiredReason  Reason = "expired"
	// AccountDeletedReason: the session was canceled when its account was deleted. No key reads it any more.
	AccountDeletedReason Reason = "account_deleted"
	// UnreadableReason: what stands in the place of the completion cannot be read (ErrUnreadable), so that
	// there is no outcome.
	UnreadableReason Reason = "unreadable"
	// LostReason: the store was damaged, and the outcome may have been lost with what it held (CloseLost), or
	// whom the session was about (Session.Lost).
	LostReason Reason = "outcome_lost"
)

// Rule names the identity network's rule that refused an identity, by the key that sets it in the networks
// file. Empty unless the reason is Refused; records of builds that had one rule alone leave it out.
type Rule string

// The rules of identity networks.
const (
	NoRule           Rule = ""
	RuleSubjectMatch Rule = "require_subject_match"
	RuleEmailDomains Rule = "email_domains"
	RuleAccountAge   Rule = "min_account_age"
	RuleGroups       Rule = "require_groups"
	RuleAllow        Rule = "allow_subjects"
	RuleDeny         Rule = "deny_subjects"
	RuleOneIdentity  Rule = "one_identity_per"
)

// Policy says what may be sent again.
type Policy string

// The policies. A key that has none gets the service's.
const (
	PolicyOnce        Policy = "once"          // only what was provably not sent
	PolicyAtLeastOnce Policy = "at-least-once" // also what ended as unknown, and the answers 408, 425, 429 and 5xx
)

// Session is the record of a session: what the integrator asked for, and when. It is written once, by
// Create.
type Session struct {
	ID      ID
	Account string // id of the account whose key started it
	Key     string // id of that key
	Test    bool   // started with a test key
	Policy  Policy // of that key; empty: the service's
	// arbitrary, 1 to 1,024 bytes; this and what follows is sealed in storage, under a key of the session's own
	Platform       string
	PlatformUserID string // arbitrary, 1 to 1,024 bytes, returned unchanged
	GuildID        string // arbitrary, 0 to 1,024 bytes, returned unchanged
	CallbackURL    string // as given and checked
	// Trace is the W3C traceparent under which the next step of the session is traced: the span of its
	// start, or of its completion. It stands in a header beside the record; empty where the session is not
	// traced, and in lists.
	Trace     string
	CreatedAt time.Time
	ExpiresAt time.Time // CreatedAt plus Lifetime

	// Lost: a damaged store has lost the session's key, and with it the personal part, which is empty. Nobody
	// completes such a session, and its outcome has nowhere to go.
	Lost bool

	key keyRef // of the key that its personal part is sealed under
}

// Request is what Create needs.
type Request struct {
	Account, Key                      string
	Test                              bool
	Policy                            Policy
	Platform, PlatformUserID, GuildID string
	CallbackURL                       string
}

// Outcome is how a session is completed.
type Outcome struct {
	State   State  // Verified, Failed or Canceled
	Reason  Reason // Declined, Refused, CanceledReason or AccountDeletedReason; NoReason when verified
	Rule    Rule   // which of the network's rules refused
	Network string // id of the identity network that vouched or refused; empty where none took part
}

// Completion is the fact that a session ended, with everything its delivery needs, since it outlives the
// session's record.
type Completion struct {
	Session
	Outcome
	CompletedAt time.Time
	// KeptUntil is when the fact leaves the store, where it came from another store with a life of its own;
	// zero: by its stream's age.
	KeptUntil time.Time
}

// Verified is the contract's `verified` member (contract §2.3).
func (o Outcome) Verified() bool { return o.State == Verified }

// View is everything that can be read about a session.
type View struct {
	Session
	Outcome
	CompletedAt time.Time // zero while pending and when expired
	Delivery    Delivery
}

// DeliveryState is where the single POST stands.
type DeliveryState string

// The states of a delivery (package dispatcher moves them).
const (
	DeliveryNone          DeliveryState = "none"          // no outcome yet, or one that sends no callback
	DeliveryDue           DeliveryState = "due"           // waiting for its first or next attempt
	DeliveryClaimed       DeliveryState = "claimed"       // a worker is sending
	DeliveryDelivered     DeliveryState = "delivered"     // a 2xx status line was read
	DeliveryRejected      DeliveryState = "rejected"      // another final status line was read
	DeliveryUnknown       DeliveryState = "unknown"       // bytes left and no status line came back
	DeliveryUndeliverable DeliveryState = "undeliverable" // provably nothing was sent until the retry deadline passed
)

// Delivery is what is known about a session's callback.
type Delivery struct {
	State    DeliveryState
	Attempts []Attempt // by number, first is 1
}

// Attempt is one claim and, where it has ended, its result.
type Attempt struct {
	Claim  Claim
	Result *Result // nil while open
	// Presumed is set where the result is no fact yet, but what an unreadable claim means.
	Presumed bool
}
