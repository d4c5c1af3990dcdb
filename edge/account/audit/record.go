package audit

import (
	"errors"
	"time"

	"verifyd/edge/account/access"
)

// What a record says was done. On names the thing: a key's id, an identity as "network:subject", an invite's
// or a login link's id; it is empty where it is the account itself. Package life has what is said of an
// account as a whole.
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
	// InviteWithdrawn: Detail: role; invites_withdrawn where On is a login link, of which all are
	InviteWithdrawn = "invite.withdrawn"
	LinkCreated     = "login_link.created"  // Detail: role, until
	LinkRedeemed    = "login_link.redeemed" // Detail: role
	LinkRevoked     = "login_link.revoked"  // Detail: role
	// CallbackSent, for who sends: On is the session, or Detail: count, sessions
	CallbackSent    = "callback.sent_again"
	CallbackTested  = "callback.test_sent"     // for who sends: Detail: host
	OutcomesSeen    = "callback.seen"          // for who marks: Detail: count
	UserErased      = "user.erased"            // for who erases: Detail: sessions, identities; never who
	OperatorGranted = "operator.granted"       // in ServiceLog, as all below: On is the identity
	OperatorRevoked = "operator.revoked"       // the same
	TokenCreated    = "operator_token.created" // On is the token's id. Detail: name, scopes, until
	TokenRevoked    = "operator_token.revoked" // the same. Detail: name
	HostPaused      = "host.paused"            // for who pauses: On is host and port. Detail: until, reason
	HostResumed     = "host.resumed"           // for who resumes
	// StoreRecovered: On is the stream. Detail: what, file, lost, from, to, kept, deliveries_unknown,
	// sessions_closed
	StoreRecovered = "store.recovered"
)

// What records say of an account's branding.
const (
	ReturnOriginsSet = "return_origins.set" // Detail: from, to
	// ReturnURLSet: Detail: from, to; allowed, an origin, where the operator allowed it at the same time
	ReturnURLSet = "return_url.set"
	ColourSet    = "colour.set" // Detail: from, to
	// LookSet: Detail: the colour before and since of sign, accent, accent_dark and button, and the digest of
	// the logo, as sign_from, sign_to …
	LookSet = "look.set"
	// BindingSet: Detail: from, to; empty: the service's. Of how many users one identity may verify: Detail:
	// users_from, users_to; 0: any number
	BindingSet = "binding.set"
	// NoticesSet: Detail: from, to: host and port of the address that notices are posted to
	NoticesSet = "notices.set"
)

// ServiceLog stands in the place of an account's id in the audit log, for what concerns the whole service:
// who is an operator, and which receiver hosts are paused.
const ServiceLog = "service"

// Record is one line of an account's audit log, as it is stored.
type Record struct {
	Version int               `json:"v"`                //
	ID      string            `json:"id"`               // tells this record from another that took its number
	Number  int64             `json:"n"`                // from 1, without a gap
	At      time.Time         `json:"at"`               //
	Account string            `json:"account"`          // its id
	Who     access.Actor      `json:"who"`              //
	What    string            `json:"what"`             // "key.created" and the like
	On      string            `json:"on,omitempty"`     //
	Detail  map[string]string `json:"detail,omitempty"` // never a secret; may be nil
}

// Page is a piece of an account's audit log, newest first.
type Page struct {
	Records []Record
	Next    string // the cursor of the next piece; empty: there is no more
}

// ErrCursor is returned for a cursor that no page gave.
var ErrCursor = errors.New("not a cursor of this list")
