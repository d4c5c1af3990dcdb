// Package life reads an account's life from records of the audit log: its name, whether it is in service, its
// end, and who came from one account to another.
package life

// What a record says was done. On is empty where it is the account itself.
const (
	Created = "account.created" // Detail: name; granted
	// Renamed: Detail: from, to, kept_until (until when the old name is nobody else's); granted where an
	// operator let a name pass that is refused otherwise; verified_lost where the mark went with the old name
	Renamed     = "account.renamed"
	NameGranted = "account.name_granted" // the same for the name that it has. Detail: name
	Verified    = "account.verified"     // Detail: name, for which it is
	Unverified  = "account.unverified"   //
	Disabled    = "account.disabled"     // Detail: reason
	Enabled     = "account.enabled"      //
	// DeletionAsked: Detail: at (when it is deleted)
	DeletionAsked = "account.deletion_asked"
	Restored      = "account.restored"          // the deletion that was asked for is taken back
	Deleted       = "account.deleted"           // Detail: name, asked_at, members, invites, signs_until
	SessionsEnded = "account.sessions_canceled" // for who deletes: Detail: sessions
	// MovedOut and MovedIn: On is the identity. Detail: name, role; to or from; invites_withdrawn
	MovedOut = "member.moved_out"
	MovedIn  = "member.moved_in"
)
