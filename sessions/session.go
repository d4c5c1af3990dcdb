package sessions

import (
	"errors"
	"time"

	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// Lifetime is how long a session may be completed after its creation (contract §8).
const Lifetime = 10 * time.Minute

// State is the state of a session.
type State string

// The states of a session. Pending is the only one that changes.
const (
	Pending  State = "pending"
	Verified State = "verified" // the provider vouched for an identity and the network's rules accept it
	Failed   State = "failed"   // declined, refused by the rules, or unconfirmed
	Canceled State = "canceled" // by the integrator, or with its account; no callback
	Expired  State = "expired"  // not completed within its lifetime; no callback
)

// Reason is why a session ended as it did; empty while pending and when verified.
type Reason string

// The reasons of the final states.
const (
	NoReason Reason = ""
	Declined Reason = "declined" // the user said no, at the provider or on the sign-in page
	Refused  Reason = "refused"  // the network's rules do not accept the identity
	// Unconfirmed: as many wrong codes were entered to confirm the sign-in as may be (proof.MaxTries)
	Unconfirmed    Reason = "unconfirmed"
	CanceledReason Reason = "canceled"
	ExpiredReason  Reason = "expired"
	// AccountDeletedReason: the session was canceled when its account was deleted. No API key can read it any
	// more.
	AccountDeletedReason Reason = "account_deleted"
	// UnreadableReason: the message in the place of the completion cannot be read (ErrUnreadable), so that
	// there is no outcome.
	UnreadableReason Reason = "unreadable"
	// LostReason: the store was damaged, and may have lost the outcome (CloseLost), or whom the session was
	// about (Session.Lost).
	LostReason Reason = "outcome_lost"
)

// Policy decides which callbacks may be sent again.
type Policy string

// The policies. A key that has none gets that of the service.
const (
	PolicyOnce Policy = "once" // only a callback that was provably not sent
	// PolicyAtLeastOnce: also one that ended as unknown, or was answered with 408, 425, 429 or 5xx
	PolicyAtLeastOnce Policy = "at-least-once"
)

// Request is what a session is started for.
type Request struct {
	Account string `json:"-"` // id of the account whose key starts it
	Key     string `json:"-"` // id of that key
	Test    bool   `json:"-"` // started with a test key
	Policy  Policy `json:"-"` // of that key; empty: the service's
	// Level is what must be proven before the session is verified; empty: proof.Link
	Level proof.Level `json:"-"`

	// The following fields are sealed in storage, as JSON of these members, under a key of the session's own.
	Platform       string `json:"p"`           // arbitrary, 1 to 1,024 bytes
	PlatformUserID string `json:"u"`           // arbitrary, 1 to 1,024 bytes, returned unchanged
	GuildID        string `json:"g,omitempty"` // arbitrary, 0 to 1,024 bytes, returned unchanged
	CallbackURL    string `json:"c"`           // as given and checked
	// Reference is the integrator's own word for the session, 0 to 128 bytes; no user sees it.
	Reference string `json:"r,omitempty"`
	// Locale is the BCP 47 tag of the user's language, as the integrator knows it; empty: not given.
	Locale string `json:"l,omitempty"`
	// DisplayName and GroupName are how people know the user and the group on the platform, arbitrary, 0 to
	// 1,024 bytes each. They are for people to read: nothing is decided by them.
	DisplayName string `json:"d,omitempty"`
	GroupName   string `json:"n,omitempty"`
}

// Session is the record of a session: what the integrator asked for, and when. It is written once, by
// Create.
type Session struct {
	ID ID
	Request

	// Trace is the W3C traceparent under which the next step of the session is traced: the span of its start,
	// or of its completion. It is stored in a header of the record; empty if the session is not traced, and
	// in lists.
	Trace     string
	CreatedAt time.Time
	ExpiresAt time.Time // CreatedAt plus Lifetime

	// Lost: a damaged store has lost the session's key, and with it the personal part, which is empty. Such a
	// session cannot be completed, and its outcome has nowhere to go.
	Lost bool

	SealedUnder KeyRef // the key that seals its personal part
}

// Expired reports whether it is too late to complete the session, at an instant.
func (s Session) Expired(at time.Time) bool { return !at.Before(s.ExpiresAt) }

// KeyRef is the place of the key that seals a session's personal part. The zero value is that of a session
// that has no key of its own.
type KeyRef struct {
	Page string
	Slot int
}

// NewSession returns the session that is started under a token at an instant.
func NewSession(r Request, token Token, at time.Time) Session {
	r.Level = r.Level.Or(proof.Link)
	return Session{ID: token.ID(), Request: r, CreatedAt: at, ExpiresAt: at.Add(Lifetime)}
}

// Outcome is how a session is completed.
type Outcome struct {
	State   State        // Verified, Failed or Canceled
	Reason  Reason       // Declined, Refused, Unconfirmed, CanceledReason …; NoReason when verified
	Rule    failure.Rule // which of the network's rules refused
	Network string       // id of the identity network that vouched or refused; empty if none took part
	// Reached is the level that was proven, verified or not; empty: none, and with Verified proof.Link
	Reached proof.Level
}

// Verified is the contract's `verified` member (contract §2.3).
func (o Outcome) Verified() bool { return o.State == Verified }

// WithLevel returns the outcome with the level that it reached, if that is implied: a verified outcome has
// reached proof.Link at least.
func (o Outcome) WithLevel() Outcome {
	if o.Verified() {
		o.Reached = o.Reached.Or(proof.Link)
	}
	return o
}

// Proves reports whether the outcome may be that of a session that asks for a level: an outcome that proves
// less cannot be verified.
func (o Outcome) Proves(asked proof.Level) bool {
	return !o.Verified() || o.WithLevel().Reached.AtLeast(asked)
}

// Status is a session and its current outcome.
type Status struct {
	Session
	Outcome
	CompletedAt time.Time // zero while pending and when expired
}

// Completion is the fact that a session ended, with everything its delivery needs, since it outlives the
// session's record.
type Completion struct {
	Session
	Outcome
	CompletedAt time.Time
	// KeptUntil is until when the outcome may be read, if it came from another store;
	// zero: by its stream's age.
	KeptUntil time.Time
}

// The errors of sessions, in addition to those of natsconf and facts.ErrUnreadable.
var (
	// ErrNotFound: there never was such a session, or its results are no longer kept.
	ErrNotFound = errors.New("no such session")
	// ErrExpired: the session was not completed within its lifetime, and never will be.
	ErrExpired = errors.New("the session has expired")
	// ErrCompleted: the session's one completion is taken; the existing completion is returned with this
	// error.
	ErrCompleted = errors.New("the session is completed already")
	// ErrRedeemed: this sign-in attempt was used before.
	ErrRedeemed = errors.New("the sign-in attempt was used before")
)
