package audit

import (
	"errors"
	"slices"
	"time"

	"verifyd/edge/account/access"
)

// What was done, according to a record. On names the object: a key's id, an identity as "network:subject", an
// invite's or a login link's id. It is empty if the object is the account itself.
const (
	QuotaSet       = "quota.set"      // Detail: from, to
	KeyCreated     = "key.created"    // Detail: name, mode, expires_at
	KeyWasRolled   = "key.rolled"     // Detail: into, until
	KeyWasRevoked  = "key.revoked"    //
	SecretRotated  = "secret.rotated" // Detail: until
	RotationEnded  = "secret.rotation_ended"
	SecretRevealed = "secret.revealed"     //
	MemberAdded    = "member.added"        // Detail: name, role
	MemberJoined   = "member.joined"       // by an invite. Detail: name, role, invite
	RoleChanged    = "member.role_changed" // Detail: name, from, to, invites_withdrawn
	MemberRemoved  = "member.removed"      // Detail: name, role, invites_withdrawn
	InviteCreated  = "invite.created"      // Detail: role, until
	// InviteWithdrawn: Detail: role; invites_withdrawn if On is a login link, all of whose invites are
	// withdrawn
	InviteWithdrawn = "invite.withdrawn"
	LinkCreated     = "login_link.created"  // Detail: role, until
	LinkRedeemed    = "login_link.redeemed" // Detail: role
	LinkRevoked     = "login_link.revoked"  // Detail: role
	// CallbackSent, by the actor who sends: On is the session, or Detail: count, sessions
	CallbackSent    = "callback.sent_again"
	CallbackTested  = "callback.test_sent"     // by the actor who sends: Detail: host
	OutcomesSeen    = "callback.seen"          // by the actor who marks: Detail: count
	UserErased      = "user.erased"            // By: who erased; Detail: sessions, identities; never the user
	OperatorGranted = "operator.granted"       // in ServiceLog, as all below: On is the identity
	OperatorRevoked = "operator.revoked"       // the same
	TokenCreated    = "operator_token.created" // On is the token's id. Detail: name, scopes, until
	TokenRevoked    = "operator_token.revoked" // the same. Detail: name
	HostPaused      = "host.paused"            // By: who paused; On: host and port; Detail: until, reason
	HostResumed     = "host.resumed"           // by the actor who resumes
	// StoreRecovered: On is the stream. Detail: what, file, lost, from, to, kept, deliveries_unknown,
	// sessions_closed
	StoreRecovered = "store.recovered"
)

// The records about an account as a whole: its name, whether it is in service, its end, and who came from one
// account to another.
const (
	AccountCreated = "account.created" // Detail: name; granted
	// AccountRenamed: Detail: from, to, kept_until (until when no other account can take the old name);
	// granted if an operator allowed a name that is otherwise refused; verified_lost if the mark went with
	// the old name
	AccountRenamed  = "account.renamed"
	NameGranted     = "account.name_granted" // the same for the name that it has. Detail: name
	NameVerified    = "account.verified"     // Detail: name, for which it is
	NameUnverified  = "account.unverified"   //
	AccountDisabled = "account.disabled"     // Detail: reason
	AccountEnabled  = "account.enabled"      //
	// DeletionAsked: Detail: at (when it is deleted)
	DeletionAsked   = "account.deletion_asked"
	AccountRestored = "account.restored"          // the request for deletion is withdrawn
	AccountDeleted  = "account.deleted"           // Detail: name, asked_at, members, invites, signs_until
	SessionsEnded   = "account.sessions_canceled" // by the actor who deletes: Detail: sessions
	// MemberMovedOut and MemberMovedIn: On is the identity. Detail: name, role; to or from; invites_withdrawn
	MemberMovedOut = "member.moved_out"
	MemberMovedIn  = "member.moved_in"
)

// The records about an account's branding.
const (
	ReturnOriginsSet = "return_origins.set" // Detail: from, to
	// ReturnURLSet: Detail: from, to; allowed, an origin, if the operator allowed it at the same time
	ReturnURLSet = "return_url.set"
	ColourSet    = "colour.set" // Detail: from, to
	// LookSet: Detail: the colour before and since of sign, accent, accent_dark and button, and the digest of
	// the logo, as sign_from, sign_to …
	LookSet = "look.set"
	// BindingSet: Detail: from, to; empty: the service's. For the number of users that one identity may
	// verify: Detail: users_from, users_to; 0: any number
	BindingSet = "binding.set"
	// NoticesSet: Detail: from, to: host and port of the address that notices are posted to
	NoticesSet = "notices.set"
)

// takingAway are the changes that take a right away. Nothing keeps them: neither that a newer build has put
// more into a record than this one knows, nor that the log is full, or does not answer.
var takingAway = []string{
	KeyWasRevoked, RotationEnded, MemberRemoved, InviteWithdrawn, LinkRevoked, OperatorRevoked, TokenRevoked,
	AccountDisabled, DeletionAsked, AccountDeleted,
}

// undoing are the changes by which owners undo what a member has done, and the acts that are recorded when
// they are done.
var undoing = []string{
	KeyWasRolled, SecretRotated, RoleChanged, AccountRestored, LinkRedeemed, CallbackSent, CallbackTested,
	OutcomesSeen,
}

// TakesAway reports whether the change of a record takes a right away: one of takingAway, or a lesser role.
func (r Record) TakesAway() bool {
	rank := func(role string) int { return slices.Index(access.Roles(), access.Role(role)) }
	return slices.Contains(takingAway, r.What) ||
		r.What == RoleChanged && rank(r.Detail["to"]) > rank(r.Detail["from"])
}

// ServiceLog replaces an account's id in the audit log, for records that concern the whole service: who is an
// operator, and which receiver hosts are paused.
const ServiceLog = "service"

// Record is one line of an account's audit log, as it is stored.
type Record struct {
	Version int               `json:"v"`                //
	ID      string            `json:"id"`               // distinguishes this record from another that took its number
	Number  int64             `json:"n"`                // from 1, without a gap
	At      time.Time         `json:"at"`               //
	Account string            `json:"account"`          // its id
	Who     access.Actor      `json:"who"`              //
	What    string            `json:"what"`             // "key.created" and the like
	On      string            `json:"on,omitempty"`     //
	Detail  map[string]string `json:"detail,omitempty"` // never a secret; may be nil

	// Later is in no log, only in a changed entry: the records of later changes, which took a right away
	// while the log did not answer. They have no number yet.
	Later []Record `json:"later,omitempty"`
}

// Page is a piece of an account's audit log, newest first.
type Page struct {
	Records []Record
	Next    string // the cursor of the next piece; empty: there is no more
}

// ErrCursor is returned for a cursor that did not come from a page.
var ErrCursor = errors.New("not a cursor of this list")
