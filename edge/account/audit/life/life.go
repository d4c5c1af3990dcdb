// Package life reads an account's life from records of the audit log: its name, whether it is in service, its
// end, and who came from one account to another.
package life

// What was done, according to a record. On is empty if it is the account itself.
const (
	Created = "account.created" // Detail: name; granted
	// Renamed: Detail: from, to, kept_until (until when no other account can take the old name); granted if
	// an operator allowed a name that is otherwise refused; verified_lost if the mark went with the old name
	Renamed     = "account.renamed"
	NameGranted = "account.name_granted" // the same for the name that it has. Detail: name
	Verified    = "account.verified"     // Detail: name, for which it is
	Unverified  = "account.unverified"   //
	Disabled    = "account.disabled"     // Detail: reason
	Enabled     = "account.enabled"      //
	// DeletionAsked: Detail: at (when it is deleted)
	DeletionAsked = "account.deletion_asked"
	Restored      = "account.restored"          // the request for deletion is withdrawn
	Deleted       = "account.deleted"           // Detail: name, asked_at, members, invites, signs_until
	SessionsEnded = "account.sessions_canceled" // by the actor who deletes: Detail: sessions
	// MovedOut and MovedIn: On is the identity. Detail: name, role; to or from; invites_withdrawn
	MovedOut = "member.moved_out"
	MovedIn  = "member.moved_in"
)
